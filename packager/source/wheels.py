"""Requirements in, unpacked wheels out: the cache first, then the user's package indexes."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from packager.errors import DpackError
from packager.source import cache as store
from packager.source import pipconf, requirement
from packager.source.cache import Distribution, Record
from packager.source.download import Transfer, discard, download
from packager.source.index import Candidate, Offers, offers
from packager.source.parallel import each
from packager.source.pipconf import PipConfig
from packager.source.progress import NoProgress, Progress
from packager.source.requirement import Want
from packager.source.transport import connect
from packager.source.unpack import DamagedWheelError, unpack, unpacked_size
from packager.source.wheelname import Option, best, pinned

_SHOWN = 8
_NO_PROGRESS = NoProgress()


@dataclass(frozen=True, slots=True)
class _Source:
    """Where one fetch looks; ``pip`` reads pip's configuration, which is not needed before the network is."""

    cache: Path
    machine: str
    offline: bool
    progress: Progress
    pip: Callable[[], PipConfig]


def fetch(  # noqa: PLR0913 - one requirement list and five independent options, all by name
    requirements: Sequence[str],
    *,
    machine: str,
    offline: bool = False,
    index_url: str | None = None,
    cache: Path | None = None,
    progress: Progress = _NO_PROGRESS,
) -> tuple[Distribution, ...]:
    """The best wheel for each requirement and ``machine``, unpacked in the cache.

    ``requirements`` are requirement strings ("nvidia-cudnn-cu12==9.10.2.21"); several for one project
    count together, and one whose environment marker is false on ``machine`` is left out. The result is in
    their order.

    A version that is pinned with ``==`` and in the cache needs no network; ``offline`` takes whatever the
    cache has that fits. ``index_url`` wins over the index of pip's configuration.

    DpackError where a requirement is not one (exit 2), where nothing fits it, and where a download fails.
    """
    source = _Source(
        cache=(cache or store.default_cache()).absolute(),
        machine=machine,
        offline=offline,
        progress=progress,
        pip=functools.cache(lambda: pipconf.read(index_url)),
    )
    return tuple(_chosen(requirement.wants(requirements, machine), source))


def _chosen(wants: Sequence[Want], source: _Source) -> list[Distribution]:
    """One wheel for each want. All of them are found before the first is downloaded."""
    ready = {want.name: _from_cache(want, source) for want in wants}
    missing = [want for want in wants if ready[want.name] is None]
    if missing and source.offline:
        raise _not_cached(missing, source)
    if missing:
        pip = source.pip()
        found = each(lambda want, stop: _find(want, source, pip, stop), missing)
        pairs = list(zip(missing, found, strict=True))
        obtained = each(lambda pair, stop: _obtain(*pair, source, pip, stop), pairs)
        ready.update(zip((want.name for want in missing), obtained, strict=True))
    return [got for want in wants if (got := ready[want.name]) is not None]


def _from_cache(want: Want, source: _Source) -> Distribution | None:
    if not (source.offline or pinned(want.specifier)):
        return None
    present = [one for one in store.entries(source.cache) if one.wheel.name == want.name]
    chosen = best(present, want.specifier, source.machine)
    return chosen.distribution if chosen else None


def _find(want: Want, source: _Source, pip: PipConfig, stop: Event) -> Candidate:
    with connect(pip, stop) as connection:
        found = offers(want.name, want.text, connection)
    chosen = best(found.candidates, want.specifier, source.machine)
    if chosen is None:
        raise _nothing_fits(want, found, source.machine)
    return chosen


def _obtain(want: Want, candidate: Candidate, source: _Source, pip: PipConfig, stop: Event) -> Distribution:
    """The wheel unpacked in the cache; whoever holds its lock does the work, the others find it done."""
    stem, cache = candidate.wheel.stem, source.cache
    with (
        store.storing(cache, candidate.wheel.file, candidate.size or 0),
        store.lock(cache, stem, stop),
        connect(pip, stop) as connection,
    ):
        present = store.entry(cache, stem)
        if present and candidate.sha256 in {None, present.distribution.sha256}:
            return present.distribution
        transfer = Transfer(candidate, want.text, cache, connection, source.progress)
        digest = download(transfer)
        _install(transfer, digest)
        discard(transfer)
        installed = store.entry(cache, stem)
    if installed is None:
        raise DpackError(f"cannot use the cache {cache}", f"{stem} was removed while it was being added")
    return installed.distribution


def _install(transfer: Transfer, digest: str) -> None:
    """Unpack a checked wheel into its place. A wheel that is itself bad is removed, so that nothing stays."""
    wheel, part, cache = transfer.candidate.wheel, transfer.part, transfer.cache
    record = Record(
        file=wheel.file,
        name=wheel.name,
        version=str(wheel.version),
        tag=wheel.platform,
        sha256=digest,
        size=part.stat().st_size,
        yanked=transfer.candidate.yanked,
    )
    beside = store.unpack_path(cache, wheel.stem)
    shutil.rmtree(beside, ignore_errors=True)
    try:
        needed = unpacked_size(part)
        with store.storing(cache, wheel.file, needed):
            store.check_room(cache, part.parent, wheel.file, needed)
            unpack(part, beside, transfer.connection.stop)
            store.commit(cache, record, beside)
    except DamagedWheelError:
        discard(transfer)
        raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _not_cached(missing: Sequence[Want], source: _Source) -> DpackError:
    present = store.entries(source.cache)
    tried: list[str] = []
    for want in missing:
        wheels = [one for one in present if one.wheel.name == want.name]
        tried += [f"{want.name}: nothing in the cache"] if not wheels else []
        tried += [f"{want.name} {line}" for line in _listing(wheels)]
    return DpackError(
        f"cannot fetch {', '.join(want.text for want in missing)} offline",
        f"no wheel for {source.machine} that fits is in {source.cache}",
        tried=tried,
        next="run it once without --offline, or set DPACK_CACHE to a cache that has it",
    )


def _nothing_fits(want: Want, found: Offers, machine: str) -> DpackError:
    what = f"cannot fetch {want.text}"
    if not found.exists:
        return DpackError(
            what, "no index knows this project", tried=found.places, next="check the name and the index"
        )
    if not found.candidates:
        return DpackError(
            what, "the project has no wheels", tried=found.places, next="name a project that has wheels"
        )
    matching = [
        one for one in found.candidates if want.specifier.contains(one.wheel.version, prereleases=True)
    ]
    if not matching:
        why = "no version of it matches; these are there:"
    elif all(one.yanked for one in matching):
        why = "the versions that match are withdrawn (yanked); pin one with == to take it all the same:"
    elif any(one.wheel.floor(machine) and one.wheel.any_python for one in matching):
        why = "only pre-releases match; pin one with == to take it:"
    else:
        why = f"no wheel of a matching version is for {machine}; these are there:"
    return DpackError(
        what, why, tried=_listing(matching or found.candidates), next="name a version from this list"
    )


def _listing(options: Sequence[Option]) -> list[str]:
    """The newest versions of some wheels, each with its platforms, a line each."""
    platforms: dict[str, list[str]] = {}
    for option in sorted(options, key=lambda one: one.wheel.version, reverse=True):
        note = " (yanked)" if option.yanked else "" if option.wheel.any_python else " (for one Python only)"
        platforms.setdefault(str(option.wheel.version), []).append(f"{option.wheel.platform}{note}")
    lines = [
        f"{version}: {', '.join(sorted(set(tags)))}" for version, tags in list(platforms.items())[:_SHOWN]
    ]
    if len(platforms) > _SHOWN:
        lines.append(f"and {len(platforms) - _SHOWN} older versions")
    return lines
