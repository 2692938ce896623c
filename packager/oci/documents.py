"""The JSON documents of an image, made purely: config, manifest, index, and the account that refers to it.

Key names are those of image-spec 1.1: "Image Configuration", "Image Manifest", "Image Index".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from packager.oci.below import BaseImage
from packager.oci.descriptor import EMPTY, EMPTY_TYPE, INDEX_TYPE, MANIFEST_TYPE, Descriptor, Platform
from packager.oci.layer import Layer
from packager.place import LAYOUT_MARK

ACCOUNT_TYPE = "application/vnd.dpack.manifest.v1+json"
"""The type of dpack.json, and of the artifact that attaches it to an image."""

_IMAGE = "org.opencontainers.image"
_REF_NAME = f"{_IMAGE}.ref.name"
_CONTAINERD_NAME = "io.containerd.image.name"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """What an image says about itself.

    ``entrypoint``   the command that it runs, the program's path inside the image first.
    ``environment``  pairs; they win over the base's, except PATH, where the base's stays.
    ``labels``       pairs for the config; they win over the base's.
    ``annotations``  pairs for the manifest; when it was created and its base come from here anyway.
    ``name``         such as "mnist:1.2" or "registry.example/edge/mnist:1.2"; "" for "latest" of no name.
    ``base_name``    the base's name in its registry, for the annotation; "" where it comes from a file.
    ``created_by``   the command line or what stands for it, for the history.
    """

    platform: Platform
    entrypoint: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    working_directory: str = "/"
    labels: tuple[tuple[str, str], ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    name: str = ""
    base_name: str = ""
    created_by: str = "dpack"

    @property
    def tag(self) -> str:
        """The part of the name after the ":", or "latest"."""
        return self.name.rpartition("/")[2].partition(":")[2] or "latest"


def name_of(program: str) -> str:
    """The name of a program's image where none was chosen: the program's, in the letters that a name may have."""
    return re.sub(r"[^a-z0-9]{2,}|[^a-z0-9._]", "-", program.lower()).strip("._-") or "app"


def created(epoch: int) -> str:
    """A time in seconds since 1970 as RFC 3339 writes it, in UTC."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def config(
    options: ImageOptions, layers: Sequence[Layer], base: BaseImage | None, epoch: int
) -> dict[str, Any]:
    """The config of an image: what is run and how, and the layers' diff_ids, the base's first."""
    when = created(epoch)
    ours = [{"created": when, "created_by": options.created_by, "comment": layer.name} for layer in layers]
    return {
        **(base.kept if base else {}),
        **(base.platform if base else options.platform).to_json(),
        "created": when,
        "config": _runtime(options, base),
        "rootfs": {
            "type": "layers",
            "diff_ids": [*(base.diff_ids if base else ()), *(layer.diff_id for layer in layers)],
        },
        "history": [*(base.history if base else ()), *ours],
    }


def manifest(
    options: ImageOptions,
    config: Descriptor,
    layers: Sequence[Layer],
    base: BaseImage | None,
    epoch: int,
) -> dict[str, Any]:
    """The manifest of an image: its config and its layers, the base's first."""
    annotations = {f"{_IMAGE}.created": created(epoch), **dict(options.annotations)}
    if base:
        annotations[f"{_IMAGE}.base.digest"] = base.digest
        if options.base_name:
            annotations[f"{_IMAGE}.base.name"] = options.base_name
    descriptors = [*(base.layers if base else ()), *(layer.descriptor for layer in layers)]
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": config.to_json(),
        "layers": [descriptor.to_json() for descriptor in descriptors],
        "annotations": annotations,
    }


def account(subject: Descriptor, content: Descriptor, title: str, epoch: int) -> dict[str, Any]:
    """The manifest of an artifact that attaches dpack.json to the image that it is about."""
    layer = replace(content, annotations=((f"{_IMAGE}.title", title),))
    bare = Descriptor(subject.media_type, subject.digest, subject.size)
    return {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "artifactType": ACCOUNT_TYPE,
        "config": Descriptor.of(EMPTY_TYPE, EMPTY).to_json(),
        "layers": [layer.to_json()],
        "subject": bare.to_json(),
        "annotations": {f"{_IMAGE}.created": created(epoch)},
    }


def named(image: Descriptor, options: ImageOptions, base: BaseImage | None) -> Descriptor:
    """The image's descriptor for the index: with its platform, and the name by which tools ask for it.

    The whole name is there only where it names its registry too; containerd takes it word for word.
    """
    names = [(_REF_NAME, options.tag)]
    registry, slash, _ = options.name.partition("/")
    if slash and any(mark in registry for mark in ".:"):
        whole = options.name if options.name.endswith(f":{options.tag}") else f"{options.name}:{options.tag}"
        names.append((_CONTAINERD_NAME, whole))
    return replace(
        image, platform=base.platform if base else options.platform, annotations=tuple(sorted(names))
    )


def index(image: Descriptor, artifact: Descriptor) -> dict[str, Any]:
    """index.json of the layout: the image, and what is attached to it."""
    attached = replace(artifact, artifact_type=ACCOUNT_TYPE)
    return {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [image.to_json(), attached.to_json()],
        "annotations": {LAYOUT_MARK: "1"},
    }


def docker_manifest(options: ImageOptions, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """manifest.json, by which `docker load` finds its way through the same blobs before Docker 25.

    https://github.com/moby/docker-image-spec, "Combined Image JSON + Filesystem Changeset Format".
    """
    tags = [options.name if ":" in options.name.rpartition("/")[2] else f"{options.name}:{options.tag}"]
    return [
        {
            "Config": _blob_path(manifest["config"]["digest"]),
            "RepoTags": tags if options.name else None,
            "Layers": [_blob_path(layer["digest"]) for layer in manifest["layers"]],
        }
    ]


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _runtime(options: ImageOptions, base: BaseImage | None) -> dict[str, Any]:
    environment, labels = dict(options.environment), dict(options.labels)
    if base:
        theirs = dict(base.environment)
        environment = {**theirs, **environment, **{key: theirs[key] for key in theirs if key == "PATH"}}
        labels = {**dict(base.labels), **labels}
    return {
        **(base.runtime if base else {}),
        "Entrypoint": list(options.entrypoint),
        "WorkingDir": options.working_directory,
        **({"Env": [f"{key}={value}" for key, value in environment.items()]} if environment else {}),
        **({"Labels": labels} if labels else {}),
    }
