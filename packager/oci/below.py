"""What an image takes over from the base that it is built on, read from the base's config once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packager.errors import DpackError
from packager.oci.base.image import diff_ids_of, environment_of
from packager.oci.descriptor import (
    OCI_LAYERS,
    Base,
    Descriptor,
    Platform,
    malformed,
    pairs,
    parsed,
)

_KEPT = ("author", "os.version", "os.features")
"""What else a config says about the files of an image."""

_REPLACED = frozenset(
    {"ArgsEscaped", "Cmd", "Entrypoint", "Env", "Healthcheck", "Image", "Labels", "OnBuild", "WorkingDir"}
)
"""What a config says about the base's own program or to builders, and what is merged key by key.

Cmd above all: with our entrypoint it would be the arguments of our program."""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """A base's part of the documents of an image.

    ``digest``       of its manifest.
    ``layers``       with the media types of this specification; digests and sizes stay.
    ``environment``  in the base's order; ``labels`` pairs by key.
    ``runtime``      the rest of its "config", such as User and ExposedPorts, as it stands there.
    ``kept``         what else stays, such as os.version.
    """

    digest: str
    platform: Platform
    layers: tuple[Descriptor, ...]
    diff_ids: tuple[str, ...]
    history: tuple[Any, ...]
    environment: Mapping[str, str]
    labels: tuple[tuple[str, str], ...]
    runtime: Mapping[str, Any]
    kept: Mapping[str, Any]

    @classmethod
    def of(cls, base: Base, platform: Platform) -> BaseImage:
        """Read a base's config.

        Raises DpackError where the base is for another platform than ``platform``, or has layers that cannot be
        copied, or its config does not fit to its layers.
        """
        called = base.name or base.descriptor.digest
        where = f"the config of {called}"
        config = parsed(base.config, where)
        found = Platform.from_json(config, where)
        if not found.matches(platform):
            raise DpackError(
                f"cannot build on {called}",
                f"it is for {found}, the program is for {platform}",
                next=f"name a base for {platform}",
            )
        runtime = config.get("config") or {}
        if not isinstance(runtime, dict):
            raise malformed(where, "config in it is not a JSON object")
        return cls(
            base.descriptor.digest,
            found,
            tuple(_layer(layer, called) for layer in base.layers),
            diff_ids_of(base.config, len(base.layers), called),
            _history(config.get("history"), len(base.layers), base.descriptor.digest),
            environment_of(base.config, where),
            pairs(runtime.get("Labels"), where, "labels"),
            {key: value for key, value in runtime.items() if key not in _REPLACED},
            {key: config[key] for key in _KEPT if key in config},
        )


def _layer(layer: Descriptor, called: str) -> Descriptor:
    if layer.media_type not in OCI_LAYERS or layer.urls:
        raise DpackError(
            f"cannot build on {called}",
            f"it has a layer of the type {layer.media_type} that is not to be copied",
            next="choose a base whose layers are tar, tar+gzip or tar+zstd",
        )
    return replace(layer, media_type=OCI_LAYERS[layer.media_type])


def _history(found: object, count: int, digest: str) -> tuple[Any, ...]:
    """The base's history, or, where that is none of its layers, one line for each of them.

    The digest, not the name: that may be a path, and an image says the same wherever it is built.
    """
    entries = [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []
    if sum(not entry.get("empty_layer") for entry in entries) == count:
        return tuple(entries)
    return tuple({"comment": f"from {digest}"} for _ in range(count))
