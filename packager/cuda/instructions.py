"""Whether machine code names an address within a range.

A shared object holds no absolute address but in its relocations, and reaches its own data by the distance from
the instruction: with ``lea`` on x86_64, with ``adr``, or ``adrp`` and ``add``, on aarch64. So whoever knows these,
the relocations and the symbols knows every way by which compilers take the address of data. What is not looked
for: an instruction that reads a container and takes no address (a program that compares its own fatbin's magic,
say), and a distance that stands in data or in a ``movabs`` (the large code model). nvcc makes none of these for its
sections, which only the wrappers name.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterable, Iterator

from packager.cuda.image import PF_X, SHF_EXECINSTR, Image, give_back

_WINDOW = 32  # instructions
_BLOCK = 1 << 22
_ADR_REACH = 1 << 20
_distance = struct.Struct("<i").unpack_from
_REX_W = b"\x48\x4c"  # with and without REX.R; REX.X and REX.B mean nothing here, and no assembler sets them


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
