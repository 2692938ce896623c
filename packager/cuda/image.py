"""The two tables of an ELF file, and how its bytes lie in memory: what a cut changes.

The program headers say which bytes of the file the loader maps where; the section headers say the same to
readelf, gdb and cuobjdump. A file that was cut already is read as what it was before: behind its program headers
stand those of the file as it was linked, and tell how the segments were. So a second cut starts from the same
tables as the first, and comes to the same end.
"""

from __future__ import annotations

import mmap
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from packager.resolve.elf import DF_1_PIE, DT_FLAGS_1, ET_EXEC, PT_INTERP, PT_LOAD, ElfFile
from packager.resolve.machine import Machine

HEADER_SIZE = 64
PT_PHDR = 6
PF_X, PF_R = 1, 4
SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
SHT_NOBITS, SHT_SYMTAB = 8, 2

_GRANULE = {"aarch64": 0x10000}


class Row(NamedTuple):
    """One program header, its fields in the order of Elf64_Phdr."""

    type: int
    flags: int
    offset: int
    address: int
    physical: int
    size: int
    memory_size: int
    align: int

    @property
    def end(self) -> int:
        """The address behind the last byte that comes from the file."""
        return self.address + self.size

    @property
    def memory_end(self) -> int:
        """The address behind the segment."""
        return self.address + self.memory_size

    def pack(self) -> bytes:
        """The 56 bytes of the file."""
        return _ROW.pack(*self)


class Header(NamedTuple):
    """One section header, its fields in the order of Elf64_Shdr; ``name`` is an offset in .shstrtab."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int

    @property
    def end(self) -> int:
        """The address behind the section."""
        return self.address + self.size

    @property
    def loaded(self) -> bool:
        """Whether it has bytes in the file that the loader maps."""
        return bool(self.flags & SHF_ALLOC and self.size and self.type != SHT_NOBITS)

    def pack(self) -> bytes:
        """The 64 bytes of the file."""
        return _HEADER.pack(*self)


class Extent(NamedTuple):
    """``size`` bytes at ``offset`` of the file that the loader puts at ``address``."""

    address: int
    offset: int
    size: int

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.address + self.size


_ROW = struct.Struct("<IIQQQQQQ")
_HEADER = struct.Struct("<IIQQQQIIQQ")
ROW_SIZE, SECTION_SIZE = _ROW.size, _HEADER.size


@dataclass(frozen=True, slots=True)
class Image:
    """One ELF file as the loader and the tools see it.

    ``modified`` is its time, in nanoseconds. ``rows`` and ``headers`` are those of the file before any cut;
    ``extents`` is what the file holds now, in order of address. ``gone`` are the address ranges that were cut away,
    ``table`` the one where a cut put the program headers, both empty for a file as it was linked. ``program`` is
    True for what the kernel starts.
    """

    path: str
    size: int
    modified: int
    machine: Machine
    program: bool
    position_independent: bool
    head: bytes
    rows: tuple[Row, ...]
    headers: tuple[Header, ...]
    names: tuple[str, ...]
    extents: tuple[Extent, ...]
    gone: tuple[tuple[int, int], ...] = ()
    table: tuple[int, int] | None = None

    @property
    def granule(self) -> int:
        """The unit of every cut, in bytes: the largest page that kernels for this machine are built with.

        x86_64 has pages of 4 KiB alone. Kernels for aarch64 come with 4, 16 and 64 KiB (Linux,
        Documentation/arch/arm64/memory.rst), and one file has to load on each.
        """
        return _GRANULE.get(self.machine.name, 0x1000)

    @property
    def loads(self) -> tuple[Row, ...]:
        """The PT_LOAD rows."""
        return tuple(row for row in self.rows if row.type == PT_LOAD)

    def load_of(self, start: int, end: int) -> Row | None:
        """The segment whose bytes from the file hold all of this address range; None where there is none."""
        return next((row for row in self.loads if row.address <= start and end <= row.end), None)

    def offset_of(self, address: int) -> int | None:
        """Where the byte for this address is in the file; None for one that the file does not hold."""
        at = bisect_right(self.extents, address, key=lambda extent: extent.address) - 1
        if at < 0 or address >= self.extents[at].end:
            return None
        return self.extents[at].offset + address - self.extents[at].address

    def sections_within(self, start: int, end: int) -> Iterator[int]:
        """The numbers of the sections in memory that share a byte with this address range."""
        for number, header in enumerate(self.headers):
            if header.address < end and start < header.end and header.loaded:
                yield number


def read_image(path: str | Path) -> Image:
    """The tables of the file at ``path``; ElfError for a damaged one."""
    with ElfFile(path) as file:
        head = file.read_at(0, HEADER_SIZE)
        (at,) = struct.unpack_from("<Q", head, 32)
        (count,) = struct.unpack_from("<H", head, 56)
        rows = tuple(map(Row._make, _ROW.iter_unpack(file.read_at(at, ROW_SIZE * count))))
        headers, names = _sections(file, head)
        first = _first_rows(file, rows, at + ROW_SIZE * count)
        interp = any(row.type == PT_INTERP for row in rows)
        flags = file.tag(DT_FLAGS_1) or 0
        image = Image(
            path=str(path),
            size=file.size,
            modified=file.modified,
            machine=file.machine,
            program=interp or file.type == ET_EXEC or bool(flags & DF_1_PIE),
            position_independent=file.type != ET_EXEC,
            head=head,
            rows=rows,
            headers=headers,
            names=names,
            extents=_extents(rows),
        )
        return image if first is None else _as_before(image, first, at, count)


def _extents(rows: tuple[Row, ...]) -> tuple[Extent, ...]:
    loads = (row for row in rows if row.type == PT_LOAD and row.size)
    return tuple(sorted(Extent(row.address, row.offset, row.size) for row in loads))


def _sections(file: ElfFile, head: bytes) -> tuple[tuple[Header, ...], tuple[str, ...]]:
    (table,) = struct.unpack_from("<Q", head, 40)
    entry, count, names = struct.unpack_from("<HHH", head, 58)
    if not table and not count:
        return (), ()
    if entry != SECTION_SIZE or names >= count:
        raise file.error(f"damaged: {count} section headers of {entry} bytes each, names in number {names}")
    content = file.read_at(table, SECTION_SIZE * count)
    headers = tuple(map(Header._make, _HEADER.iter_unpack(content)))
    text = file.read_at(headers[names].offset, headers[names].size)
    return headers, tuple(_name(text, header.name) for header in headers)


def _name(text: bytes, at: int) -> str:
    return os.fsdecode(text[at : max(at, text.find(b"\0", at))])


def _first_rows(file: ElfFile, rows: tuple[Row, ...], at: int) -> tuple[Row, ...] | None:
    """The program headers at ``at`` of which ``rows`` are the pieces; None where there are none such.

    Anything can stand there. It counts only when each row there takes the next of ``rows``, to the last.
    """
    left, first, start = list(reversed(rows)), list[Row](), at
    while left and at + ROW_SIZE <= file.size:
        size = ROW_SIZE * (len(rows) + len(first))
        if first and len(left) == 1 and left[0].type == PT_LOAD and left[0].size == size:
            return tuple(first)  # the segment that a cut made for the table alone
        whole = Row._make(_ROW.unpack(file.read_at(at, ROW_SIZE)))
        if not _take(whole, left):
            return None
        first.append(whole)
        at += ROW_SIZE
    return None if left or at == start else tuple(first)


def _take(whole: Row, left: list[Row]) -> bool:
    """Take the pieces of ``whole`` off the end of ``left``; False when they are not there."""
    piece = left.pop()
    if whole.type == PT_PHDR:
        return piece.type == PT_PHDR
    if whole.type != PT_LOAD:
        return piece._replace(offset=whole.offset) == whole
    if piece.address != whole.address or piece.flags != whole.flags:
        return False
    while piece.memory_end < whole.memory_end:
        following = left.pop() if left else None
        if following is None or (following.type, following.address) != (PT_LOAD, piece.memory_end):
            return False
        piece = following
    return piece.memory_end == whole.memory_end


def _as_before(image: Image, first: tuple[Row, ...], at: int, count: int) -> Image:
    """The image of a file that was cut, with the tables from before."""
    table = _table_address(image, at, count + len(first))
    own = [extent for extent in image.extents if table is None or extent.address != table[0]]
    gone = []
    for row in first:
        if row.type == PT_LOAD:
            inside = [extent for extent in own if row.address <= extent.address < row.memory_end]
            ends = [row.address, *(extent.end for extent in inside)]
            starts = [*(extent.address for extent in inside), row.end]
            gone += [(a, b) for a, b in zip(ends, starts, strict=True) if a < b]
    return replace(
        image,
        rows=first,
        headers=_rejoined(image.headers),
        names=image.names[: len(_rejoined(image.headers))],
        extents=tuple(own),
        gone=tuple(gone),
        table=table,
    )


def _table_address(image: Image, at: int, count: int) -> tuple[int, int] | None:
    for extent in image.extents:
        if extent.offset <= at < extent.offset + extent.size:
            start = extent.address + at - extent.offset
            return start, start + count * ROW_SIZE
    return None


def _rejoined(headers: tuple[Header, ...]) -> tuple[Header, ...]:
    """The sections before a cut: it puts the further pieces of a section behind all others, under its name."""
    kinds = [(h.name, h.type, h.flags, h.align) for h in headers]
    first = {kind: number for number, kind in reversed(list(enumerate(kinds)))}
    count = len(headers)
    while count and first[kinds[count - 1]] < count - 1:
        count -= 1
    whole = list(headers[:count])
    for piece, kind in zip(headers[count:], kinds[count:], strict=True):
        number = first[kind]
        whole[number] = whole[number]._replace(size=max(whole[number].end, piece.end) - whole[number].address)
    return tuple(whole)


class Mapped:
    """The bytes of a file, mapped read-only; a context manager."""

    def __init__(self, path: str | Path) -> None:
        with Path(path).open("rb") as file:
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def __enter__(self) -> mmap.mmap:
        return self.content

    def __exit__(self, *_: object) -> None:
        self.content.close()


def give_back(content: mmap.mmap, start: int, size: int) -> None:
    """Forget the pages of a mapped file that were read: a library has 130 MB of code, which would count as our
    memory from now on.
    """
    first = start - start % mmap.PAGESIZE
    content.madvise(mmap.MADV_DONTNEED, first, min(start + size, len(content)) - first)
