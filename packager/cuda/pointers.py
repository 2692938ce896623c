"""What points into a range of addresses: relocations, symbols, and the machine code itself.

A shared object holds no absolute address but in its relocations, and reaches its own data by the distance from
the instruction: with ``lea`` on x86_64, with ``adr``, or ``adrp`` and ``add``, on aarch64. So whoever reads all
three kinds knows every way by which compilers take the address of data. What is not looked for: an instruction
that reads a container and takes no address (a program that compares its own fatbin's magic, say), and a distance
that stands in data or in a ``movabs`` (the large code model). nvcc makes none of these for its sections, which
only the wrappers name. Relocation types are those of the psABI supplements for the two machines.
"""

from __future__ import annotations

import mmap
import re
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from packager.cuda.image import PF_X, SHF_EXECINSTR, SHT_SYMTAB, Image, give_back
from packager.cuda.relocations import ADDEND_AT, ENTRY_SIZE, RELATIVE, Range, Relocations, within
from packager.resolve.elf import DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, ElfFile

_DT_REL, _DT_RELR, _DT_RELRSZ, _DT_RELACOUNT = 17, 36, 35, 0x6FFFFFF9
_NO_ADDRESS = {3, 4, 6}  # STT_SECTION, STT_FILE; STT_TLS is a place in a block
_SHT_DYNSYM = 11
_SYMBOL_SIZE = 24
_WINDOW = 32  # instructions
_BLOCK = 1 << 22
_ADR_REACH = 1 << 20
_distance = struct.Struct("<i").unpack_from
_word = struct.Struct("<Q").unpack_from
_REX_W = b"\x48\x4c"  # with and without REX.R; REX.X and REX.B mean nothing here, and no assembler sets them


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
        count = file.tag(_DT_RELACOUNT) or 0
        packed = tuple(_packed_places(file))
        places = tuple(_tables(file))
    tables = [_table(content, at, size, relative, ranges) for at, size in places]
    words = list(_words(image, content, packed))
    others = [
        *(pointer for table in tables for pointer in _symbolic(table, content, dynamic, relative, count)),
        *(Pointer(word, place, at) for place, at, word in words),
        *_symbols(image, content, ranges),
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


def _symbols(image: Image, content: mmap.mmap, ranges: Sequence[tuple[int, int]]) -> Iterator[Pointer]:
    """Defined symbols, those of .dynsym with no ``at``: an exported address is never followed."""
    for header in image.headers:
        if header.type not in {SHT_SYMTAB, _SHT_DYNSYM} or header.offset + header.size > len(content):
            continue
        words = array("Q")
        words.frombytes(content[header.offset : header.offset + header.size // _SYMBOL_SIZE * _SYMBOL_SIZE])
        values = words[1::3]
        for low, high in ranges:
            for number in [i for i, value in enumerate(values) if low <= value < high]:
                first = words[3 * number]  # name: 32 bits, information: 8, visibility: 8, section: 16
                if 0 < first >> 48 < 0xFF00 and first >> 32 & 15 not in _NO_ADDRESS:
                    at = header.offset + _SYMBOL_SIZE * number + 8
                    yield Pointer(values[number], None, at if header.type == SHT_SYMTAB else None)


def code_refers(image: Image, content: mmap.mmap, start: int, end: int) -> bool:
    """Whether an instruction anywhere takes an address in start <= address < end, or looks as if it did.

    Bytes that only look like such an instruction count too, so False is sure and True a suspicion. In the ten
    cuDNN and cuBLAS libraries of CUDA 12.9, with 200 MB of code and 680,000 ``lea`` instructions, not one points
    anywhere into .nv_fatbin.
    """
    look = {"x86_64": _lea_refers, "aarch64": _adr_refers}[image.machine.name]
    return any(look(content, part, start, end) for part in _code(image))


def _code(image: Image) -> list[tuple[int, int, int]]:
    """Address, offset and size of what is executed: the sections that say so, else the segments."""
    named = [(h.address, h.offset, h.size) for h in image.headers if h.flags & SHF_EXECINSTR and h.type == 1]
    if named:
        return named
    rows = [row for row in image.loads if row.flags & PF_X]
    return [
        (each.address, each.offset, each.size)
        for each in image.extents
        if any(row.address <= each.address < row.end for row in rows)
    ]


def _byte_class(values: Iterable[int]) -> bytes:
    return b"[" + b"".join(b"\\x%02x" % value for value in values) + b"]"


def _lea_refers(content: mmap.mmap, part: tuple[int, int, int], start: int, end: int) -> bool:
    """REX.W 8D /r, ModRM.mod 0, r/m 5: a 32-bit distance from the end of the instruction. Without REX.W the
    result has 32 bits, which is no address in a file that is loaded anywhere.
    """
    address, offset, size = part
    with memoryview(content)[offset : offset + size] as code:
        for block in range(0, len(code), _BLOCK):
            if _lea_in_block(code, block, address, start, end):
                return True
            give_back(content, offset + block, _BLOCK)
    return False


def _lea_in_block(code: memoryview, block: int, address: int, start: int, end: int) -> bool:
    """The same for one block of the code: the shorter it is, the fewer highest bytes a distance can have.

    The opcode comes first in the pattern, since ``re`` looks for a literal there in a loop of its own, and what
    needs more than that looks ahead, so that no hit hides the next one.
    """
    low, high = start - (address + block + _BLOCK + 8) >> 24, end - (address + block) >> 24
    tops = sorted({top & 0xFF for top in range(max(low, -0x80), min(high, 0x7F) + 1)})
    if not tops:
        return False
    pattern = re.compile(rb"(?s)\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=..." + _byte_class(tops) + b")")
    for hit in pattern.finditer(code, block, min(len(code), block + _BLOCK + 8)):
        at = hit.end()
        if start <= address + at + 4 + _distance(code, at)[0] < end and code[at - 3] in _REX_W:
            return True
    return False


def _adr_refers(content: mmap.mmap, part: tuple[int, int, int], start: int, end: int) -> bool:
    """ADRP and ADR: p 10000 in the highest bits but two, which begin a signed number of 21 bits; with p the
    distance in pages of 4 KiB from the instruction's own page, without it (linkers make such ones where the
    distance is short) in bytes from the instruction.

    The pages at both ends are the neighbours' too: there what follows the ADRP says which byte is meant.
    """
    address, offset, size = part
    with memoryview(content)[offset : offset + size] as code:
        for block in range(0, len(code), _BLOCK):
            for at in _adrps(code, block, address, start, end):
                page = (address + at >> 12) + _adr_distance(code, at) << 12
                if any(start <= page + low < end for low in _low_bits(code, at)):
                    return True
            if _adr_in_block(code, block, address, start, end):
                return True
            give_back(content, offset + block, _BLOCK)
    return False


def _adr_in_block(code: memoryview, block: int, address: int, start: int, end: int) -> bool:
    low = max(block, start - address - _ADR_REACH & -4)
    high = min(len(code), block + _BLOCK, end - address + _ADR_REACH)
    return low < high and any(
        hit.start() % 4 == 3
        and start <= address + hit.start() - 3 + _adr_distance(code, hit.start() - 3) < end
        for hit in re.compile(rb"[\x10\x30\x50\x70]").finditer(code, low, high)
    )


def _adrps(code: memoryview, block: int, address: int, start: int, end: int) -> Iterator[int]:
    """Where in one block of the code an ADRP stands whose page has a part of start <= address < end.

    Bits 8 to 23 are the top 16 of immhi, units of 128 KiB; they tell nearly all apart. The highest byte is the
    literal that ``re`` looks for first.
    """
    stop = min(len(code), block + _BLOCK)
    first, last = start >> 12, end - 1 >> 12
    units = _two_bytes(first - (address + stop >> 12) >> 5, last - (address + block >> 12) >> 5)
    for literal in (b"\x90", b"\xb0", b"\xd0", b"\xf0") if units else ():
        pattern = re.compile(b"(?s)" + literal + b"(?<=(?:" + units + b")" + literal + b")")
        for hit in pattern.finditer(code, block, stop):
            at = hit.start() - 3
            if at % 4 == 0 and first <= (address + at >> 12) + _adr_distance(code, at) <= last:
                yield at


def _two_bytes(low: int, high: int) -> bytes:
    """A pattern for two bytes, the lower first, of a signed low <= number <= high; empty where there is none."""
    low, high = max(low, -0x8000), min(high, 0x7FFF)
    first, last = low >> 8, high >> 8
    if low > high:
        return b""
    if first == last:
        return _byte_class(range(low & 0xFF, (high & 0xFF) + 1)) + _byte_class([first & 0xFF])
    choices = [
        _byte_class(range(low & 0xFF, 0x100)) + _byte_class([first & 0xFF]),
        _byte_class(range((high & 0xFF) + 1)) + _byte_class([last & 0xFF]),
    ]
    if first + 1 < last:
        choices.append(b"." + _byte_class(top & 0xFF for top in range(first + 1, last)))
    return b"|".join(choices)


def _low_bits(code: memoryview, at: int) -> Iterator[int]:
    """The low 12 bits that the instructions behind an ADRP add to its register: all, when none is found soon.

    ADD (immediate, 64 bits), or a load or store with an unsigned offset, which counts in units of its size; both
    name the register in bits 5 to 9 and the number in bits 10 to 21 (Arm A64 instruction set).
    """
    register = code[at] & 31
    found = False
    for following in range(at + 4, min(at + 4 * _WINDOW, len(code) - 3), 4):
        (word,) = struct.unpack_from("<I", code, following)
        add, moves = word >> 22 == 0x244, word >> 24 & 0x3B == 0x39
        if word >> 5 & 31 == register and (add or moves):
            scale = 0 if add else 4 if word >> 26 & 1 and word >> 23 & 1 else word >> 30
            found = True
            yield (word >> 10 & 0xFFF) << scale
        vector = word >> 25 & 7 == 7 or (word >> 25 & 5 == 4 and word >> 26 & 1)
        if word & 31 == register and not vector:
            break  # from here on the register holds something else
    if not found:
        yield from range(0, 4096, 8)


def _adr_distance(code: memoryview, at: int) -> int:
    """The signed number of an ADR or ADRP: immlo in bits 29 and 30, immhi in bits 5 to 23."""
    word = int.from_bytes(code[at : at + 4], "little")
    number = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    return number - (1 << 21) if number >> 20 else number
