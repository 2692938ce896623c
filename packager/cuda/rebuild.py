"""How the GPU code of one section is put together anew, and what room that leaves.

There are two ways, chosen section by section from evidence (below). Either way a container that keeps nothing
stays as a header of size 0, the form that NVIDIA's own ``fatbinary --create`` (CUDA 13.0) writes when it is
given no image, and that cuobjdump 13.5 reads without complaint. A member's header without its payload is no
substitute: cuobjdump calls that an invalid ELF, and a driver for that architecture would load it.

packed    Containers move to the start of their section, one behind the other, and the one relocation that
          points at each follows it. Needs a proof that nothing else points into the section.
in place  Containers and loose cubins stay where they are. What a container keeps moves up behind its header;
          a loose cubin that goes becomes zeros. Needs no knowledge of who points at a container's start; what a
          relocation or a symbol points into behind it stays whole. Code that does so is not looked for.

Measured on the ten cuDNN 9.10.2 and cuBLAS 12.9.1 libraries (1907.6 MB) for sm_86: 609.4 MB with nvcc's sections
packed, 620.9 MB with everything in place, since each hole ends at a page. cudnn_engines_precompiled has 123
segments packed and 943 in place and loads in 12 ms against 26 (20 as shipped), cublas 10 and 190, 1.4 ms and 2.8;
cublasLt, where most holes are in sections that cannot be packed, 585 and 863, 105 ms and 109 (109 as shipped). A
third way, to leave every member's header where it is, takes 3,699 and 718 holes for the .nv_fatbin of the first
and the last, and 35 MB more. So: packed where it is proven, else in place.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packager.cuda.code import Container, Loose
from packager.cuda.image import SHF_EXECINSTR, Extent, Header, Image
from packager.cuda.instructions import code_refers
from packager.cuda.pointers import Pointer, Pointers
from packager.cuda.regions import Code, Left, Range, Region, regions

_WRAPPER = 0x466243B1
_WRAPPERS = ".nvFatBinSegment"
_FATBINS = frozenset({".nv_fatbin", "__nv_relfatbin"})
_SIZE_AT = 8

Aims = frozenset[int]
"""Sections by number."""


@dataclass(frozen=True, slots=True)
class Edit:
    """What becomes of one region.

    ``replaced`` are the address ranges whose old bytes go; ``copies`` what comes there from the file, zeros
    elsewhere; ``patches`` are bytes by address and ``file_patches`` bytes by offset in the source file.
    ``dead`` are the ranges left without meaning, ``spots`` where room begins that nothing but GPU code had;
    the region ends at ``end`` afterwards.
    """

    region: Region
    technique: str
    replaced: tuple[Range, ...]
    copies: tuple[Extent, ...]
    patches: tuple[tuple[int, bytes], ...]
    dead: tuple[Range, ...]
    spots: tuple[int, ...]
    file_patches: tuple[tuple[int, bytes], ...]
    end: int


def aimed_at(image: Image, content: mmap.mmap) -> Aims:
    """Those of nvcc's sections that machine code refers to, as far as anybody can tell."""
    return frozenset(
        region.number
        for region in regions(image)
        if region.name in _FATBINS
        and region.number is not None
        and code_refers(image, content, region.start, region.end)
    )


def rebuild(
    image: Image, content: mmap.mmap, pointers: Pointers, code: Code, aims: Callable[[], Aims]
) -> tuple[Edit | None, list[Left]]:
    """The edit that drops from one region what is not kept, and what of it must stay; ``aims`` gives what
    :func:`aimed_at` finds.
    """
    if not code.dead_size:
        return None, []
    if why := _unreadable(image, pointers, code):
        return None, [Left(code.region.name, code.dead_size, why)]
    if _nvcc(image, code):
        into = pointers.into(code.region.start, code.region.end)
        if _movable(image, content, code, into, pointers) and code.region.number not in aims():
            edit = _packed(code, into)
            if (
                edit.end <= code.region.end
            ):  # else the section's alignment is larger than that of its containers
                return edit, []
    return _in_place(code, pointers)


def _unreadable(image: Image, pointers: Pointers, code: Code) -> str:
    """Why nothing can be said about a region; empty when its place in file and memory is clear."""
    region = code.region
    places = [(c.address, c.offset) for c in code.containers] + [(c.address, c.offset) for c in code.loose]
    if pointers.unknown:
        return pointers.unknown
    if region.number is not None and image.headers[region.number].flags & SHF_EXECINSTR:
        return "it holds machine code of the CPU too"
    if image.load_of(region.start, region.end) is None:
        return "it is not in one segment"
    if sum(1 for _ in image.sections_within(region.start, region.end)) > 1:
        return "another section lies over it"
    if any(image.offset_of(address) != offset for address, offset in places):
        return "its section header and its segment disagree"
    return ""


def _nvcc(image: Image, code: Code) -> bool:
    """Whether a region is one of those that nvcc makes, and holds what it puts there.

    In all others nothing moves: what a program put there it finds by ways of its own, offsets in a table
    (.cask_resource) or 64-bit distances in its code (.lrodata, the medium code model).
    """
    region = code.region
    known = region.name in _FATBINS and not code.loose
    return known and region.number is not None and image.position_independent


def _movable(image: Image, content: mmap.mmap, code: Code, into: list[Pointer], pointers: Pointers) -> bool:
    """Whether it is proven that the containers of a region can move as far as its data tell: nothing else lies
    between them, and the loader writes nothing there; none has more than one wrapper, whose pointer the loader
    sets; and nothing else points there.

    One without a wrapper nobody can find, as nvcc's device link leaves them behind; it moves with the others.
    """
    starts = {container.address for container in code.containers}
    wrappers = [pointer for pointer in into if pointer.place is not None]
    tables = [h for h, name in zip(image.headers, image.names, strict=True) if name == _WRAPPERS and h.loaded]
    return (
        len({pointer.target for pointer in wrappers}) == len(wrappers)
        and {pointer.target for pointer in into} <= starts
        and all(pointer.at is not None for pointer in into)
        and all(_is_wrapper(image, content, tables, pointer.place or 0) for pointer in wrappers)
        and _only_containers(image, content, code)
        and not any(pointers.written([(code.region.start, code.region.end)]))
    )


def _only_containers(image: Image, content: mmap.mmap, code: Code) -> bool:
    """Whether a region holds containers and zeros alone."""
    ends = [code.region.start, *(c.address + c.size for c in code.containers)]
    starts = [*(c.address for c in code.containers), code.region.end]
    return all(a <= b and zero(image, content, a, b) for a, b in zip(ends, starts, strict=True))


def zero(image: Image, content: mmap.mmap, start: int, end: int) -> bool:
    """Whether the file holds zeros, or nothing, for an address range; a table put there by a cut is nothing."""
    for extent in image.extents:
        low, high = max(start, extent.address), min(end, extent.end)
        if low >= high:
            continue
        table = image.table or (high, high)
        for a, b in ((low, min(high, table[0])), (max(low, table[1]), high)):
            at = extent.offset + a - extent.address
            if a < b and content[at : at + b - a].count(0) != b - a:
                return False
    return True


def _is_wrapper(image: Image, content: mmap.mmap, tables: Sequence[Header], place: int) -> bool:
    """Whether the eight bytes at ``place`` are the pointer of a wrapper: magic, version 1 or 2, pointer, another.

    The other is null, or leads to a table that version 2 has for device code linked beforehand (NCCL); what that
    holds would be pointers of its own.
    """
    at = image.offset_of(place - 8)
    known = any(table.address < place + 8 and place < table.end for table in tables)
    if at is None or not known or at + 24 > len(content):
        return False
    magic, version = struct.unpack_from("<II", content, at)
    return magic == _WRAPPER and version in {1, 2}


def _packed(code: Code, into: list[Pointer]) -> Edit:
    region, align = code.region, max(8, code.region.align)
    copies, patches, moved, at = list[Extent](), list[tuple[int, bytes]](), dict[int, int](), region.start
    for container in code.containers:
        at += -at % align
        moved[container.address] = at
        parts = [(container.offset, container.header_size), *code.parts(container)]
        size = sum(part for _, part in parts)
        patches.append((at + _SIZE_AT, struct.pack("<Q", size - container.header_size)))
        for offset, part in parts:
            copies.append(Extent(at, offset, part))
            at += part
    follow = [(p.at, struct.pack("<Q", moved[p.target])) for p in into if p.at is not None]
    return Edit(
        region,
        "packed",
        replaced=((region.start, region.end),),
        copies=tuple(joined(copies)),
        patches=tuple(patches),
        dead=((at, region.end),),
        spots=(at,),
        file_patches=tuple(follow),
        end=at,
    )


def joined(extents: Sequence[Extent]) -> list[Extent]:
    """The same copies, those that follow each other in memory and in the file as one."""
    result: list[Extent] = []
    for extent in extents:
        last = result[-1] if result else None
        if last and last.end == extent.address and last.offset + last.size == extent.offset:
            result[-1] = last._replace(size=last.size + extent.size)
        else:
            result.append(extent)
    return result


def _in_place(code: Code, pointers: Pointers) -> tuple[Edit | None, list[Left]]:
    candidates = [_cut_container(code, container) for container in code.containers]
    candidates += [_cut_loose(piece) for piece in code.loose if piece.offset not in code.kept]
    chosen = sorted(each for each in candidates if each is not None)
    disturbed = _disturbed(chosen, code.region, pointers)
    good = [each for each in chosen if each.dead not in disturbed]
    stays = sum(each.size for each in chosen if each.dead in disturbed)
    left = [Left(code.region.name, stays, "something points into what would go")] if stays else []
    if not good:
        return None, left
    fatbins_alone = code.region.name in _FATBINS and not code.loose
    edit = Edit(
        code.region,
        "in place",
        replaced=tuple(each.range for each in good),
        copies=tuple(copy for each in good for copy in each.copies),
        patches=tuple(patch for each in good for patch in each.patches),
        dead=tuple(each.dead for each in good),
        spots=tuple(each.dead[0] for each in good) if fatbins_alone else (),
        file_patches=(),
        end=code.region.end,
    )
    return edit, left


class _Cut(NamedTuple):
    """One container or loose cubin cut in place: its range, the part that loses its meaning, what is copied."""

    range: Range
    moving: Range
    dead: Range
    size: int
    copies: tuple[Extent, ...]
    patches: tuple[tuple[int, bytes], ...]


def _cut_container(code: Code, container: Container) -> _Cut | None:
    parts = [(container.offset, container.header_size), *code.parts(container)]
    size = sum(part for _, part in parts)
    if size == container.size:
        return None
    start, end = container.address, container.address + container.size
    at, copies = start, list[Extent]()
    for offset, part in parts:
        copies.append(Extent(at, offset, part))
        at += part
    patch = (start + _SIZE_AT, struct.pack("<Q", size - container.header_size))
    moving = (start + container.header_size, end)
    return _Cut((start, end), moving, (at, end), container.size - size, tuple(joined(copies)), (patch,))


def _cut_loose(piece: Loose) -> _Cut:
    whole = (piece.address, piece.address + piece.size)
    return _Cut(whole, (whole[0] + 1, whole[1]), whole, piece.size, (), ())


def _disturbed(chosen: list[_Cut], region: Region, pointers: Pointers) -> set[Range]:
    """The dead ranges of the cuts that something points into, or that the loader writes to."""
    found, ranges = set(), [each.moving for each in chosen]
    written = (byte for place in pointers.written(ranges) for byte in (place, place + 7))
    hits = sorted([*pointers.targets(region.start, region.end), *written])
    at = 0
    for each in chosen:
        while at < len(hits) and hits[at] < each.moving[0]:
            at += 1
        if at < len(hits) and hits[at] < each.moving[1]:
            found.add(each.dead)
    return found
