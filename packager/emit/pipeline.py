"""Reads files through a few buffers; each buffer is hashed and written at the same time."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from packager.emit.item import Entry, Item, Source
from packager.errors import DpackError

BUFFER = 4 << 20
"""Bytes of one buffer: large enough that a thread's wake-up costs nothing beside it."""

_BUFFERS = 4
"""One that is read, one that is hashed, one that is written, and one in between."""

Sink = Callable[[memoryview], None]
"""Takes the next bytes; the buffer is used again after the call."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A source that is open for reading: its stream, its size in bytes, and where it lies (None: memory)."""

    stream: io.FileIO | io.BytesIO
    size: int
    path: Path | None
    changed: int = 0

    def check(self) -> None:
        """Raise DpackError when the file on disk is no longer what it was when it was opened."""
        if self.path is None:
            return
        now = os.fstat(self.stream.fileno())
        if (now.st_size, now.st_mtime_ns) != (self.size, self.changed):
            raise DpackError(
                f"cannot read {self.path}",
                f"it changed while it was read ({self.size:,} bytes before, {now.st_size:,} bytes now)",
                next="wait until whatever writes the file is done, then run dpack again",
            )


@contextmanager
def opened(source: Source) -> Iterator[Opened]:
    """Open a source, once it is made. Raises DpackError, naming the file, when it cannot be opened or read."""
    if isinstance(source, bytes):
        yield Opened(io.BytesIO(source), len(source), None)
        return
    if not isinstance(source, Path):
        source = source()
    with reading(source):
        stream = io.FileIO(source)
    with stream:
        status = os.fstat(stream.fileno())
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        yield Opened(stream, status.st_size, source, status.st_mtime_ns)


@contextmanager
def reading(path: Path | None) -> Iterator[None]:
    """Turn an OSError into a DpackError about the source, so that those that remain are about the output."""
    try:
        yield
    except OSError as error:
        raise DpackError(f"cannot read {path}", error.strerror or str(error)) from error


@dataclass(slots=True)
class _Slot:
    """A buffer and the work that still uses it."""

    view: memoryview = field(default_factory=lambda: memoryview(bytearray(BUFFER)))
    work: tuple[Future[None], ...] = ()

    def free(self) -> memoryview:
        """The buffer, once nothing uses it; raises what that work raised."""
        for future in self.work:
            future.result()
        self.work = ()
        return self.view


class Pipeline:
    """Reads on the calling thread, hashes on a second, and calls sinks, in order, on a third.

    A sink's exception comes out of a later call, of :meth:`drain` at the latest.
    """

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self._progress = progress or (lambda _count: None)
        self._hashing = ThreadPoolExecutor(1, "dpack-hash")
        self._writing = ThreadPoolExecutor(1, "dpack-write")
        self._slots = [_Slot() for _ in range(_BUFFERS)]
        self._turn = itertools.cycle(self._slots)
        self._sent: list[Future[None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in (self._hashing, self._writing):
            pool.shutdown(wait=True, cancel_futures=True)

    def send(self, data: bytes, sink: Sink) -> None:
        """Put a few bytes, a header or a padding, in line for the sink."""
        if data:
            self._sent.append(self._writing.submit(sink, memoryview(data)))

    def copy(self, item: Item, source: Opened, sink: Sink) -> Entry:
        """Read the item's source to its end, into the sink.

        Raises DpackError when the source cannot be read, or changes meanwhile.
        """
        digest = hashlib.sha256()
        hashed: list[Future[None]] = []
        left = source.size
        while left:
            slot = next(self._turn)
            view = slot.free()
            with reading(source.path):
                count = source.stream.readinto(view[: min(BUFFER, left)])
            if not count:
                break
            part = view[:count]
            hashed = [self._hashing.submit(digest.update, part)]
            slot.work = (*hashed, self._writing.submit(sink, part))
            left -= count
            self._progress(count)
        source.check()
        wait(hashed)
        return Entry(item.path, item.mode, source.size, digest.hexdigest(), item.link)

    def drain(self) -> None:
        """Wait until the sinks have taken everything; raises what they raised."""
        for future in self._sent:
            future.result()
        self._sent.clear()
        for slot in self._slots:
            slot.free()


def write_all(descriptor: int, part: memoryview) -> None:
    """Write every byte; a single write may take fewer."""
    while part:
        part = part[os.write(descriptor, part) :]
