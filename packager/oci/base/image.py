"""An image that is read: its documents and its blobs, each checked against its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from packager.errors import DpackError
from packager.oci.base.archive import Files
from packager.oci.descriptor import (
    CONFIG_TYPE,
    DOCKER_CONFIG_TYPE,
    OCI_LAYERS,
    Descriptor,
    Platform,
    check_digest,
    malformed,
    parsed,
)

DOCUMENT_LIMIT = 16 << 20
"""Bytes of an index, manifest or config. Registries take 4 MiB; a layout's index may list more than they do."""

CONFIG_TYPES = frozenset({CONFIG_TYPE, DOCKER_CONFIG_TYPE})
"""The config types of images that run; a manifest with another one is an artifact."""

_CHUNK = 1 << 20


def document_of(files: Files, member: str, name: str) -> bytes | None:
    """A JSON document among the files of the image ``name``, None where it has none.

    Raises DpackError for one that is larger than documents are.
    """
    file = files.open(member)
    if file is None:
        return None
    with file:
        content = file.read(DOCUMENT_LIMIT + 1)
    if len(content) > DOCUMENT_LIMIT:
        raise malformed(f"{member} of {name}", "it is larger than a document may be")
    return content


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of a layout or an archive: in which of ``files`` each digest stands, blobs/sha256/… by default.

    A blob is checked when it is opened for the first time, so that nobody reads what is not what it says.
    """

    files: Files
    places: Mapping[str, str] = field(default_factory=dict)
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)

    @contextmanager
    def open(self, descriptor: Descriptor) -> Iterator[BinaryIO]:
        """The blob, from its first byte; DpackError where it is not there or its size or digest is another."""
        with self._found(descriptor) as file:
            if descriptor.digest not in self._checked:
                _check(file, descriptor)
                self._checked.add(descriptor.digest)
            yield file

    def document(self, descriptor: Descriptor) -> bytes:
        """A blob in memory, checked; DpackError where it is larger than a document may be."""
        if descriptor.size > DOCUMENT_LIMIT:
            raise malformed(descriptor.digest, f"a document of {descriptor.size:,} bytes")
        with self.open(descriptor) as file:
            return file.read()

    def _found(self, descriptor: Descriptor) -> BinaryIO:
        file = self.files.open(self.places.get(descriptor.digest, f"blobs/sha256/{descriptor.hex}"))
        if file is None:
            raise malformed(f"the blob {descriptor.digest}", "the image refers to it, and it is not there")
        return file


@dataclass(frozen=True, slots=True)
class Image:
    """One image for one platform.

    ``name`` is how the user called it, ``descriptor`` that of its manifest; ``layers`` stand lowest first, and
    ``diff_ids`` are the digests of the same layers uncompressed.
    """

    name: str
    descriptor: Descriptor
    config: bytes = field(repr=False)
    layers: tuple[Descriptor, ...]
    diff_ids: tuple[str, ...]
    platform: Platform
    blobs: Blobs = field(repr=False)

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[BinaryIO]:
        """One of its blobs from the first byte, seekable and checked; DpackError where it cannot be had."""
        with self.blobs.open(descriptor) as file:
            yield file


def read_manifest(blobs: Blobs, descriptor: Descriptor, name: str) -> Image:
    """The image whose manifest ``descriptor`` is. Raises DpackError where it or its config is not one."""
    document = f"the manifest {descriptor.digest} of {name}"
    manifest = parsed(blobs.document(descriptor), document)
    described = Descriptor.from_json(manifest.get("config"), document)
    if described.media_type not in CONFIG_TYPES:
        raise malformed(document, f"its config is of the type {described.media_type}: not an image")
    layers = manifest.get("layers")
    if not isinstance(layers, list):
        raise malformed(document, "it has no list of layers")
    config = blobs.document(described)
    return Image(
        name=name,
        descriptor=descriptor,
        config=config,
        layers=tuple(_layer(layer, document) for layer in layers),
        diff_ids=diff_ids_of(config, len(layers), name),
        platform=platform_of(config, f"the config of {name}"),
        blobs=blobs,
    )


def platform_of(config: bytes, document: str) -> Platform:
    """The platform that an image's config states; DpackError where it states none."""
    return Platform.from_json(parsed(config, document), document).usual()


def diff_ids_of(config: bytes, layers: int, name: str) -> tuple[str, ...]:
    """The digests of an image's uncompressed layers ("rootfs" of its config), one for each of its ``layers``.

    Raises DpackError, naming the image, where the config does not have as many.
    """
    document = f"the config of {name}"
    rootfs = parsed(config, document).get("rootfs")
    listed = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if listed is None and not layers:
        return ()
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise malformed(document, "it does not list the layers under rootfs.diff_ids")
    if len(listed) != layers:
        raise malformed(document, f"it lists {len(listed)} layers, and the manifest has {layers} of them")
    return tuple(check_digest(each, document) for each in listed)


def environment_of(config: bytes, document: str) -> dict[str, str]:
    """The environment that containers of an image start with ("config.Env"), in its order.

    Raises DpackError, naming the document, where it is not a list of texts.
    """
    settings = parsed(config, document).get("config")
    listed = (settings.get("Env") if isinstance(settings, dict) else None) or []
    if not isinstance(listed, list) or not all(isinstance(text, str) for text in listed):
        raise malformed(document, "its environment is not a list of texts")
    return {name: value for name, _, value in (text.partition("=") for text in listed)}


def measured(file: BinaryIO) -> tuple[str, int]:
    """Digest and size of a file from its first byte to its end."""
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while part := file.read(_CHUNK):
        digest.update(part)
        size += len(part)
    return f"sha256:{digest.hexdigest()}", size


def _layer(value: object, document: str) -> Descriptor:
    layer = Descriptor.from_json(value, document)
    if layer.media_type not in OCI_LAYERS:
        raise DpackError(
            f"cannot read {document}",
            f"a layer is of the type {layer.media_type}",
            next="convert the image first: skopeo copy --format oci",
        )
    return layer


def _check(file: BinaryIO, descriptor: Descriptor) -> None:
    found, size = measured(file)
    file.seek(0)
    if (found, size) != (descriptor.digest, descriptor.size):
        raise DpackError(
            f"cannot read the blob {descriptor.digest}",
            "it holds something else than its digest says",
            tried=(
                f"expected {descriptor.digest}, {descriptor.size:,} bytes",
                f"found    {found}, {size:,} bytes",
            ),
            next="copy the image anew; it was damaged or changed",
        )
