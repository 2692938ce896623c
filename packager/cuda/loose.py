"""Cubins outside every container: an ELF file for the GPU, stored as it is or as one zstd frame.

cuBLASLt 12.9 holds 405 of them in .ldata and .data, that of CUDA 13 508 in .data, and ONNX Runtime's CUDA provider
114 in .rodata (1.31). They are reached by pointer and size; nothing in the file says who asks for them.
"""

from __future__ import annotations

import struct

from packager.arch import Arch, Kind
from packager.cuda.code import Loose, Section
from packager.cuda.compression import ZSTD_MAGIC, zstd_frame, zstd_head
from packager.cuda.fatbin import Read

ELF_MAGIC = b"\x7fELF\x02\x01"
EM_CUDA = 190

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHT_NOBITS = 8
_HEAD = 256 << 10  # two blocks of zstd at their longest


def loose_at(read: Read, section: Section, offset: int) -> Loose | None:
    """The cubin at ``offset`` of the file, inside ``section``; None where there is none."""
    end = section.offset + section.size
    found = _frame(read, offset, end) if read(offset, 4) == ZSTD_MAGIC else _image(read, offset, end)
    if found is None:
        return None
    size, arch, compression, content = found
    address = section.address + offset - section.offset
    return Loose(section.name, offset, address, size, Kind.CUBIN, arch, compression, content)


def _frame(read: Read, offset: int, end: int) -> tuple[int, Arch, str, int] | None:
    frame = zstd_frame(read, offset, end)
    if frame is None:
        return None
    for size in (frame.first, min(frame.size, _HEAD)):  # the first block may hold less than a header
        head = zstd_head(read(offset, size), _HEADER.size)
        if len(head) == _HEADER.size:
            break
    arch = cubin_arch(head)
    return None if arch is None else (frame.size, arch, "zstd", frame.content)


def _image(read: Read, offset: int, end: int) -> tuple[int, Arch, str, int] | None:
    head = read(offset, _HEADER.size)
    arch = cubin_arch(head)
    if arch is None:
        return None
    size = _length(read, offset, head)
    return (size, arch, "", size) if size and offset + size <= end else None


def cubin_arch(head: bytes) -> Arch | None:
    """The architecture of the cubin that begins with ``head`` (64 bytes or more); None for anything else.

    ABI version 7 (CUDA 11 and 12 up to sm_90): the SM in bits 0 to 7 of e_flags, 0x800 for the suffix a. ABI
    version 8 (sm_100 and later, and all of CUDA 13): bits 8 to 15, 0x8 for a, which CUDA 13 leaves out; f stands
    nowhere. What says no suffix may thus have one. Seen on 17 000 cubins whose container says the same.
    """
    if len(head) < _HEADER.size or not head.startswith(ELF_MAGIC):
        return None
    ident, _, machine, *_ = row = _HEADER.unpack_from(head)
    if machine != EM_CUDA:
        return None
    flags, version = row[7], ident[8]
    number, specific = (flags >> 8 & 0xFF, flags & 0x8) if version >= 8 else (flags & 0xFF, flags & 0x800)
    return Arch.of(number, "a" if specific else "") if number >= 10 else None


def _length(read: Read, offset: int, head: bytes) -> int:
    """Where the ELF file ends: behind its tables and the last section with content; 0 where that can't be read."""
    (_, _, _, _, _, programs, sections, _, _, program_size, program_count, size, count, _) = _HEADER.unpack(
        head
    )
    table = read(offset + sections, size * count) if sections and size == _SECTION.size else b""
    if not count or len(table) < size * count:
        return 0
    ends: list[int] = [row[4] + row[5] for row in _SECTION.iter_unpack(table) if row[1] != _SHT_NOBITS]
    own: int = max(programs + program_size * program_count, sections + size * count)
    return max(own, *ends)
