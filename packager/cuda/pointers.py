"""What points into a range of addresses: relocations and symbols. Machine code is in instructions.py.

Relocation types are those of the psABI supplements for the two machines.
"""

from __future__ import annotations

import mmap
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from packager.cuda.image import SHT_SYMTAB, Image
from packager.cuda.relocations import ADDEND_AT, ENTRY_SIZE, RELATIVE, Range, Relocations, within
from packager.resolve.elf import DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, ElfFile
from packager.resolve.symbols import symbol_count

_DT_REL, _DT_RELR, _DT_RELRSZ, _DT_RELACOUNT = 17, 36, 35, 0x6FFFFFF9
_NO_ADDRESS = {3, 4, 6}  # STT_SECTION, STT_FILE; STT_TLS is a place in a block
_SYMBOL_SIZE = 24
_word = struct.Struct("<Q").unpack_from


class Pointer(NamedTuple):
    """One pointer to ``target`` that the loader or the linker keeps.

    ``place`` is the address that the loader writes it to, None for a symbol. ``at`` is the offset in the file of
    the eight bytes that say the target; None where it follows from more than those.
    """

    target: int
    place: int | None
    at: int | None


class Table(NamedTuple):
    """Relocations at the offset ``at`` in the file, and the numbers of those that write the loader's base plus an
    address within the bounds.
    """

    at: int
    relocations: Relocations
    near: list[int]


class Pointers:
    """What one file's relocations and symbols point at within some bounds, and where the loader writes at all.

    ``unknown`` says what could not be read; then nothing is known.
    """

    def __init__(
        self,
        tables: Sequence[Table] = (),
        others: Iterable[Pointer] = (),
        places: Iterable[int] = (),
        unknown: str = "",
    ) -> None:
        """``others`` are the pointers that are not near in a table, ``places`` those that no table names."""
        self._tables = tables
        self._others = sorted(others, key=itemgetter(0))
        self._written, self._sorted = places, list[int]()
        self.unknown = unknown

    def into(self, start: int, end: int) -> list[Pointer]:
        """The pointers whose target lies in start <= target < end, in order of target."""
        found = set(self._other(start, end))
        for at, table, near in self._tables:
            for number in near:
                if start <= table.addends[number] < end:
                    place = at + ENTRY_SIZE * number + ADDEND_AT
                    found.add(Pointer(table.addends[number], table.places[number], place))
        return sorted(found, key=itemgetter(0))

    def targets(self, start: int, end: int) -> list[int]:
        """Where these point, in order: all that :meth:`into` knows, at a fraction of the cost."""
        found = [pointer.target for pointer in self._other(start, end)]
        for _, table, near in self._tables:
            addends = table.addends
            found += [addends[number] for number in near if start <= addends[number] < end]
        return sorted(found)

    def written(self, ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
        """The places that the loader writes eight bytes to of which one or more are in these ranges."""
        if not self._sorted:
            self._sorted = sorted(chain(self._written, *(table.relocations.places for table in self._tables)))
        for start, end in ranges:
            yield from self._sorted[bisect_left(self._sorted, start - 7) : bisect_left(self._sorted, end)]

    def _other(self, start: int, end: int) -> Sequence[Pointer]:
        low, high = (bisect_left(self._others, at, key=itemgetter(0)) for at in (start, end))
        return self._others[low:high]


def read_pointers(image: Image, content: mmap.mmap, ranges: Sequence[tuple[int, int]]) -> Pointers:
    """Everything in the relocations and symbol tables that has to do with these ranges of addresses."""
    relative = RELATIVE.get(image.machine.name)
    if relative is None:
        return Pointers(unknown=f"dpack does not know the relocations of {image.machine.name}")
    with ElfFile(image.path) as file:
        if file.tag(_DT_REL) is not None:
            return Pointers(unknown="its relocations have no addends")
        symbols = file.tag(DT_SYMTAB)
        dynamic = None if symbols is None else file.offset_of(symbols)
        exported = 0 if dynamic is None else symbol_count(file)
        count = file.tag(_DT_RELACOUNT) or 0
        packed = tuple(_packed_places(file))
        places = tuple(_tables(file))
    tables = [_table(content, at, size, relative, ranges) for at, size in places]
    words = list(_words(image, content, packed))
    debugging = [(h.offset, h.size // _SYMBOL_SIZE) for h in image.headers if h.type == SHT_SYMTAB]
    others = [
        *(pointer for table in tables for pointer in _symbolic(table, content, dynamic, relative, count)),
        *(Pointer(word, place, at) for place, at, word in words),
        *(pointer for table in debugging for pointer in _symbols(content, *table, ranges)),
        # An exported address is never followed.
        *(pointer._replace(at=None) for pointer in _symbols(content, dynamic or 0, exported, ranges)),
    ]
    near = [pointer for pointer in others if within(pointer.target, ranges)]
    return Pointers(tables, near, [place for place, _, _ in words])


def _table(content: mmap.mmap, at: int, size: int, relative: int, ranges: Sequence[Range]) -> Table:
    """The table there, as far as the file holds it."""
    size = max(0, min(size, len(content) - at)) // ENTRY_SIZE * ENTRY_SIZE
    found = Relocations(content[at : at + size])
    return Table(at, found, [number for number in found.into(ranges) if found.kinds[number] == relative])


def _tables(file: ElfFile) -> Iterator[tuple[int, int]]:
    """Offset and size of the tables of relocations with addends."""
    for start, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        address, length = file.tag(start), file.tag(size)
        if address is not None and length:
            yield file.offset_of(address), length


def _symbolic(
    table: Table, content: mmap.mmap, dynamic: int | None, relative: int, count: int
) -> Iterator[Pointer]:
    """All other relocations: a symbol's value and an addend."""
    found, kinds = table.relocations, table.relocations.kinds
    # Linkers put the relative ones first, and nobody wants to look at 400,000 of them for nothing.
    first = count if kinds[:count] == array("Q", [relative]) * min(count, len(kinds)) else 0
    for number in range(first, len(kinds)):
        kind, target = kinds[number], found.addends[number]
        if kind == relative:
            continue
        at = (dynamic or 0) + _SYMBOL_SIZE * (kind >> 32)
        if dynamic is not None and kind >> 32 and at + _SYMBOL_SIZE <= len(content):
            target = _word(content, at + 8)[0] + target & (1 << 64) - 1
        yield Pointer(target, found.places[number], None)


def _packed_places(file: ElfFile) -> Iterator[int]:
    """The addresses that DT_RELR names (gABI, Relative Relocation Table): the word there is a relative pointer."""
    start, size = file.tag(_DT_RELR), file.tag(_DT_RELRSZ)
    if start is None or not size:
        return iter(())
    words = struct.unpack(f"<{size // 8}Q", file.read_at(file.offset_of(start), size - size % 8))
    return _unpacked(words)


def _unpacked(words: Iterable[int]) -> Iterator[int]:
    following = 0
    for word in words:
        if word & 1:
            yield from (following + 8 * bit for bit in range(63) if word >> bit + 1 & 1)
            following += 63 * 8
        else:
            yield word
            following = word + 8


def _words(image: Image, content: mmap.mmap, places: Iterable[int]) -> Iterator[tuple[int, int, int]]:
    for place in places:
        at = image.offset_of(place)
        if at is not None and at + 8 <= len(content):
            yield place, at, struct.unpack_from("<Q", content, at)[0]


def _symbols(
    content: mmap.mmap, start: int, count: int, ranges: Sequence[tuple[int, int]]
) -> Iterator[Pointer]:
    """The symbols of one table that are defined, as far as the file holds them."""
    whole = max(0, min(count, (len(content) - start) // _SYMBOL_SIZE))
    words = array("Q", content[start : start + _SYMBOL_SIZE * whole])
    values = words[1::3]
    for low, high in ranges:
        for number in [i for i, value in enumerate(values) if low <= value < high]:
            first = words[3 * number]  # name: 32 bits, information: 8, visibility: 8, section: 16
            if 0 < first >> 48 < 0xFF00 and first >> 32 & 15 not in _NO_ADDRESS:
                yield Pointer(values[number], None, start + _SYMBOL_SIZE * number + 8)
