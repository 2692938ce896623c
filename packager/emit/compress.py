"""Compressors whose output depends on their input and level alone, not on the number of cores.

The number of threads says how many blocks are compressed at once; where blocks begin is fixed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import IO, Protocol, cast

from packager.emit.format import Format

Write = Callable[[bytes | bytearray | memoryview], int]
"""Takes bytes and returns how many, like a file's write."""

_MOST_THREADS = 8
"""With more, zstd's buffers (about 20 MB a thread at level 3) pass what dpack promises to stay under."""

_JOB = 8 << 20
"""Bytes of a block that zstd compresses on its own."""

_OVERLAP = 6
"""zstd's overlapLog: each block begins with 1/8 of a window from the block before it."""

_TUNED = {3: {"hash_log": 17, "chain_log": 14, "min_match": 6}}
"""Level 3 with matches of 6 bytes and more, in tables of 512 and 64 KiB, which fit into a core's own cache.
Measured on cuBLASLt 12.9 and cuDNN 9.10's precompiled engines with zstd 1.5.7: 1.6% more bytes than plain level 3
in 3/4 of its CPU time, which pays for the hashing of everything that goes in and out. A higher --level is the way
to fewer bytes."""


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
    """gzip members (RFC 1952) of 1 MiB each, without name and time, compressed in parallel.

    RFC 1952, section 2.2, makes members in a row one file, and every reader of layers takes them so: Go's
    compress/gzip, zlib, pigz, busybox. libdeflate compresses whole buffers only, which is why each block is
    a member; on 126 MB of libcudnn_ops and libcublasLt its level 6 gave as few bytes as zlib's (44.3%) at
    four times the speed, and more speed at more bytes with level 1 (45.4%, twice as fast again).
    Its bytes are the same on every CPU; ISA-L, which is faster still, has others with other vector units.
    """

    _BLOCK = 1 << 20

    def __init__(self, write: Write, level: int, threads: int) -> None:
        import deflate  # noqa: PLC0415 - only this format needs it

        self._deflate = deflate.gzip_compress
        self._write, self._level, self._ahead = write, level, 2 * threads
        self._pool = ThreadPoolExecutor(threads, "dpack-gzip")
        self._blocks: deque[Future[bytearray]] = deque()
        self._rest = bytearray()

    def write(self, part: memoryview) -> None:
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

    def abandon(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_block(self) -> None:
        block, self._rest = self._rest, bytearray()
        self._blocks.append(self._pool.submit(self._deflate, block, self._level))
        self._end_blocks(self._ahead)

    def _end_blocks(self, remaining: int) -> None:
        while len(self._blocks) > remaining:
            self._write(self._blocks.popleft().result())
