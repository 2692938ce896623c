"""A bundle as a directory, with exact modes and times."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from packager.emit.archive import Last
from packager.emit.item import Entry, Item, check_path, directories
from packager.emit.pipeline import Pipeline, opened, write_all


def write_directory(
    output: Path, items: Sequence[Item], last: Last, epoch: int, progress: Callable[[int], None] | None
) -> tuple[Entry, ...]:
    """Write a new directory, fsync its files, and return the entries, the last one at the end.

    The directory is left to the caller when anything raises.
    """
    output.mkdir(mode=0o700)
    entries: list[Entry] = []
    with Pipeline(progress) as pipeline:
        for item in items:
            entries.append(_write_file(output, item, epoch, pipeline))  # noqa: PERF401 - last() needs those so far
        final = last(tuple(entries))
        check_path(final.path, [item.path for item in items])
        entries.append(_write_file(output, final, epoch, pipeline))
    inside = [output / directory for directory in directories(entry.path for entry in entries)]
    for directory in (*reversed(inside), output):
        _finish_directory(directory, epoch)
    return tuple(entries)


def _write_file(output: Path, item: Item, epoch: int, pipeline: Pipeline) -> Entry:
    path = output / item.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if item.link:
        path.symlink_to(item.link)
        os.utime(path, (epoch, epoch), follow_symlinks=False)
        return Entry(item.path, item.mode, 0, hashlib.sha256().hexdigest(), item.link)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with opened(item.source) as source, os.fdopen(os.open(path, flags, 0o600), "wb", buffering=0) as file:
        descriptor = file.fileno()
        entry = pipeline.copy(item, source, lambda part: write_all(descriptor, part))
        pipeline.drain()
        os.fchmod(descriptor, item.mode)
        os.utime(descriptor, (epoch, epoch))
        os.fsync(descriptor)
    return entry


def _finish_directory(path: Path, epoch: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o755)
        os.utime(descriptor, (epoch, epoch))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
