"""The parts of an ELF file that hold GPU code: its sections, or its segments where it has none."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from packager.cuda.code import Section
from packager.cuda.relocations import ENTRY_SIZE, RELATIVE, Relocations
from packager.resolve.elf import PT_LOAD, ElfFile

SHT_PROGBITS, SHT_RELA = 1, 4
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4

WRAPPERS = ".nvFatBinSegment"
"""The section through which the CUDA runtime registers a program's fatbins."""

_WRAPPER = struct.Struct("<IIQQ")  # magic, version, address of the container, file name or prelinked fatbins
_WRAPPER_MAGIC = 0x466243B1
_HEADER = struct.Struct("<IIQQQQIIQQ")
_TABLE_LIMIT = 1 << 16
_CHUNK = ENTRY_SIZE << 16


def sections_of(file: ElfFile) -> tuple[Section, ...]:
    """The sections of the file, in its order, without the null section; sizes are cut to what the file holds.

    Where the file has no section headers, or a table that lies outside it, its PT_LOAD segments stand for them,
    called "PT_LOAD 0", "PT_LOAD 1" and so on.
    """
    rows, names = _table(file)
    if not rows:
        return _segments(file)
    text = _names(file, rows, names)
    return tuple(
        Section(_name(text, row[0]), row[4], row[3], _inside(file, row[4], row[5]), row[2], row[1])
        for row in rows[1:]
    )


def _table(file: ElfFile) -> tuple[list[tuple[Any, ...]], int]:
    """The section headers, and the number of the one with their names; nothing for an unusable table."""
    head = file.read_at(0, 64)
    (offset,) = struct.unpack_from("<Q", head, 40)
    entry, count, names = struct.unpack_from("<HHH", head, 58)
    if not offset or entry != _HEADER.size or offset + entry > file.size:
        return [], 0
    # gABI, chapter 4: numbers that do not fit the header stand in the first section.
    first = _HEADER.unpack(file.read_at(offset, entry))
    count, names = count or first[5], first[6] if names == 0xFFFF else names
    if count > _TABLE_LIMIT or offset + count * entry > file.size:
        return [], 0
    return list(_HEADER.iter_unpack(file.read_at(offset, count * entry))), names


def _names(file: ElfFile, rows: list[tuple[Any, ...]], number: int) -> bytes:
    if number >= len(rows):
        return b""
    offset, size = rows[number][4], rows[number][5]
    return file.read_at(offset, min(_inside(file, offset, size), 1 << 22))


def _name(text: bytes, index: int) -> str:
    return text[index : text.find(b"\0", index)].decode("utf-8", "replace") if index < len(text) else ""


def _inside(file: ElfFile, offset: int, size: int) -> int:
    return max(0, min(size, file.size - offset))


def _segments(file: ElfFile) -> tuple[Section, ...]:
    loads = [each for each in file.segments if each.type == PT_LOAD]
    return tuple(
        Section(
            f"PT_LOAD {number}",
            each.offset,
            each.address,
            _inside(file, each.offset, each.size),
            SHF_ALLOC | (SHF_WRITE if each.flags & 2 else 0) | (SHF_EXECINSTR if each.flags & 1 else 0),
            SHT_PROGBITS,
        )
        for number, each in enumerate(loads)
    )


def wrapped_addresses(file: ElfFile, sections: tuple[Section, ...]) -> set[int] | None:
    """The addresses that elements of ``.nvFatBinSegment`` point at; None where they could point anywhere.

    A pointer is the addend of the relative relocation of its place, or what stands there where there is none:
    in programs linked to a fixed address, and with DT_RELR. One with another relocation, by a symbol that another
    file may define, points nowhere known.
    """
    found = set[int]()
    for section in sections:
        if section.name != WRAPPERS or section.type != SHT_PROGBITS:
            continue
        moved = dict(_relocations(file, sections, section))
        content = file.read_at(section.offset, section.size - section.size % _WRAPPER.size)
        for number, (magic, _, stored, _) in enumerate(_WRAPPER.iter_unpack(content)):
            target = moved.get(section.address + number * _WRAPPER.size + 8, stored)
            if magic != _WRAPPER_MAGIC:
                continue
            if target is None:
                return None
            found.add(target)
    return found


def _relocations(
    file: ElfFile, sections: tuple[Section, ...], place: Section
) -> Iterator[tuple[int, int | None]]:
    """Address of each relocated word in ``place``, and what a relative relocation makes of it."""
    relative = RELATIVE.get(file.machine.name)
    for table in sections:
        if table.type != SHT_RELA or not table.flags & SHF_ALLOC:
            continue
        for start in range(0, table.size - ENTRY_SIZE + 1, _CHUNK):
            size = min(_CHUNK, table.size - start)
            part = Relocations(file.read_at(table.offset + start, size - size % ENTRY_SIZE))
            for number in part.at([(place.address, place.address + place.size)]):
                yield part.places[number], part.addends[number] if part.kinds[number] == relative else None
