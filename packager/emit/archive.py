"""A deterministic tar: the same items give the same bytes on every machine."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from packager.emit.compress import Write, compressor
from packager.emit.format import Format
from packager.emit.item import Entry, Item, check_path, directories
from packager.emit.pipeline import Pipeline, Sink, opened, write_all

Last = Callable[[tuple[Entry, ...]], Item]
"""Makes the last item, the manifest, from the entries of all the others."""

_STRIDE = 64 << 20
"""Bytes after which the disk is asked to begin, so that little is left to wait for at the end."""


@dataclass(frozen=True, slots=True)
class Archive:
    """What was written: the size of the archive in bytes, its sha256, and the entries in their order.

    ``tar_sha256``  of the tar before it was compressed, where the form asks for it, else "".
    """

    size: int
    sha256: str
    entries: tuple[Entry, ...]
    tar_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """How an archive is written: top directory ("" for none), time in seconds, format, level, threads.

    ``hash_tar``  whether the tar is hashed before it is compressed, too.
    """

    top: str
    epoch: int
    format: Format
    level: int
    threads: int | None = None
    hash_tar: bool = False


def write_archive(
    output: Path, items: Sequence[Item], last: Last, form: Form, progress: Callable[[int], None] | None
) -> Archive:
    """Write a new file: the items in the order given, directories before what they hold, then the last one.

    The file is fsynced. It is left to the caller when anything raises.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    with os.fdopen(os.open(output, flags, 0o666), "wb", buffering=0) as file:
        return write_stream(file.fileno(), items, last, form, progress)


def write_stream(
    descriptor: int,
    items: Sequence[Item],
    last: Last | None,
    form: Form,
    progress: Callable[[int], None] | None,
) -> Archive:
    """Write an archive as :func:`write_archive` does, at the position of an open file, and fsync that.

    Without ``last`` the archive ends after the items.
    """
    with _Hashed(descriptor) as hashed, _Front(form, hashed.write) as front:
        entries = _write_members(front.write, items, last, form, progress)
        front.close()
        hashed.sync()
        return Archive(hashed.size, hashed.sha256, entries, front.sha256)


def _write_members(
    write: Sink,
    items: Sequence[Item],
    last: Last | None,
    form: Form,
    progress: Callable[[int], None] | None,
) -> tuple[Entry, ...]:
    members = _Members(write, form, progress)
    with members.pipeline:
        for item in items:
            members.add(item)
        if last is not None:
            final = last(tuple(members.entries))
            check_path(final.path, [item.path for item in items])
            members.add(final)
        members.end()
    return tuple(members.entries)


class _Front:
    """The compressor, and a hash of what goes into it where one is asked for, on a thread of its own."""

    def __init__(self, form: Form, write: Write) -> None:
        self._stream = compressor(form.format, write, form.level, form.threads)
        self._digest = hashlib.sha256() if form.hash_tar else None
        self._hashing = ThreadPoolExecutor(1, "dpack-hash-tar")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hashing.shutdown(wait=True, cancel_futures=True)
        self._stream.abandon()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest() if self._digest else ""

    def write(self, part: memoryview) -> None:
        if self._digest is None:
            self._stream.write(part)
            return
        hashed = self._hashing.submit(self._digest.update, part)
        self._stream.write(part)
        hashed.result()

    def close(self) -> None:
        self._stream.close()


class _Members:
    """Puts members into the stream.

    GNU's format, not pax: it needs no second header before a name of 100 bytes or a file of 8 GiB, and
    busybox, which skips pax headers, reads its long names too.
    """

    def __init__(self, write: Sink, form: Form, progress: Callable[[int], None] | None) -> None:
        self.pipeline = Pipeline(progress)
        self.entries: list[Entry] = []
        self._write = write
        self._form = form
        self._size = 0
        self._made: set[str] = set()

    def add(self, item: Item) -> None:
        """Add a file or a link, after the directories that it is the first to stand in."""
        name = f"{self._form.top}/{item.path}" if self._form.top else item.path
        for directory in directories([name]):
            if directory not in self._made:
                self._made.add(directory)
                self._send(self._header(directory, 0o755, tarfile.DIRTYPE))
        with opened(item.source) as source:
            if stat.S_ISDIR(item.mode):
                self._made.add(name)
                self._send(self._header(name, stat.S_IMODE(item.mode), tarfile.DIRTYPE))
            elif item.link:
                self._send(self._header(name, 0o777, tarfile.SYMTYPE, link=item.link))
            else:
                self._send(self._header(name, item.mode, tarfile.REGTYPE, size=source.size))
            self.entries.append(self.pipeline.copy(item, source, self._write))
        self._size += source.size
        self._pad(tarfile.BLOCKSIZE)

    def end(self) -> None:
        self._send(bytes(2 * tarfile.BLOCKSIZE))
        self._pad(tarfile.RECORDSIZE)
        self.pipeline.drain()

    def _send(self, block: bytes) -> None:
        self.pipeline.send(block, self._write)
        self._size += len(block)

    def _pad(self, unit: int) -> None:
        self._send(bytes(-self._size % unit))

    def _header(self, name: str, mode: int, kind: bytes, *, size: int = 0, link: str = "") -> bytes:
        return header(name, mode, self._form.epoch, kind=kind, size=size, link=link)


def header(  # noqa: PLR0913 - the fields of a tar header, most with a usual value
    name: str, mode: int, epoch: int, *, kind: bytes = tarfile.REGTYPE, size: int = 0, link: str = ""
) -> bytes:
    """The block or blocks before a member's bytes, in GNU's format, owned by root."""
    member = tarfile.TarInfo(name)
    member.mode, member.mtime, member.type, member.size, member.linkname = mode, epoch, kind, size, link
    return member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


class _Hashed:
    """A file that is hashed, and sent on to the disk, on threads of its own while it is written."""

    def __init__(self, descriptor: int) -> None:
        self.size = 0
        self._descriptor = descriptor
        self._digest = hashlib.sha256()
        self._hashing = ThreadPoolExecutor(1, "dpack-hash-archive")
        self._syncing = ThreadPoolExecutor(1, "dpack-sync")
        self._synced = 0
        self._sync: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in (self._hashing, self._syncing):
            pool.shutdown(wait=True, cancel_futures=True)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def write(self, part: bytes | bytearray | memoryview) -> int:
        hashed = self._hashing.submit(self._digest.update, part)
        write_all(self._descriptor, memoryview(part))
        hashed.result()
        self.size += len(part)
        if self.size - self._synced >= _STRIDE and (self._sync is None or self._sync.done()):
            self._wait()
            self._synced = self.size
            self._sync = self._syncing.submit(os.fdatasync, self._descriptor)
        return len(part)

    def sync(self) -> None:
        """Wait until the disk has everything."""
        self._wait()
        os.fsync(self._descriptor)

    def _wait(self) -> None:
        """The kernel tells an error of the disk to one fsync only, so none may go unasked."""
        if self._sync is not None:
            self._sync.result()
