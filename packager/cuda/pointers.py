"""What points into a range of addresses: relocations, symbols, and the machine code itself.

A shared object holds no absolute address but in its relocations, and reaches its own data by the distance from
the instruction: with ``lea`` on x86_64, with a pair of ``adrp`` and ``add`` on aarch64. So whoever reads all
three kinds knows every way by which the loaded object can name an address. Relocation types are those of the
psABI supplements for the two machines.
"""

from __future__ import annotations

import mmap
import re
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from packager.cuda.image import PF_X, SHF_EXECINSTR, SHT_SYMTAB, Image, give_back
from packager.resolve.elf import DT_JMPREL, DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_SYMTAB, ElfFile

RELATIVE = {"x86_64": 8, "aarch64": 1027}
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE: the loader writes its base plus the addend."""

_DT_REL, _DT_RELR, _DT_RELRSZ = 17, 36, 35
_NO_ADDRESS = {3, 4, 6}  # STT_SECTION, STT_FILE; STT_TLS is a place in a block
_SHT_DYNSYM = 11
_RELA_SIZE, _SYMBOL_SIZE = 24, 24
_WINDOW = 32  # instructions
_BLOCK = 1 << 23
_NEAR = 1 << 16
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


@dataclass(frozen=True, slots=True)
class Pointers:
    """What one file's relocations and symbols point at within some bounds, and where the loader writes at all.

    ``unknown`` says what could not be read; then nothing is known.
    """

    pointers: tuple[Pointer, ...] = ()
    places: Sequence[int] = ()
    unknown: str = ""

    def into(self, start: int, end: int) -> list[Pointer]:
        """The pointers whose target lies in start <= target < end, in order of target."""
        low, high = (bisect_left(self.pointers, at, key=itemgetter(0)) for at in (start, end))
        return list(self.pointers[low:high])

    def written(self, ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
        """The places that the loader writes eight bytes to of which one or more are in these ranges."""
        for start, end in ranges:
            yield from self.places[bisect_left(self.places, start - 7) : bisect_left(self.places, end)]


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
        packed = tuple(_packed_places(file))
        tables = list(_tables(file))
    found, places, ranges = list[Pointer](), array("Q"), _wide(ranges)
    for at, size in tables:
        count = max(0, min(size, len(content) - at)) // _RELA_SIZE
        part = array("Q", content[at : at + count * _RELA_SIZE])
        places += part[0::3]
        found += _relative(part, at, relative, ranges)
        found += _symbolic(part, content, dynamic, relative, ranges)
    words = list(_words(image, content, packed))
    places.extend(place for place, _, _ in words)
    found += [Pointer(word, place, at) for place, at, word in words if _inside(word, ranges)]
    found += _symbols(image, content, ranges)
    ordered = sorted(dict.fromkeys(found), key=itemgetter(0))
    return Pointers(tuple(ordered), array("Q", sorted(places)))


def _wide(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same ranges, those that are near each other as one: each costs a pass over every relocation."""
    result: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if result and start - result[-1][1] < _NEAR:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def _inside(address: int, ranges: Sequence[tuple[int, int]]) -> bool:
    for low, high in ranges:  # noqa: SIM110 - any() would take three times as long, for each of 24,000 relocations
        if low <= address < high:
            return True
    return False


def _tables(file: ElfFile) -> Iterator[tuple[int, int]]:
    """Offset and size of the tables of relocations with addends."""
    for start, size in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        address, length = file.tag(start), file.tag(size)
        if address is not None and length:
            yield file.offset_of(address), length


def _relative(
    part: array[int], at: int, relative: int, ranges: Sequence[tuple[int, int]]
) -> Iterator[Pointer]:
    """The relocations at ``at`` of the file by which the loader's base plus a place in the ranges is written."""
    places, kinds, targets = part[0::3], part[1::3], part[2::3].tolist()
    lowest, highest = ranges[0][0], ranges[-1][1]
    near = [number for number, target in enumerate(targets) if lowest <= target < highest]
    hits = [number for low, high in ranges for number in near if low <= targets[number] < high]
    hits = [number for number in hits if kinds[number] == relative]
    # tuple's own constructor: three times as fast as a call of Pointer, for 40,000 of them.
    return map(
        Pointer._make,
        zip(
            [targets[number] for number in hits],
            [places[number] for number in hits],
            [at + _RELA_SIZE * number + 16 for number in hits],
            strict=True,
        ),
    )


def _symbolic(
    part: array[int],
    content: mmap.mmap,
    dynamic: int | None,
    relative: int,
    ranges: Sequence[tuple[int, int]],
) -> Iterator[Pointer]:
    """All other relocations: a symbol's value and an addend."""
    kinds = part[1::3]
    count = kinds.count(relative)
    # Linkers put the relative ones first, and nobody wants to look at 400,000 of them for nothing.
    first = count if kinds[:count] == array("Q", [relative]) * count else 0
    for number in [number for number in range(first, len(kinds)) if kinds[number] != relative]:
        kind, target = kinds[number], part[3 * number + 2]
        at = (dynamic or 0) + _SYMBOL_SIZE * (kind >> 32)
        if dynamic is not None and kind >> 32 and at + _SYMBOL_SIZE <= len(content):
            target = _word(content, at + 8)[0] + target & (1 << 64) - 1
        if _inside(target, ranges):
            yield Pointer(target, part[3 * number], None)


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

    Bytes that only look like such an instruction count too, so False is a proof and True a suspicion. In the
    ten cuDNN and cuBLAS libraries of CUDA 12.9, with 200 MB of code and 680,000 ``lea`` instructions, not one
    points anywhere into .nv_fatbin.
    """
    look = {"x86_64": _lea_refers, "aarch64": _adrp_refers}[image.machine.name]
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


def _adrp_refers(content: mmap.mmap, part: tuple[int, int, int], start: int, end: int) -> bool:
    """ADRP: 1 immlo:2 10000 immhi:19 Rd:5, the distance in pages of 4 KiB from the instruction's own page.

    Bits 16 to 23 are the top of immhi, units of 32 MiB; the highest byte is the literal that comes first. The
    pages at both ends are the neighbours' too: there what follows the ADRP says which byte is meant.
    """
    address, offset, size = part
    low, high = (start - address - size) >> 25, (end - address) >> 25
    tops = sorted({top & 0xFF for top in range(max(low, -0x80), min(high, 0x7F) + 1)})
    with memoryview(content)[offset : offset + size] as code:
        for literal in (b"\\x90", b"\\xb0", b"\\xd0", b"\\xf0"):
            pattern = re.compile(b"(?s)" + literal + b"(?<=" + _byte_class(tops) + literal + b")")
            for hit in pattern.finditer(code):
                at = hit.start() - 3
                if at % 4 == 0 and start >> 12 <= _adrp_page(code, address, at) <= end - 1 >> 12:
                    page = _adrp_page(code, address, at) << 12
                    if any(start <= page + low < end for low in _low_bits(code, at)):
                        return True
    give_back(content, offset, size)
    return False


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


def _adrp_page(code: memoryview, address: int, at: int) -> int:
    word = int.from_bytes(code[at : at + 4], "little")
    pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
    return (address + at >> 12) + (pages - (1 << 21) if pages >> 20 else pages)
