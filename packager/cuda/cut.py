"""Cut from a file the GPU code that is not kept, so that the file is smaller and loads as before.

image     the tables of the file, as they were before any cut
regions   its GPU code, section by section
pointers  what points into a section
rebuild   what a section keeps, and where it goes
holes     the pages that leave the file
layout    the new tables and offsets
assemble  all of these together;  stream  writes it

Every byte that stays has the address that it had, the members of packed containers aside. What no proof allows
to go stays, as a :class:`Left` that says why. Cutting twice changes nothing, and cutting for some GPUs and then
for fewer is the same, to the byte, as cutting for the fewer at once.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise, takewhile
from pathlib import Path

from packager.cuda.assemble import Assembly, assemble
from packager.cuda.code import GpuCode, Loose, Member
from packager.cuda.image import (
    HEADER_SIZE,
    PF_X,
    ROW_SIZE,
    SECTION_SIZE,
    SHF_ALLOC,
    SHT_NOBITS,
    Header,
    Image,
    Mapped,
    read_image,
)
from packager.cuda.layout import Piece, largest_align, table_limit
from packager.cuda.pointers import read_pointers
from packager.cuda.rebuild import Aims, Edit, aimed_at, rebuild
from packager.cuda.regions import Code, Left, Range, Region, coded, codes_of
from packager.cuda.relocations import RELATIVE
from packager.cuda.select import Selection
from packager.cuda.stream import changed, write_file

_ADDRESSES = 1 << 48
_SECTIONS = 0xFF00  # SHN_LORESERVE; each hole may make one more of them
_NO_ROOM = "a program's headers find no room where every kernel looks for them"
_NO_PAGE = "too little goes to free a page"

__all__ = ["Aims", "Cut", "Left", "SectionCut", "code_aims", "plan_cut", "write"]


@dataclass(frozen=True, slots=True)
class SectionCut:
    """One section with GPU code: its bytes in the file before and after.

    ``technique`` is "packed" or "in place" (see rebuild), and empty for a section that stays as it is.
    """

    name: str
    before: int
    after: int
    technique: str


@dataclass(frozen=True, slots=True)
class Cut:
    """What is cut from one file. ``size`` is that of the file which :func:`write` makes, to the byte.

    ``whole`` is the size before and ``modified`` the time of that file, in nanoseconds; ``kept`` are the members
    and loose cubins that are in the new file, those that could not go included. ``assembly`` is None where nothing
    changes.
    """

    path: str
    whole: int
    modified: int
    size: int
    kept: tuple[Member | Loose, ...]
    sections: tuple[SectionCut, ...]
    left: tuple[Left, ...]
    assembly: Assembly | None

    @property
    def removed(self) -> int:
        """Bytes that the file loses."""
        return self.whole - self.size

    @property
    def segments(self) -> int:
        """Program headers of the new file; 0 where nothing changes."""
        return len(self.assembly.layout.rows) if self.assembly else 0


def code_aims(source: Path) -> Aims:
    """Which of nvcc's sections the machine code of a file refers to, or seems to; the slowest proof of a cut."""
    image = read_image(source)
    with Mapped(source) as content:
        return frozenset() if _unfit(image, content) else aimed_at(image, content)


def plan_cut(code: GpuCode, selection: Selection, *, aims: Callable[[], Aims] | None = None) -> Cut:
    """Decide what goes from the file ``code`` is of: all that ``selection`` drops, as far as that is proven safe.

    ``aims`` gives the file's :func:`code_aims`, where somebody else finds them meanwhile. Raises ElfError for a
    damaged file, DpackError for one that changed since it was scanned.
    """
    source = Path(code.path)
    aims = aims or partial(code_aims, source)
    image = read_image(source)
    if (image.size, image.modified) != (code.size, code.modified):
        raise changed(source)
    codes = codes_of(image, code, _kept(selection))
    dead = [each for each in codes if each.dead_size]
    if not dead:
        return _unchanged(code, image, codes, [])
    with Mapped(source) as content:
        if why := _unfit(image, content):
            return _unchanged(code, image, codes, [Left(c.region.name, c.dead_size, why) for c in dead])
        edits, left = _edits(image, content, dead, aims)
        if image.program:
            room = image.table[0] if image.table else _ADDRESSES
            early = list(takewhile(lambda edit: not edit.spots and edit.region.start < room, edits))
            edits = edits[len(early) :]
            left += [Left(c.region.name, c.dead_size, _NO_ROOM) for c in dead if _of(c, early)]
        staying = [each for some in codes for each in _staying(some, _of(some, edits))]
        assembly = assemble(image, content, edits, coded(image, codes), staying) if edits else None
    if assembly is None or not _worth(assembly, image):
        why = _NO_ROOM if edits and assembly is None else _NO_PAGE
        left += [
            Left(c.region.name, c.dead_size, why) for c in dead if any(e.region == c.region for e in edits)
        ]
        return _unchanged(code, image, codes, left)
    return Cut(
        code.path,
        code.size,
        code.modified,
        assembly.layout.size,
        tuple(piece for each in codes for piece in _stay(each, edits)),
        _figures(image, codes, edits, assembly.layout.pieces),
        tuple(left),
        assembly,
    )


def write(source: Path, target: Path, cut: Cut, *, to_disk: bool = False) -> None:
    """Write the cut file, or a copy where nothing is cut; mode 0755. ``to_disk`` where fsync follows.

    Raises DpackError when ``source`` is not the file that was planned for.
    """
    write_file(source, target, (cut.whole, cut.modified), cut.assembly, to_disk=to_disk)


def _kept(selection: Selection) -> frozenset[int]:
    """The offsets in the file of the members and loose cubins that stay."""
    members = (member.offset for kept in selection.containers for member in kept.members)
    return frozenset({*members, *(piece.offset for piece in selection.loose)})


def _unfit(image: Image, content: mmap.mmap) -> str:
    """Why a file cannot be cut at all; empty when it can."""
    if why := _unfit_tables(image):
        return why
    if any(content[start:end].count(0) != end - start for start, end in _unknown(image)):
        return "it holds data that no section or segment knows"
    return ""


def _unfit_tables(image: Image) -> str:
    """The same, as far as the headers tell."""
    loads = image.loads
    if image.machine.name not in RELATIVE:
        return f"dpack does not know the relocations of {image.machine.name}"
    if not loads or loads[0].offset or loads[0].size < HEADER_SIZE:
        return "its first segment does not begin with the ELF header"
    if len(image.headers) + table_limit(image) >= _SECTIONS:
        return "it has more sections than a cut file could number"
    if loads[0].address % max(1, largest_align(image)):
        return "its first segment does not begin where the largest alignment asks"
    return (
        ""
        if _consistent(image)
        else "its segments and sections contradict each other, or lie outside the file"
    )


def _consistent(image: Image) -> bool:
    """Whether segments are in order and apart, and segments and sections agree on what is where."""
    loads, stored = image.loads, _unmapped(image)
    mapped = [header for header in image.headers if header.loaded]
    return (
        all(a.memory_end <= b.address for a, b in pairwise(loads))
        and all(a.end <= b.address for a, b in pairwise(image.extents))
        and all(row.size <= row.memory_size and not row.align & (row.align - 1) for row in loads)
        and loads[-1].memory_end <= _ADDRESSES
        and all(extent.offset + extent.size <= image.size for extent in image.extents)
        and all(h.offset + h.size <= image.size and h.align <= image.size for h in stored)
        and all(max(h.end, h.align) <= _ADDRESSES and not h.align & (h.align - 1) for h in mapped)
        and all(image.offset_of(h.address) == h.offset for h in mapped)
    )


def _unmapped(image: Image) -> list[Header]:
    """The sections that are in the file alone."""
    return [h for h in image.headers if h.type not in {0, SHT_NOBITS} and not h.flags & SHF_ALLOC]


def _unknown(image: Image) -> Iterator[Range]:
    """The ranges of the file that nothing leads to: no segment, no section, no table.

    What follows an executable segment up to the end of its page counts as its own: lld fills that with traps.
    """
    program, sections = struct.unpack_from("<QQ", image.head, 32)
    rows, headers = (struct.unpack_from("<H", image.head, at)[0] for at in (56, 60))
    table = image.table[1] - image.table[0] if image.table else ROW_SIZE * rows
    known = [(0, HEADER_SIZE), (program, program + table), (sections, sections + SECTION_SIZE * headers)]
    known += [(header.offset, header.offset + header.size) for header in _unmapped(image)]
    runs = {row.address for row in image.loads if row.flags & PF_X}
    for extent in image.extents:
        end = extent.offset + extent.size
        known.append((extent.offset, end + -end % image.granule if extent.address in runs else end))
    at = 0
    for start, end in sorted(known):
        if at < min(start, image.size):
            yield at, min(start, image.size)
        at = max(at, end)
    if at < image.size:
        yield at, image.size


def _worth(assembly: Assembly, image: Image) -> bool:
    """Whether the file gets smaller. One that was cut before goes the whole way, so that both ways end alike."""
    saved = image.size - assembly.layout.size
    return bool(assembly.holes and (saved > 0 or (saved == 0 and image.gone)))


def _edits(
    image: Image, content: mmap.mmap, codes: Sequence[Code], aims: Callable[[], Aims]
) -> tuple[list[Edit], list[Left]]:
    pointers = read_pointers(image, content, [(each.region.start, each.region.end) for each in codes])
    edits, left = list[Edit](), list[Left]()
    for code in codes:
        edit, stays = rebuild(image, content, pointers, code, aims)
        edits += [edit] if edit else []
        left += stays
    return edits, left


def _unchanged(code: GpuCode, image: Image, codes: Sequence[Code], left: list[Left]) -> Cut:
    pieces = [Piece(extent.address, extent.end, extent.end, 0, 1) for extent in image.extents]
    figures = _figures(image, codes, (), pieces)
    return Cut(code.path, code.size, code.modified, code.size, code.pieces, figures, tuple(left), None)


def _figures(
    image: Image, codes: Sequence[Code], edits: Sequence[Edit], pieces: Sequence[Piece]
) -> tuple[SectionCut, ...]:
    techniques = {edit.region: edit.technique for edit in edits}
    return tuple(
        SectionCut(
            each.region.name,
            sum(_shared(extent.address, extent.end, each.region) for extent in image.extents),
            sum(_shared(piece.start, piece.end, each.region) for piece in pieces),
            techniques.get(each.region, ""),
        )
        for each in codes
    )


def _of(code: Code, edits: Sequence[Edit]) -> Edit | None:
    """The edit of a region, if it has one."""
    return next((edit for edit in edits if edit.region == code.region), None)


def _staying(code: Code, edit: Edit | None) -> Iterator[Range]:
    """Where the GPU code of a region is afterwards: what was copied, and what nothing replaced."""
    replaced = {start for start, _ in edit.replaced} if edit else set()
    if edit:
        yield from ((copy.address, copy.end) for copy in edit.copies)
    if not (edit and edit.technique == "packed"):
        whole = [(each.address, each.address + each.size) for each in code.containers]
        whole += [(each.address, each.address + each.size) for each in code.loose]
        yield from (each for each in whole if each[0] not in replaced)


def _shared(start: int, end: int, region: Region) -> int:
    return max(0, min(end, region.end) - max(start, region.start))


def _stay(code: Code, edits: Sequence[Edit]) -> Iterator[Member | Loose]:
    """The pieces of a region that are in the file afterwards."""
    edit = _of(code, edits)
    replaced = {start for start, _ in edit.replaced} if edit else set()
    packed = bool(edit and edit.technique == "packed")
    for container in code.containers:
        whole = not packed and container.address not in replaced
        yield from (member for member in container.members if whole or member.offset in code.kept)
    yield from (piece for piece in code.loose if piece.offset in code.kept or piece.address not in replaced)
