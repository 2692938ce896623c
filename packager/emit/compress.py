"""Compressors whose output depends on their input and level alone, not on the number of cores.

The number of threads says how many blocks are compressed at once; where blocks begin is fixed.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Protocol, cast

from packager.emit.format import Format

Write = Callable[[bytes | memoryview], int]
"""Takes bytes and returns how many, like a file's write."""

_MOST_THREADS = 12
"""With more, zstd's buffers (about 10 MB a thread at level 3) pass what dpack promises to stay under."""

_JOB = 4 << 20
"""Bytes of a block that zstd compresses on its own."""

_OVERLAP = 6
"""zstd's overlapLog: each block begins with 1/8 of a window from the block before it."""

_TUNED = {3: {"hash_log": 18, "chain_log": 15, "min_match": 6}}
"""Level 3 with matches of 6 bytes and more, in tables of 1 MiB and 128 KiB. Measured on the 1.74 GB of a
convolution network's bundle with zstd 1.5.7: 0.7% more bytes than plain level 3 in about 9/10 of its time,
which pays for most of the hashing. Smaller tables go on so: 1.5% more bytes in 8/10 of the time."""

_DICTIONARY = 32 << 10
"""How far back deflate can refer (RFC 1951, section 2)."""


class Compressor(Protocol):
    """Compresses what is written to it; close ends the stream and gives its threads back."""

    def write(self, part: memoryview) -> None:
        """Take the next bytes."""

    def close(self) -> None:
        """End the stream."""

    def abandon(self) -> None:
        """Give up: stop the threads, write nothing more."""


def compressor(format: Format, write: Write, level: int, threads: int | None = None) -> Compressor:  # noqa: A002 - the noun
    """The compressor of a format, in front of ``write``.

    Unless told otherwise it has one thread more than cores: zstd gives a thread its next block only when it
    is called, so a core would wait while the caller writes.
    """
    count = max(1, min(threads or len(os.sched_getaffinity(0)) + 1, _MOST_THREADS))
    if format is Format.TAR_ZST:
        return _Zstd(write, level, count)
    if format is Format.TAR_GZ:
        return _Gzip(write, level, count)
    return _Plain(write)


class _Plain:
    """No compression."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def write(self, part: memoryview) -> None:
        self._write(part)

    def close(self) -> None:
        """Nothing to end."""

    def abandon(self) -> None:
        """Nothing to stop."""


class _Output:
    """The one method that zstandard's writer calls."""

    def __init__(self, write: Write) -> None:
        self.write = write


class _Zstd:
    """One zstd frame with a checksum.

    Never zero workers: zstd then compresses without blocks, and to other bytes than with one or more.
    """

    def __init__(self, write: Write, level: int, threads: int) -> None:
        import zstandard  # noqa: PLC0415 - slow to import, and only this format needs it

        self._end = zstandard.FLUSH_FRAME
        parameters = zstandard.ZstdCompressionParameters.from_level(
            level,
            threads=threads,
            job_size=_JOB,
            overlap_log=_OVERLAP,
            write_checksum=True,
            **_TUNED.get(level, {}),
        )
        self._writer = zstandard.ZstdCompressor(compression_params=parameters).stream_writer(
            cast("IO[bytes]", _Output(write)), write_size=1 << 20, closefd=False
        )

    def write(self, part: memoryview) -> None:
        self._writer.write(part)

    def close(self) -> None:
        self._writer.flush(self._end)

    def abandon(self) -> None:
        """Nothing to stop: zstd ends its threads with the writer."""


class _Gzip:
    """One gzip member (RFC 1952) with no name and no time, its blocks compressed in parallel as pigz does.

    Each block of 1 MiB has the 32 KiB before it as dictionary and ends on a byte (Z_SYNC_FLUSH), so the
    blocks joined are one deflate stream; an empty last block ends it.
    """

    _BLOCK = 1 << 20
    _HEADER = b"\x1f\x8b\x08" + bytes(6) + b"\xff"
    _LAST_BLOCK = b"\x03\x00"

    def __init__(self, write: Write, level: int, threads: int) -> None:
        self._write, self._level, self._ahead = write, level, 2 * threads
        self._pool = ThreadPoolExecutor(threads, "dpack-gzip")
        self._blocks: deque[Future[bytes]] = deque()
        self._rest, self._dictionary = bytearray(), b""
        self._crc = self._size = 0
        write(self._HEADER)

    def write(self, part: memoryview) -> None:
        self._crc = zlib.crc32(part, self._crc)
        self._size += len(part)
        while len(part):
            taken = min(self._BLOCK - len(self._rest), len(part))
            self._rest += part[:taken]
            part = part[taken:]
            if len(self._rest) == self._BLOCK:
                self._start_block()

    def close(self) -> None:
        if self._rest:
            self._start_block()
        self._end_blocks(0)
        self._pool.shutdown()
        self._write(self._LAST_BLOCK + struct.pack("<LL", self._crc, self._size & 0xFFFFFFFF))

    def abandon(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_block(self) -> None:
        block = bytes(self._rest)
        self._rest.clear()
        self._blocks.append(self._pool.submit(_deflate, block, self._dictionary, self._level))
        self._dictionary = block[-_DICTIONARY:]
        self._end_blocks(self._ahead)

    def _end_blocks(self, remaining: int) -> None:
        while len(self._blocks) > remaining:
            self._write(self._blocks.popleft().result())


def _deflate(block: bytes, dictionary: bytes, level: int) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=dictionary)
    return stream.compress(block) + stream.flush(zlib.Z_SYNC_FLUSH)
