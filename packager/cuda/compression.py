"""LZ4 blocks and zstd frames: their length without decompressing, their first bytes, their content.

Frame and block headers of zstd are those of RFC 8878, section 3.1.1.
"""

from __future__ import annotations

from typing import NamedTuple

from packager.cuda.fatbin import Read

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"

_BLOCK_LIMIT = 128 << 10  # RFC 8878, 3.1.1.2.4: Block_Maximum_Size
_HEADER_LIMIT = 18
_AHEAD = 1 << 15  # a few blocks, as they are in cuBLASLt


class Frame(NamedTuple):
    """A zstd frame: its length, that of its content (0 where it does not say it), and where its first block ends,
    counted from the start of the frame.
    """

    size: int
    content: int
    first: int


def zstd_frame(read: Read, offset: int, end: int) -> Frame | None:
    """The zstd frame at ``offset`` that ends by ``end``; None without one. Only block headers are read."""
    header = _frame_header(read(offset, _HEADER_LIMIT))
    if header is None:
        return None
    length, content, checksum = header
    at, start, ahead, first = offset + length, 0, b"", 0
    while at + 3 <= end:
        if at + 3 > start + len(ahead):
            start, ahead = at, read(at, min(_AHEAD, end - at))
        block = int.from_bytes(ahead[at - start : at - start + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        if kind == 3 or size > _BLOCK_LIMIT:
            return None
        at += 3 + (1 if kind == 1 else size)
        first = first or at - offset
        if last:
            at += 4 * checksum
            return Frame(at - offset, content, first) if at <= end else None
    return None


def _frame_header(head: bytes) -> tuple[int, int, bool] | None:
    """Length of the frame header, of the content (0: unknown), and whether a checksum follows the blocks."""
    if len(head) < 6 or not head.startswith(ZSTD_MAGIC) or head[4] & 0x08:
        return None
    descriptor = head[4]
    single, code = bool(descriptor & 0x20), descriptor >> 6
    at = 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single else 0, 2, 4, 8)[code]
    content = int.from_bytes(head[at : at + width], "little") + (256 if width == 2 else 0)
    return at + width, content, bool(descriptor & 0x04)


def zstd_head(frame: bytes, size: int) -> bytes:
    """The first ``size`` bytes of what the frame holds, fewer where it is damaged; ``frame`` may be cut short."""
    import zstandard  # noqa: PLC0415 - only where a frame is read

    with zstandard.ZstdDecompressor().stream_reader(frame) as reader:
        try:
            return reader.read(size)
        except zstandard.ZstdError:
            return b""


def decompressed(stored: bytes, compression: str, size: int) -> bytes:
    """The ``size`` bytes that ``stored`` holds, nothing where it is damaged or compressed in an unknown way."""
    if not compression:
        return stored
    if compression == "zstd":
        return zstd_head(stored, size)
    if compression == "lz4":
        return _lz4(stored, size)
    return b""


def _lz4(block: bytes, size: int) -> bytes:
    import lz4.block  # noqa: PLC0415 - only where a block is read

    try:
        content: bytes = lz4.block.decompress(block, uncompressed_size=size)
    except (lz4.block.LZ4BlockError, ValueError, OverflowError, MemoryError):
        return b""
    return content
