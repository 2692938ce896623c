"""The symbol versions that a shared object defines: GLIBC_2.34 of libc.so.6, GLIBCXX_3.4.30 of libstdc++.so.6.

Layout: LSB Core, "Symbol Versioning", and <elf.h> (Elf64_Verdef, Elf64_Verdaux). As everywhere here, a field is
taken as a lie until it fits the file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from packager.resolve.elf import DT_STRSZ, DT_STRTAB, ElfFile

DT_VERDEF, DT_VERDEFNUM = 0x6FFFFFFC, 0x6FFFFFFD

_BASE = 1
_MOST = 1 << 14
"""libc.so.6 of glibc 2.36 defines 38 versions, libicu one; the index has 15 bits."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One version. ``base`` marks the entry that names the file itself and is no version."""

    name: str
    base: bool


def definitions(file: ElfFile) -> Iterator[Definition]:
    """The versions that ``file`` defines, in its own order; none for a file without them. Raises ElfError."""
    address, count = file.tag(DT_VERDEF), file.tag(DT_VERDEFNUM) or 0
    if address is None or not count:
        return
    if count > _MOST:
        raise file.error(f"damaged: it defines {count} symbol versions")
    offset, names = file.offset_of(address), Names(file)
    for _ in range(count):
        _, flags, _, _, _, first, following = struct.unpack("<HHHHIII", file.read_at(offset, 20))
        (name,) = struct.unpack("<I", file.read_at(offset + first, 4))
        yield Definition(names.at(name), bool(flags & _BASE))
        offset += following
        if not following:
            return


class Names:
    """The dynamic string table of one file, read once."""

    def __init__(self, file: ElfFile) -> None:
        table, size = file.tag(DT_STRTAB), file.tag(DT_STRSZ)
        if table is None or not size:
            raise file.error("damaged: names without a string table")
        self._file = file
        self._text = file.read_at(file.offset_of(table), size)

    def at(self, index: int) -> str:
        """The name that begins at ``index``; ElfError where none does."""
        end = self._text.find(b"\0", index) if index < len(self._text) else -1
        if end < 0:
            raise self._file.error(f"damaged: a name at {index} of a string table of {len(self._text)} bytes")
        return os.fsdecode(self._text[index:end])
