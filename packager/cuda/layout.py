"""The tables and offsets of the new file.

Each segment with holes becomes several, one behind the other in memory: every byte keeps its address. glibc
(elf/dl-map-segments.h) and Linux (fs/binfmt_elf.c) fill the part of a segment that the file does not hold with
zero pages, so a piece and the hole behind it are one PT_LOAD whose memory is larger than its file size. Where
the segment is executable, pages of zeros must not be: SELinux forbids anonymous executable memory. There a piece
that is all GPU code is mapped without PF_X, and any other is followed by a PT_LOAD of its own for the hole.

More headers than the linker left room for need another place, and the room that GPU code left is the best: the
first such room, before anything moved in the file, so that the table's address is its offset plus the base, which
is what older kernels assume for a program (AT_PHDR, before Linux 5.18). Only a shared object may have it elsewhere,
in a segment of its own at the end: glibc finds it in any segment. GNU strip and objcopy expect the table behind
the ELF header and write a file that does not load, as with a table that patchelf moved: strip first, then cut.
dpack's own strip leaves it where it is. Behind the new table stand the program headers from before any cut, so
that the next cut knows them.

Alignment: p_align asks two things. Offset and address must agree modulo p_align, and the base is a multiple of
the largest p_align (glibc since 2.35, Linux since 5.10). The first segment keeps its offset and gets the largest
of all, so both still hold, and with them the alignment of every variable; all later ones get the page size, which
costs no file space where 2 MiB would cost up to 2 MiB a segment, and is all that a loader needs to map them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packager.cuda.holes import Hole
from packager.cuda.image import (
    PF_R,
    PF_X,
    PT_PHDR,
    ROW_SIZE,
    SECTION_SIZE,
    SHF_ALLOC,
    SHT_NOBITS,
    Header,
    Image,
    Row,
)
from packager.cuda.rebuild import Edit
from packager.cuda.regions import Range, Region
from packager.resolve.elf import PT_LOAD


class Piece(NamedTuple):
    """Addresses start to end come from the file at ``offset``, from there to ``memory_end`` they are zero.

    ``apart`` is the alignment of the segment that the zeros are by themselves, 0 where they are not.
    """

    start: int
    end: int
    memory_end: int
    flags: int
    align: int
    offset: int = -1
    apart: int = 0

    @property
    def rows(self) -> list[Row]:
        """The program headers: one, or two where the zeros need permissions of their own."""
        size = self.end - self.start
        memory = size if self.apart else self.memory_end - self.start
        rows = [Row(PT_LOAD, self.flags, self.offset, self.start, self.start, size, memory, self.align)]
        if self.apart:
            zeros = self.memory_end - self.end
            rows.append(Row(PT_LOAD, PF_R, self.offset + size, self.end, self.end, 0, zeros, self.apart))
        return rows


class Changes(NamedTuple):
    """What shapes the new tables. ``coded`` are the regions that hold GPU code: no others lose pages."""

    edits: tuple[Edit, ...]
    holes: tuple[Hole, ...]
    coded: tuple[Region, ...]


class Chunk(NamedTuple):
    """``size`` bytes of the old file at ``source`` that no segment maps, and where they go."""

    source: int
    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything about the new file but the bytes themselves. ``table`` is the offset of the program headers."""

    rows: tuple[Row, ...]
    headers: tuple[Header, ...]
    pieces: tuple[Piece, ...]
    chunks: tuple[Chunk, ...]
    table: int
    sections: int
    size: int

    def offset_of(self, address: int) -> int:
        """Where the byte for this address is in the new file, or would be."""
        return _offset_of(self.pieces, address)


def _offset_of(pieces: Sequence[Piece], address: int) -> int:
    at = max(0, bisect_right(pieces, address, key=lambda piece: piece.start) - 1)
    piece = pieces[at]
    return piece.offset + max(0, min(address, piece.end) - piece.start)


def pieces_of(image: Image, holes: Sequence[Hole], coded: Sequence[Region]) -> list[Piece]:
    """The segments cut at the holes; those before the first hole have their old offset, the others none (-1)."""
    pieces = []
    for number, load in enumerate(image.loads):
        small = min(load.align, image.granule)
        align = small if number else largest_align(image)
        start, at = load.address, -1 if any(hole.start < load.address for hole in holes) else load.offset
        for hole in holes:
            if load.address <= hole.start < load.end:
                data = start > load.address and any(
                    r.number is not None and r.start <= start and hole.start <= r.end for r in coded
                )
                flags = load.flags & ~PF_X if data else load.flags
                apart = small if flags & PF_X else 0
                pieces.append(Piece(start, hole.start, hole.end, flags, align, at, apart))
                start, align, at = hole.end, small, -1
        if start < load.memory_end:
            pieces.append(Piece(start, max(start, load.end), load.memory_end, load.flags, align, at))
    return pieces


def largest_align(image: Image) -> int:
    """The p_align of the first segment after a cut; a program at a fixed address keeps the one it has."""
    loads = image.loads if image.position_independent else image.loads[:1]
    return max(load.align for load in loads)


def row_count(image: Image, pieces: Iterable[Piece]) -> int:
    """How many program headers there are with these pieces."""
    return len(image.rows) - len(image.loads) + sum(len(piece.rows) for piece in pieces)


def placed(image: Image, pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces with their offsets: from the first hole on, one behind the other as closely as pages allow."""
    at, result = 0, []
    for piece in pieces:
        at = piece.offset if piece.offset >= at else at + (piece.start - at) % image.granule
        result.append(piece._replace(offset=at))
        at += piece.end - piece.start
    return result


def lay_out(image: Image, changes: Changes, table: int | None) -> Layout:
    """The new file, its program headers at the address ``table``, or behind all else where that is None."""
    pieces = pieces_of(image, changes.holes, changes.coded)
    count = row_count(image, pieces)
    if table is None:
        start = -(-max(row.memory_end for row in image.loads) // image.granule) * image.granule
        table, count = start, count + 1
        end = start + table_size(image, count)
        pieces.append(Piece(start, end, end, PF_R, image.granule))
    pieces = placed(image, pieces)
    at = pieces[-1].offset + pieces[-1].end - pieces[-1].start
    chunks = _chunks(image, at)
    at = chunks[-1].offset + chunks[-1].size if chunks else at
    headers = _headers(image, changes, pieces, chunks)
    sections = -(-at // 8) * 8 if headers else 0
    return Layout(
        rows=tuple(_rows(image, pieces, chunks, table, count)),
        headers=tuple(headers),
        pieces=tuple(pieces),
        chunks=tuple(chunks),
        table=_offset_of(pieces, table),
        sections=sections,
        size=sections + SECTION_SIZE * len(headers) if headers else at,
    )


def _rows(
    image: Image, pieces: Sequence[Piece], chunks: Sequence[Chunk], table: int, count: int
) -> Iterable[Row]:
    """The program headers in their old order, each PT_LOAD as its pieces."""
    left = list(reversed(pieces))
    for row in image.rows:
        if row.type == PT_LOAD:
            while left and row.address <= left[-1].start < max(row.memory_end, row.address + 1):
                yield from left.pop().rows
        elif row.type == PT_PHDR:
            size = count * ROW_SIZE
            place = _offset_of(pieces, table)
            yield row._replace(offset=place, address=table, physical=table, size=size, memory_size=size)
        elif row.memory_size and any(load.address <= row.address < load.memory_end for load in image.loads):
            yield row._replace(offset=_offset_of(pieces, row.address))
        else:
            yield row._replace(offset=_moved(chunks, row.offset))
    for piece in left:
        yield from piece.rows


def _moved(chunks: Sequence[Chunk], offset: int) -> int:
    for chunk in chunks:
        if chunk.source <= offset < chunk.source + chunk.size:
            return chunk.offset + offset - chunk.source
    return offset


def _in_file_only(image: Image) -> list[tuple[int, int, int]]:
    """Offset, end and alignment of what only the section headers know, in file order, overlaps as one."""
    alone = sorted(
        (h.offset, h.offset + h.size, max(1, h.align))
        for h in image.headers
        if not h.flags & SHF_ALLOC and h.size and h.type not in {0, SHT_NOBITS}
    )
    result: list[tuple[int, int, int]] = []
    for start, end, align in alone:
        if result and start < result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]), max(align, result[-1][2]))
        else:
            result.append((start, end, align))
    return result


def _chunks(image: Image, at: int) -> list[Chunk]:
    chunks = []
    for start, end, align in _in_file_only(image):
        at = -(-at // align) * align
        chunks.append(Chunk(start, end - start, at))
        at += end - start
    return chunks


def _headers(
    image: Image, changes: Changes, pieces: Sequence[Piece], chunks: Sequence[Chunk]
) -> list[Header]:
    """The section headers: those of cut sections end at the first hole, and their further pieces come last,
    so that the numbers by which symbols name sections stay.
    """
    ends = {edit.region.number: edit.end for edit in changes.edits}
    numbers = {region.number for region in changes.coded}
    result, more = [], []
    for number, header in enumerate(image.headers):
        if not header.flags & SHF_ALLOC:
            kept = (
                header if header.type == SHT_NOBITS else header._replace(offset=_moved(chunks, header.offset))
            )
            result.append(kept)
            continue
        ranges = [(header.address, ends.get(number, header.end))]
        if number in numbers:
            ranges = list(_outside(ranges[0], changes.holes))
        split = [
            header._replace(address=start, offset=_offset_of(pieces, start), size=end - start)
            for start, end in ranges
        ]
        result.append(split[0])
        more += split[1:]
    return result + more


def _outside(whole: Range, holes: Sequence[Hole]) -> Iterable[Range]:
    """The parts of a range outside the holes; the first begins where the range does."""
    at, end = whole
    for hole in holes:
        if at < hole.end and hole.start < end:
            yield at, hole.start
            at = hole.end
    if at < end:
        yield at, end


def table_size(image: Image, count: int) -> int:
    """Bytes that ``count`` program headers take, with those from before any cut behind them."""
    return (count + len(image.rows)) * ROW_SIZE


def table_limit(image: Image) -> int:
    """How many program headers a cut file may have.

    Older kernels start no program whose table is larger than a page (Linux 4.18, load_elf_phdrs). glibc has no
    limit for a shared object, but puts the table and about as much again on the stack of the thread that calls
    dlopen: 2,048 headers take 230 KB of it, and twice as many of the 65,530 mappings of a process.
    """
    return 0x1000 // ROW_SIZE if image.program else 2048
