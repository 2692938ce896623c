"""An image on a registry to build on: its manifest and config at once, its layers when they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from packager.errors import DpackError
from packager.oci.descriptor import (
    INDEX_TYPES,
    MANIFEST_TYPES,
    Descriptor,
    Platform,
    malformed,
    parsed,
)
from packager.registry.client import Access, Manifest, Remote, Repository
from packager.registry.reference import Reference
from packager.registry.store import Store
from packager.source.cache import default_cache
from packager.source.parallel import each
from packager.source.progress import NoProgress, Progress

_THREADS = 3
_DEEPEST = 4


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """One platform's image on a registry. Its blobs are kept in dpack's cache, checked by their digests.

    ``name``        how the user named it.
    ``descriptor``  of its manifest, the one for the platform.
    ``config``      its config's bytes.
    ``layers``      the lowest first.
    """

    name: str
    descriptor: Descriptor
    config: bytes = field(repr=False)
    layers: tuple[Descriptor, ...]
    _store: Store = field(repr=False)
    _checked: dict[str, Path] = field(default_factory=dict, repr=False, compare=False)

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[BinaryIO]:
        """One of its layers, from its first byte, with seek. Whoever reads one reads them all, so all those that
        the cache does not have are downloaded with the first, several at once.
        """
        if not self._checked:
            layers = list({layer.digest: layer for layer in self.layers}.values())
            paths = each(self._store.fetch, layers, _THREADS)
            self._checked.update(zip((layer.digest for layer in layers), paths, strict=True))
        with self._checked[descriptor.digest].open("rb") as file:
            yield file


def pull(
    reference: Reference,
    platform: Platform | None,
    *,
    access: Access | None = None,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> RegistryImage:
    """The image of a reference for a platform, None for the only one that it has; layers are not downloaded yet.

    Raises DpackError where the registry refuses or stays away, where there is no such image, or where it is for
    other platforms alone.
    """
    remote = Remote.of(reference, access or Access())
    with remote.connect(threading.Event()) as repository:
        repository.ping()
        manifest = _manifest(repository, reference.target, platform)
    name = f"the manifest of {reference}"
    fields = parsed(manifest.content, name)
    layers = fields.get("layers")
    if not isinstance(layers, list):
        raise malformed(name, "it has no list of layers")
    config = Descriptor.from_json(fields.get("config"), name)
    store = Store(remote, cache or default_cache(), progress or NoProgress())
    content = store.fetch(config, threading.Event()).read_bytes()
    has = Platform.from_json(parsed(content, f"the config of {reference}"), f"the config of {reference}")
    if platform and not has.matches(platform):
        raise _other_platform(reference, platform, (has,))
    listed = tuple(Descriptor.from_json(layer, name) for layer in layers)
    return RegistryImage(str(reference), manifest.descriptor, content, listed, store)


def _manifest(repository: Repository, target: str, platform: Platform | None, depth: int = 0) -> Manifest:
    """The manifest that a tag or digest leads to; of an index, the one for the platform."""
    reference = repository.remote.reference
    manifest = repository.manifest(target)
    kind = manifest.descriptor.media_type
    if kind in MANIFEST_TYPES:
        return manifest
    name = f"the manifest of {reference}"
    if kind not in INDEX_TYPES or depth > _DEEPEST:
        raise malformed(name, f"its type is {kind or 'not stated'}, which is neither an image nor an index")
    listed = parsed(manifest.content, name).get("manifests")
    entries = [Descriptor.from_json(entry, name) for entry in listed] if isinstance(listed, list) else []
    # Attestations stand beside the images, for the platform "unknown".
    known = [
        (entry.platform, entry) for entry in entries if entry.platform and entry.platform.os != "unknown"
    ]
    fitting = [entry for has, entry in known if platform is None or has.matches(platform)]
    if not fitting or (platform is None and len(fitting) > 1):
        raise _other_platform(reference, platform, tuple(has for has, _ in known))
    return _manifest(repository, fitting[0].digest, platform, depth + 1)


def _other_platform(reference: Reference, platform: Platform | None, has: tuple[Platform, ...]) -> DpackError:
    listed = ", ".join(dict.fromkeys(str(one) for one in has)) or "no platform that it names"
    return DpackError(
        f"cannot use {reference}" + (f" for {platform}" if platform else " without a platform"),
        f"it is for {listed}",
        next="choose one of these with --platform, or another image",
    )
