"""Compressed streams, read as what they hold: the layers of base images, and archives compressed as a whole."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import BinaryIO, cast

GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class DamagedError(OSError):
    """A stream that is not what its first bytes promise."""


BROKEN = (DamagedError, gzip.BadGzipFile, zlib.error, EOFError)
"""What reading a damaged stream raises; other OSErrors are the disk's."""


def expanded(file: BinaryIO, magic: bytes) -> io.BufferedIOBase | None:
    """What the gzip or zstd stream ``file`` holds, told by its first four bytes; None where it is neither.

    Reading raises one of :data:`BROKEN` where the stream is damaged.
    """
    if magic.startswith(GZIP_MAGIC):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if magic.startswith(ZSTD_MAGIC):
        return io.BufferedReader(cast("io.RawIOBase", _Zstd(file)), 1 << 18)
    return None


class _Zstd(io.RawIOBase):
    """The frames of a zstd stream, one after the other."""

    def __init__(self, file: BinaryIO) -> None:
        import zstandard  # noqa: PLC0415 - slow to import, and only this format needs it

        self._broken = zstandard.ZstdError
        self._reader = zstandard.ZstdDecompressor().stream_reader(
            file, read_across_frames=True, closefd=False
        )

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # what BufferedReader passes
        """Fill ``buffer``; 0 at the end."""
        try:
            return self._reader.readinto(memoryview(buffer))
        except self._broken as error:
            raise DamagedError(str(error)) from None
