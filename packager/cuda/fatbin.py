"""One fatbin container: a header of 16 bytes, then members without gaps, each a header and a payload.

Nobody outside NVIDIA has a specification. The layout is what three independent readers agree on (ZLUDA's
dark_api, cricket's cpu-elf2, jiegec/fatbinary) and what some 90 000 members of NVIDIA's libraries for CUDA 11
to 13 bear out. Container: u32 magic, u16 version 1, u16 header size 16, u64 size of what follows. Member: see
_MEMBER. Every field is a lie until it fits: a container counts only where its members end exactly where it does,
since the four bytes of the magic turn up by chance too (TensorRT's lean runtime has 108 such in .text).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from packager.arch import Arch, Kind
from packager.cuda.code import Container, Member, Section

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
"""The first eight bytes of a container: magic, version and header size."""

ALIGNMENT = 8
"""Containers, members and payloads begin at multiples of 8 bytes, in the file as in memory."""

HEADER_SIZE = 16
MEMBER_HEADER_SIZE = 64

FLAG_LZ4, FLAG_ZSTD = 0x2000, 0x8000
FLAG_ARCH_SPECIFIC, FLAG_FAMILY = 0x100000, 0x200000

Read = Callable[[int, int], bytes]
"""``read(offset, size)``: the bytes there; fewer where the file ends."""

# kind, version, header size, padded payload size, compressed size, offset of options, minor, major, SM number,
# offset and length of an identifier, flags, (a hash, in LTO-IR), uncompressed size.
_MEMBER = struct.Struct("<HHIQIIHHIIIQQQ")
_VERSION = 0x0101
_KINDS = {1: Kind.PTX, 2: Kind.CUBIN, 8: Kind.LTO}
_MEMBER_LIMIT = 4096  # real containers have up to 20
_HEADER_LIMIT = 1 << 20


def container_at(read: Read, section: Section, offset: int) -> Container | None:
    """The container at ``offset`` of the file, inside ``section``; None where there is none that holds together."""
    head = read(offset, HEADER_SIZE)
    if len(head) < HEADER_SIZE or not head.startswith(MAGIC) or offset % ALIGNMENT:
        return None
    size = HEADER_SIZE + int.from_bytes(head[8:], "little")
    if size % ALIGNMENT or offset + size > section.offset + section.size:
        return None
    members = _members(read, offset + HEADER_SIZE, offset + size)
    if members is None:
        return None
    address = section.address + offset - section.offset
    return Container(section.name, offset, address, HEADER_SIZE, size, members)


def _members(read: Read, offset: int, end: int) -> tuple[Member, ...] | None:
    """The members from ``offset`` to ``end``; None where they do not fill the space exactly."""
    members: list[Member] = []
    while offset < end:
        head = read(offset, MEMBER_HEADER_SIZE) if offset + MEMBER_HEADER_SIZE <= end else b""
        member = _member(head, offset)
        if member is None or member.end > end or len(members) == _MEMBER_LIMIT:
            return None
        members.append(member)
        offset = member.end
    return tuple(members)


def _member(head: bytes, offset: int) -> Member | None:
    if len(head) < MEMBER_HEADER_SIZE:
        return None
    (kind, version, header_size, payload, compressed, _, _, _, sm, _, _, flags, _, size) = _MEMBER.unpack(
        head
    )
    sound = (
        version == _VERSION
        and kind
        and MEMBER_HEADER_SIZE <= header_size <= _HEADER_LIMIT
        and not (header_size % ALIGNMENT or payload % ALIGNMENT)
        and compressed <= payload
        and 10 <= sm < 1000
    )
    if not sound:
        return None
    return Member(
        _KINDS.get(kind, Kind.OTHER),
        Arch.of(sm, _suffix(flags)),
        offset,
        header_size,
        payload,
        _compression(flags) if compressed else "",
        compressed,
        size or payload,
        flags,
    )


def _suffix(flags: int) -> str:
    if flags & FLAG_ARCH_SPECIFIC:
        return "a"
    return "f" if flags & FLAG_FAMILY else ""


def _compression(flags: int) -> str:
    if flags & FLAG_LZ4:
        return "lz4"
    return "zstd" if flags & FLAG_ZSTD else "unknown"
