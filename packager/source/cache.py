"""The cache: wheels unpacked once and kept, each with a small record beside it.

    <cache>/wheels/nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64/        the files
    <cache>/wheels/nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.json    the record
    <cache>/downloads/….whl.part                                                      under way
    <cache>/locks/….lock                                                              who works on it

The record is written last: without it a directory does not count, whatever interrupted its making.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event

from packager.errors import DpackError
from packager.source.parallel import check
from packager.source.wheelname import WheelName, parse

_SCHEMA = 1
_LOCK_POLL = 0.1


@dataclass(frozen=True, slots=True)
class Distribution:
    """One unpacked wheel in the cache.

    ``name`` is normalised ("nvidia-cudnn-cu12"), ``tag`` the platform tag of the file name, ``sha256``
    the hex digest of the wheel file as the index stated it, ``size`` the wheel's bytes, ``root`` the
    directory that holds ``nvidia/…`` and ``*.dist-info``.
    """

    name: str
    version: str
    tag: str
    sha256: str
    root: Path
    size: int


@dataclass(frozen=True, slots=True)
class Record:
    """What is written beside an unpacked wheel; no address in it, so caches can be copied."""

    file: str
    name: str
    version: str
    tag: str
    sha256: str
    size: int
    yanked: bool


@dataclass(frozen=True, slots=True)
class Cached:
    """A wheel in the cache, as something to choose among."""

    wheel: WheelName
    yanked: bool
    distribution: Distribution


def default_cache() -> Path:
    """DPACK_CACHE where it is set, else the user's cache directory (XDG_CACHE_HOME or ~/.cache)."""
    if chosen := os.environ.get("DPACK_CACHE"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_cache_path  # noqa: PLC0415 - start-up time

    return user_cache_path("dpack")


def entries(cache: Path) -> tuple[Cached, ...]:
    """Every complete wheel in the cache, by name, version and file name."""
    found = [entry(cache, path.stem) for path in _wheels(cache).glob("*.json")]
    kept = [one for one in found if one is not None]
    return tuple(sorted(kept, key=lambda one: (one.wheel.name, one.wheel.version, one.wheel.file)))


def entry(cache: Path, stem: str) -> Cached | None:
    """The wheel of that file name (without ``.whl``), None where it is not in the cache whole."""
    root = _wheels(cache) / stem
    try:
        fields = json.loads(record_path(cache, stem).read_bytes())
        if fields.pop("schema") != _SCHEMA:
            return None
        record = Record(**fields)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    wheel = parse(record.file)
    if wheel is None or not root.is_dir():
        return None
    distribution = Distribution(
        record.name, record.version, record.tag, record.sha256, root.absolute(), record.size
    )
    return Cached(wheel, record.yanked, distribution)


def commit(cache: Path, record: Record, unpacked: Path) -> None:
    """Put an unpacked wheel in its place, then its record; call with the lock held.

    What stood there before (a half-made directory, or a file of the same name with another hash) goes.
    """
    stem = record.file.removesuffix(".whl")
    root, note = _wheels(cache) / stem, record_path(cache, stem)
    note.unlink(missing_ok=True)
    if root.exists():
        shutil.rmtree(root)
    unpacked.rename(root)
    sync_directory(root.parent)
    beside = note.with_name(f".{note.name}")
    with beside.open("w", encoding="utf-8") as file:
        json.dump({"schema": _SCHEMA, **asdict(record)}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    beside.rename(note)
    sync_directory(root.parent)


def record_path(cache: Path, stem: str) -> Path:
    """Where the record of a wheel is."""
    return _wheels(cache) / f"{stem}.json"


def unpack_path(cache: Path, stem: str) -> Path:
    """Where a wheel is unpacked before it is renamed into place."""
    return _wheels(cache) / f".{stem}.unpack"


def part_path(cache: Path, file: str) -> Path:
    """Where a wheel file is while it is downloaded, and until it is unpacked."""
    return cache / "downloads" / f"{file}.part"


@contextmanager
def lock(cache: Path, stem: str, stop: Event) -> Iterator[None]:
    """Hold a wheel's lock, between processes and threads; wait for it, and end the wait when called off.

    The kernel lets go of it when its process ends, however it ends.
    """
    path = cache / "locks" / f"{stem}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                stop.wait(_LOCK_POLL)
                check(stop)
            else:
                break
        yield


@contextmanager
def storing(cache: Path, file: str, needed: int) -> Iterator[None]:
    """Turn the disk's errors into DpackError; ``needed`` is the bytes that ``file`` takes in the cache."""
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise _full(cache, file, needed) from None
        if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOLCK, errno.EEXIST}:
            raise DpackError(
                f"cannot use the cache {cache}",
                f"{error.filename or file}: {error.strerror}",
                next="set DPACK_CACHE to a directory that you can write to",
            ) from None
        raise


def check_room(cache: Path, directory: Path, file: str, needed: int) -> None:
    """DpackError before the first byte, where the file system has less than ``needed`` bytes left."""
    if needed > shutil.disk_usage(directory).free:
        raise _full(cache, file, needed)


def sync_directory(directory: Path) -> None:
    """Make the names in a directory survive a crash (fsync(2): a file's own fsync does not)."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _wheels(cache: Path) -> Path:
    return cache / "wheels"


def _full(cache: Path, file: str, needed: int) -> DpackError:
    return DpackError(
        f"cannot store {file}",
        f"no space left in {cache}: {needed:,} bytes are needed",
        next="free some space, or set DPACK_CACHE to a directory that has it",
    )
