"""The dynamic symbol table: what one object offers to others and wants from them."""

from __future__ import annotations

import os
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from packager.resolve.elf import (
    DT_GNU_HASH,
    DT_HASH,
    DT_JMPREL,
    DT_PLTRELSZ,
    DT_RELA,
    DT_RELASZ,
    DT_STRSZ,
    DT_STRTAB,
    DT_SYMTAB,
    ElfFile,
)

_TABLE_LIMIT = 1 << 22


@dataclass(frozen=True, slots=True)
class Symbol:
    """One entry of the dynamic symbol table."""

    name: str
    defined: bool


def imports_one_of(file: ElfFile, wanted: Collection[str]) -> bool:
    """True when ``file`` imports one of the symbols ``wanted``. Most files hold none of the names at all, which is
    seen without a look at the table.
    """
    strings, size = file.tag(DT_STRTAB), file.tag(DT_STRSZ)
    if strings is None or not size:
        return False
    names = file.read_at(file.offset_of(strings), size)
    if not any(b"\0" + os.fsencode(name) + b"\0" in names for name in wanted):
        return False
    return any(symbol.name in wanted and not symbol.defined for symbol in symbols(file))


def symbols(file: ElfFile) -> Iterator[Symbol]:
    """The dynamic symbols, in the order of the table; none for a file without one."""
    table, strings, size = file.tag(DT_SYMTAB), file.tag(DT_STRTAB), file.tag(DT_STRSZ)
    count = symbol_count(file)
    if table is None or strings is None or not size or not count:
        return
    if count > _TABLE_LIMIT:
        raise file.error(f"damaged: a table of {count} symbols")
    names = file.read_at(file.offset_of(strings), size)
    rows = struct.iter_unpack("<IBBHQQ", file.read_at(file.offset_of(table), 24 * count))
    for index, _, _, section, _, _ in rows:
        end = names.find(b"\0", index) if 0 < index < size else -1
        if end > index:
            yield Symbol(os.fsdecode(names[index:end]), defined=section != 0)


def symbol_count(file: ElfFile) -> int:
    """How many entries the dynamic symbol table has: only the hash tables, or what refers to it, tell."""
    if (address := file.tag(DT_HASH)) is not None:
        count: int = struct.unpack("<II", file.read_at(file.offset_of(address), 8))[1]
        return count
    if (address := file.tag(DT_GNU_HASH)) is None:
        return 0
    offset = file.offset_of(address)
    buckets, first, bloom, _ = struct.unpack("<IIII", file.read_at(offset, 16))
    if buckets > _TABLE_LIMIT or bloom > _TABLE_LIMIT:
        raise file.error("damaged: a hash table that is larger than any file needs")
    at = offset + 16 + 8 * bloom
    last = max(struct.unpack(f"<{buckets}I", file.read_at(at, 4 * buckets)), default=0)
    if last < first:  # the linker leaves imports out, and writes an empty table where there is nothing else
        return max(int(first), _relocated(file))
    chains = at + 4 * buckets
    while last - first < _TABLE_LIMIT:
        (value,) = struct.unpack("<I", file.read_at(chains + 4 * (last - first), 4))
        last += 1
        if value & 1:
            return int(last)
    raise file.error("damaged: a hash chain without an end")


def _relocated(file: ElfFile) -> int:
    """One more than the highest symbol that a relocation names (RELA, as all 64-bit machines here have)."""
    highest = 0
    for table, length in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        address, size = file.tag(table), file.tag(length) or 0
        if size > 24 * _TABLE_LIMIT:
            raise file.error(f"damaged: relocations of {size} bytes")
        if address is not None and size >= 24:
            rows = struct.iter_unpack("<QQq", file.read_at(file.offset_of(address), size - size % 24))
            highest = max(highest, *(information >> 32 for _, information, _ in rows), 0)
    return highest + 1
