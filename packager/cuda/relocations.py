"""A table of relocations with addends (Elf64_Rela), searched column by column.

cuBLASLt has 450,000 of them, a tenth of a second for whoever looks at each. So two bytes are taken of every
address, each a slice of the table with a stride, and the addresses that they rule out are never looked at.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence

Range = tuple[int, int]

RELATIVE = {"x86_64": 8, "aarch64": 1027}
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE: the loader writes its base plus the addend."""

ENTRY_SIZE = 24
ADDEND_AT = 16
"""Bytes from the start of an entry; the place comes first, then type and symbol."""
_SET = re.compile(b"\1")
_SHIFTS = (24, 16)  # bits below the bytes that are taken


class Relocations:
    """The relocations of ``rows``, by number: ``places`` that the loader writes to, ``kinds`` (the type, and the
    symbol 32 bits higher) and ``addends``.
    """

    def __init__(self, rows: bytes) -> None:
        words = array("Q", rows)
        self.places, self.kinds, self.addends = words[0::3], words[1::3], words[2::3]
        self._rows = rows

    def __len__(self) -> int:
        return len(self.places)

    def at(self, ranges: Sequence[Range]) -> list[int]:
        """The numbers of those whose place is in one of these ranges: start <= place < end."""
        return self._within(0, self.places, ranges)

    def into(self, ranges: Sequence[Range]) -> list[int]:
        """The numbers of those whose addend, unsigned, is in one of these ranges."""
        return self._within(ADDEND_AT, self.addends, ranges)

    def _within(self, column: int, addresses: array[int], ranges: Sequence[Range]) -> list[int]:
        near = [hit.start() for hit in _SET.finditer(self._near(column, ranges))]
        return [number for number in near if within(addresses[number], ranges)]

    def _near(self, column: int, ranges: Sequence[Range]) -> bytes:
        """For each relocation a byte that is not 0 where the address may be in one of the ranges.

        Flags are combined as the digits of large numbers, since Python has no other way to do it in one step.
        """
        near = 0
        for start, end in ranges:
            both = -1
            for shift in _SHIFTS:
                low, high = start >> shift, end - 1 >> shift
                possible = {number & 0xFF for number in range(low, min(high, low + 0xFF) + 1)}
                table = bytes(byte in possible for byte in range(256))
                taken = self._rows[column + shift // 8 :: ENTRY_SIZE]
                both &= int.from_bytes(taken.translate(table), "little")
            near |= both
        return near.to_bytes(len(self), "little")


def within(address: int, ranges: Sequence[Range]) -> bool:
    """Whether an address is in one of these ranges."""
    for low, high in ranges:  # noqa: SIM110 - any() would take three times as long, for each of 100,000 relocations
        if low <= address < high:
            return True
    return False
