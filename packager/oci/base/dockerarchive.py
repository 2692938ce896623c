"""The archives of ``docker save`` and ``podman save``: manifest.json, a config, and the layers as tar files.

The format is that of docker's image specification v1.2 (github.com/moby/docker-image-spec, "Combined Image JSON +
Filesystem Changeset Format"). There is no image manifest in it: ours is made of what is there, so its digest is
not one that a registry would know.
"""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass

from packager.errors import usage
from packager.oci.base.archive import Files
from packager.oci.base.expand import GZIP_MAGIC, ZSTD_MAGIC
from packager.oci.base.image import Blobs, Image, diff_ids_of, document_of, measured, platform_of
from packager.oci.descriptor import (
    CONFIG_TYPE,
    LAYER_GZIP,
    LAYER_TAR,
    LAYER_ZSTD,
    MANIFEST_TYPE,
    Descriptor,
    Platform,
    digest_of,
    document,
    malformed,
)

INDEX = "manifest.json"
"""The file that makes a tar a docker-archive."""

_NAMED_BY_DIGEST = re.compile(r"(?:.*/)?([0-9a-f]{64})(?:\.json)?")


@dataclass(frozen=True, slots=True)
class _Row:
    """One image of the archive: the names of its files, and those that the image goes by."""

    config: str
    layers: tuple[str, ...]
    tags: tuple[str, ...]


def read_docker_archive(files: Files, platform: Platform | None, ref: str, name: str) -> Image:
    """The image called ``ref``, or the only one. Raises DpackError that lists what is there."""
    row = _chosen(_rows(files, name), ref, name)
    config = _read(files, row.config, name)
    named = _NAMED_BY_DIGEST.fullmatch(row.config)
    if named and digest_of(config) != f"sha256:{named[1]}":
        raise malformed(f"{row.config} of {name}", f"its digest is {digest_of(config)}")
    found = platform_of(config, f"the config of {name}")
    if platform is not None and not platform.matches(found):
        raise usage(
            f"cannot use the image {name}",
            f"it is for {found}, and {platform} is wanted",
            next="save the image for that platform",
        )
    return _image(files, row, config, name)


def _image(files: Files, row: _Row, config: bytes, name: str) -> Image:
    ids = diff_ids_of(config, len(row.layers), name)
    layers = tuple(
        _layer(files, layer, diff_id, name) for layer, diff_id in zip(row.layers, ids, strict=True)
    )
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": Descriptor.of(CONFIG_TYPE, config).to_json(),
        "layers": [layer.to_json() for layer in layers],
    }
    places = dict(zip((layer.digest for layer in layers), row.layers, strict=True))
    return Image(
        name=name,
        descriptor=Descriptor.of(MANIFEST_TYPE, document(manifest)),
        config=config,
        layers=layers,
        diff_ids=ids,
        platform=platform_of(config, f"the config of {name}"),
        blobs=Blobs(files, places),
    )


def _rows(files: Files, name: str) -> tuple[_Row, ...]:
    where = f"{INDEX} of {name}"
    try:
        listed = json.loads(_read(files, INDEX, name))
    except (ValueError, RecursionError) as error:
        raise malformed(where, f"it is not JSON ({error})") from None
    if not isinstance(listed, list):
        raise malformed(where, "it is not a list of images")
    rows = []
    for fields in listed:
        config = fields.get("Config") if isinstance(fields, dict) else None
        if not isinstance(config, str):
            raise malformed(where, "an image in it has no config")
        layers, tags = (_texts(fields.get(key), where) for key in ("Layers", "RepoTags"))
        rows.append(_Row(config, tuple(map(posixpath.normpath, layers)), tags))
    return tuple(rows)


def _texts(value: object, where: str) -> tuple[str, ...]:
    texts = [] if value is None else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise malformed(where, "it lists something else than names")
    return tuple(texts)


def _chosen(rows: tuple[_Row, ...], ref: str, name: str) -> _Row:
    fitting = [row for row in rows if not ref or any(_means(ref, tag) for tag in row.tags)]
    if len(fitting) == 1:
        return fitting[0]
    raise usage(
        f"cannot choose an image of {name}",
        f"{len(fitting)} of its {len(rows)} images are {f'called {ref}' if ref else 'meant'}",
        tried=tuple(", ".join(row.tags) or f"(without a name) {row.config}" for row in rows),
        next="name one of them: docker-archive:FILE:NAME:TAG",
    )


def _means(ref: str, tag: str) -> bool:
    """Whether ``ref`` names the image that the archive calls ``tag``, which may have a registry in front and has
    a tag at the end, as tools complete names.
    """
    return any(f"/{tag}".endswith(f"/{name}") for name in (ref, f"{ref}:latest"))


def _layer(files: Files, layer: str, diff_id: str, name: str) -> Descriptor:
    """The descriptor of a layer; a plain tar has the digest that the config states, checked when it is read."""
    file = files.open(layer)
    if file is None:
        raise malformed(name, f"its layer {layer} is not in it")
    with file:
        magic = file.read(4)
        kind = (
            LAYER_GZIP if magic.startswith(GZIP_MAGIC) else LAYER_ZSTD if magic == ZSTD_MAGIC else LAYER_TAR
        )
        if kind == LAYER_TAR:
            return Descriptor(kind, diff_id, file.seek(0, 2))
        digest, size = measured(file)
    return Descriptor(kind, digest, size)


def _read(files: Files, member: str, name: str) -> bytes:
    content = document_of(files, posixpath.normpath(member), name)
    if content is None:
        raise malformed(name, f"{member} is not in it")
    return content
