"""Names of shared objects that stand as strings in a file: evidence of what it may open with dlopen.

The read-only sections (.rodata, .lrodata) are read piece by piece, about 1 GB/s, so that cuBLASLt's 58 MB of
them cost 60 ms and no memory. A file without section headers is searched in its read-only segments.
"""

from __future__ import annotations

import re
import struct

from packager.resolve.elf import PT_LOAD, ElfError, ElfFile

_PIECE = 1 << 20
_LONGEST = 256
_NAME = re.compile(rb"(?:/?(?:[\w.+-]+/)+)?[\w+-][\w.+-]*\.so(?:\.[\w.%]+)?")
_SUFFIX = re.compile(rb"\.so")
_READ_ONLY = {b".rodata", b".lrodata"}
_WRITABLE, _EXECUTABLE = 2, 1


def library_names(file: ElfFile) -> tuple[str, ...]:
    """The sorted names in ``file`` that look like shared objects: "libcuda.so.1", "libnvrtc.so.%d"."""
    found: set[bytes] = set()
    for offset, size in _read_only(file):
        _collect(file, offset, size, found)
    return tuple(sorted(name.decode("ascii") for name in found if _NAME.fullmatch(name)))


def _collect(file: ElfFile, offset: int, size: int, found: set[bytes]) -> None:
    """Add each string that holds ".so". Pieces overlap by the longest name, so that none is cut in two."""
    piece = bytearray(_PIECE)
    at = 0
    while at < size:
        read = file.read_into(memoryview(piece)[: min(_PIECE, size - at)], offset + at)
        for match in _SUFFIX.finditer(piece, 0, read):
            hit = match.start()
            start = piece.rfind(b"\0", max(0, hit - _LONGEST), hit) + 1
            end = piece.find(b"\0", hit, min(read, hit + _LONGEST))
            # What begins with the section has no zero byte before it.
            if end >= 0 and (start or (at == 0 and hit < _LONGEST)):
                found.add(bytes(piece[start:end]))
        if read <= 2 * _LONGEST or at + read >= size:
            return
        at += read - 2 * _LONGEST


def _read_only(file: ElfFile) -> list[tuple[int, int]]:
    try:
        sections = _sections(file)
    except ElfError:
        sections = []
    if sections:
        return sections
    return [
        (s.offset, s.size)
        for s in file.segments
        if s.type == PT_LOAD and not s.flags & (_WRITABLE | _EXECUTABLE) and s.offset + s.size <= file.size
    ]


def _sections(file: ElfFile) -> list[tuple[int, int]]:
    head = file.read_at(0, 64)
    (table,) = struct.unpack_from("<Q", head, 40)
    entry, count, names = struct.unpack_from("<HHH", head, 58)
    if entry != 64 or not count or names >= count:
        return []
    rows = list(struct.iter_unpack("<IIQQQQIIQQ", file.read_at(table, 64 * count)))
    text = file.read_at(rows[names][4], min(rows[names][5], 1 << 20))
    return [
        (row[4], row[5])
        for row in rows
        if text[row[0] : text.find(b"\0", row[0])] in _READ_ONLY and row[4] + row[5] <= file.size
    ]
