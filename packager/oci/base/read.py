"""Read an image from an OCI layout, a tar of one, or an archive of ``docker save``.

An index ("OCI Image Index Specification") may hold one image for each platform, further indexes, and artifacts
that belong to images; the name of an image in a layout is an annotation ("OCI Image Layout Specification").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packager.errors import DpackError, usage
from packager.oci.base.archive import Files, files_of
from packager.oci.base.dockerarchive import INDEX as DOCKER_INDEX
from packager.oci.base.dockerarchive import read_docker_archive
from packager.oci.base.image import CONFIG_TYPES, Blobs, Image, document_of, platform_of, read_manifest
from packager.oci.descriptor import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Descriptor,
    Platform,
    malformed,
    parsed,
)

REF_NAME = "org.opencontainers.image.ref.name"
"""The annotation that names an image in a layout's index."""

_DEEPEST = 4
_MOST = 1000
_UNKNOWN = "unknown"
"""The platform that BuildKit gives to attestations, which are no images."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One image of an index: its manifest, its name (that of the index around it), and its platform."""

    descriptor: Descriptor
    ref: str
    platform: Platform

    def __str__(self) -> str:
        return f"{self.platform}  {self.descriptor.digest}" + (f"  {self.ref}" if self.ref else "")


def open_image(path: Path, platform: Platform | None = None, ref: str = "", *, docker: bool = False) -> Image:
    """The image at ``path`` that is for ``platform`` and called ``ref``; either may be left out where one is left.

    ``docker``: read manifest.json also where the archive is an OCI layout as well, as those of docker 25 are.
    Raises DpackError where there is no such image, with a list of what is there, or where something is damaged.
    """
    files, name = files_of(path), f"{path}:{ref}" if ref else str(path)
    if not docker and (index := document_of(files, "index.json", name)) is not None:
        return _from_layout(files, index, platform, ref, name)
    if not path.is_dir() and document_of(files, DOCKER_INDEX, name) is not None:
        return read_docker_archive(files, platform, ref, name)
    raise usage(
        f"cannot read the image {path}",
        f"it has no {DOCKER_INDEX}" if docker else f"it has neither index.json nor {DOCKER_INDEX}",
        next="give an OCI layout, an oci-archive or a docker-archive",
    )


def _from_layout(files: Files, index: bytes, platform: Platform | None, ref: str, name: str) -> Image:
    layout = document_of(files, "oci-layout", name)
    version = None if layout is None else parsed(layout, f"oci-layout of {name}").get("imageLayoutVersion")
    if version != "1.0.0":
        raise malformed(
            name, f"its oci-layout states the version {version}" if layout else "it has no oci-layout"
        )
    blobs = Blobs(files)
    leaves = _distinct(_leaves(blobs, index, f"index.json of {name}", "", _DEEPEST))
    fitting = [leaf for leaf in leaves if not ref or leaf.ref == ref]
    if platform is not None:
        fitting = [leaf for leaf in fitting if platform.matches(leaf.platform)]
    if len({leaf.descriptor.digest for leaf in fitting}) != 1:
        raise _undecided(name, leaves, len(fitting), platform, ref)
    return read_manifest(blobs, fitting[0].descriptor, name)


def _leaves(blobs: Blobs, index: bytes, document: str, ref: str, deeper: int) -> Iterator[_Leaf]:
    """The images of an index and of the indexes in it, in their order, without artifacts and attestations."""
    listed = parsed(index, document).get("manifests")
    if not isinstance(listed, list) or len(listed) > _MOST:
        raise malformed(document, "it has no list of manifests, or an endless one")
    for descriptor in (Descriptor.from_json(value, document) for value in listed):
        name = ref or descriptor.annotation.get(REF_NAME, "")
        if descriptor.media_type in INDEX_TYPES:
            if not deeper:
                raise malformed(document, "indexes in indexes without an end")
            inner = blobs.document(descriptor)
            yield from _leaves(blobs, inner, f"the index {descriptor.digest}", name, deeper - 1)
        elif descriptor.media_type in MANIFEST_TYPES and not descriptor.artifact_type:
            platform = descriptor.platform or _platform(blobs, descriptor)
            if platform is not None and platform.os != _UNKNOWN:
                yield _Leaf(descriptor, name, platform.usual())


def _platform(blobs: Blobs, descriptor: Descriptor) -> Platform | None:
    """The platform of an image whose descriptor does not state it; None for an artifact."""
    document = f"the manifest {descriptor.digest}"
    manifest = parsed(blobs.document(descriptor), document)
    config = Descriptor.from_json(manifest.get("config"), document)
    if config.media_type not in CONFIG_TYPES or manifest.get("artifactType"):
        return None
    return platform_of(blobs.document(config), f"the config of {document}")


def _distinct(leaves: Iterator[_Leaf]) -> tuple[_Leaf, ...]:
    found: dict[tuple[str, str], _Leaf] = {}
    for leaf in leaves:
        found.setdefault((leaf.descriptor.digest, leaf.ref), leaf)
        if len(found) > _MOST:
            raise malformed("the index", "it lists more images than any layout has")
    return tuple(found.values())


def _undecided(
    name: str, leaves: tuple[_Leaf, ...], fitting: int, platform: Platform | None, ref: str
) -> DpackError:
    if not leaves:
        return usage(
            f"cannot read the image {name}", "there is no image in it", next="check where it is from"
        )
    wanted = (f" for {platform}" if platform else "") + (f" by the name {ref}" if ref else "")
    return usage(
        f"cannot choose an image of {name}",
        f"{fitting} of its images are meant{wanted}; it has:"
        if fitting
        else f"none is meant{wanted}; it has:",
        tried=[str(leaf) for leaf in leaves],
        next="choose one by its name (oci:DIR:NAME) or its platform (--platform)"
        if fitting or platform is None or any(platform.matches(leaf.platform) for leaf in leaves)
        else f"name an image for {platform}",
    )
