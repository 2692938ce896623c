"""Brings the edits of the sections together: holes, the place of the program headers, the tables, the bytes."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from packager.cuda.holes import Fresh, Hole, at_least, find_holes
from packager.cuda.image import Extent, Image
from packager.cuda.layout import (
    Changes,
    Layout,
    lay_out,
    pieces_of,
    row_count,
    table_limit,
    table_size,
)
from packager.cuda.rebuild import Edit
from packager.cuda.regions import Range, Region
from packager.errors import DpackError


@dataclass(frozen=True, slots=True)
class Assembly:
    """Where every byte of the new file comes from.

    ``spans`` are the copies by address, which :class:`Layout` turns into offsets; ``patches`` are written over
    them, bytes by offset in the new file. What neither has is zero.
    """

    layout: Layout
    spans: tuple[Extent, ...]
    patches: tuple[tuple[int, bytes], ...]
    holes: int

    def copies(self) -> Iterator[tuple[int, int, int]]:
        """Offset in the new file, offset in the old one and size of everything copied, in the new order."""
        spans, number = self.spans, 0
        for piece in self.layout.pieces:
            while number < len(spans) and spans[number].end <= piece.start:
                number += 1
            at = number
            while at < len(spans) and spans[at].address < piece.end:
                span = spans[at]
                low, high = max(span.address, piece.start), min(span.end, piece.end)
                yield piece.offset + low - piece.start, span.offset + low - span.address, high - low
                at += 1
        yield from ((chunk.offset, chunk.source, chunk.size) for chunk in self.layout.chunks)


def assemble(
    image: Image,
    content: mmap.mmap,
    edits: Sequence[Edit],
    coded: tuple[Region, ...],
    staying: Sequence[Range],
) -> Assembly | None:
    """The new file; None where a program has no place for its program headers. ``coded`` are the regions with GPU
    code, ``staying`` the address ranges where it is afterwards.
    """
    fresh = Fresh.of(image, content, edits)
    numbers = frozenset(region.number for region in coded if region.number is not None)
    found = find_holes(image, fresh, [dead for edit in edits for dead in edit.dead], numbers, staying)
    for smallest in count(image.granule, image.granule):
        holes = at_least(found, smallest)
        table = _table(image, fresh, edits, holes)
        if table is None and image.program:
            return None
        if table is not None:
            rows = row_count(image, pieces_of(image, holes, coded))
            holes = _behind(holes, -(-(table + table_size(image, rows)) // image.granule) * image.granule)
        layout = lay_out(image, Changes(tuple(edits), tuple(holes), coded), table)
        if len(layout.rows) <= table_limit(image):
            return Assembly(layout, fresh.spans, tuple(_patches(image, edits, layout)), len(holes))
    raise AssertionError("count() ends")  # for the type checker


def _table(image: Image, fresh: Fresh, edits: Sequence[Edit], holes: Sequence[Hole]) -> int | None:
    """The address for the program headers: the first room that is large enough for the most that there can be, so
    that the answer is the same however many there are. None where there is none before everything that moves.
    """
    need = table_size(image, table_limit(image)) + image.granule
    spots = {-(-spot // 8) * 8 for edit in edits for spot in edit.spots}
    spots |= {image.table[0]} if image.table else set()
    for start in sorted(spots):
        hole = next((h for h in holes if h.start - image.granule < start < h.end), None)
        if (
            hole
            and start + need <= hole.end
            and fresh.zero(start, hole.start)
            and _at_its_offset(image, start)
        ):
            return start if image.program or hole == holes[0] else None
    return None


def _at_its_offset(image: Image, address: int) -> bool:
    """Whether an address is as far from the first segment's in memory as in the file."""
    load = image.load_of(address, address)
    return load is not None and load.address - load.offset == image.loads[0].address


def _behind(holes: Sequence[Hole], address: int) -> list[Hole]:
    """The holes from an address on; an earlier one would move the table in the file."""
    return [Hole(max(hole.start, address), hole.end) for hole in holes if hole.end > address]


def _patches(image: Image, edits: Sequence[Edit], layout: Layout) -> Iterator[tuple[int, bytes]]:
    """The ELF header, the program headers new and old, the section headers, and what the edits ask for."""
    head = bytearray(image.head)
    struct.pack_into("<Q", head, 32, layout.table)
    struct.pack_into("<Q", head, 40, layout.sections)
    struct.pack_into("<H", head, 56, len(layout.rows))
    struct.pack_into("<H", head, 60, len(layout.headers))
    yield 0, bytes(head)
    yield layout.table, b"".join(row.pack() for row in (*layout.rows, *image.rows))
    if layout.headers:
        yield layout.sections, b"".join(header.pack() for header in layout.headers)
    for edit in edits:
        yield from ((layout.offset_of(address), content) for address, content in edit.patches)
        yield from ((_new_offset(image, layout, at), content) for at, content in edit.file_patches)


def _new_offset(image: Image, layout: Layout, at: int) -> int:
    """Where a byte at this offset of the old file, outside all GPU code, is in the new one."""
    for extent in image.extents:
        if extent.offset <= at < extent.offset + extent.size:
            return layout.offset_of(extent.address + at - extent.offset)
    for chunk in layout.chunks:
        if chunk.source <= at < chunk.source + chunk.size:
            return chunk.offset + at - chunk.source
    raise DpackError(f"cannot cut {image.path}", "damaged: its relocations are in no segment")
