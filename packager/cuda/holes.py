"""Which pages leave the file: those that would hold nothing but zeros where GPU code was.

A hole begins and ends at a page, since the loader maps pages. A page leaves when every byte of it is zero
afterwards, the neighbours' bytes included, when it shares a byte with something that went, and when no GPU code
that stays has a part there: its zeros stay in the file, for whoever reads that and not memory. Whether a byte
went now or in an earlier cut makes no difference, so cutting twice comes to the same holes as cutting once, as
long as there are program headers for all of them (layout.table_limit): a hole that an earlier cut gave up for
want of headers is zeros that nobody tells from others.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packager.cuda.image import Extent, Image, give_back
from packager.cuda.rebuild import Edit, joined
from packager.cuda.regions import Range

_OFTEN = 256  # ranges


class Hole(NamedTuple):
    """An address range without bytes in the file, whole pages."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fresh:
    """The bytes of the new file by address: ``spans`` say where each comes from, zeros aside."""

    content: mmap.mmap
    spans: tuple[Extent, ...]
    starts: tuple[int, ...]

    @classmethod
    def of(cls, image: Image, content: mmap.mmap, edits: Iterable[Edit]) -> Fresh:
        """The old bytes where nothing was replaced, and the edits' copies."""
        edits = tuple(edits)
        replaced = [each for edit in edits for each in edit.replaced]
        replaced += [image.table] if image.table else []
        spans = [
            *_without(image.extents, sorted(replaced)),
            *(copy for edit in edits for copy in edit.copies),
        ]
        spans = joined(sorted(spans))
        return cls(content, tuple(spans), tuple(span.address for span in spans))

    def within(self, start: int, end: int) -> Iterable[Extent]:
        """The spans of an address range, cut at its ends."""
        at = max(0, bisect_right(self.starts, start) - 1)
        while at < len(self.spans) and self.spans[at].address < end:
            span = self.spans[at]
            low, high = max(start, span.address), min(end, span.end)
            if low < high:
                yield Extent(low, span.offset + low - span.address, high - low)
            at += 1

    def zero(self, start: int, end: int) -> bool:
        """Whether every byte of an address range is zero."""
        return all(
            self.content[span.offset : span.offset + span.size].count(0) == span.size
            for span in self.within(start, end)
        )


def _without(extents: Sequence[Extent], replaced: Sequence[Range]) -> Iterable[Extent]:
    """The parts of the extents outside the replaced ranges, both sorted."""
    for extent in extents:
        at = extent.address
        for start, end in replaced[_first_after(replaced, extent.address) :]:
            if start >= extent.end:
                break
            if at < start:
                yield Extent(at, extent.offset + at - extent.address, start - at)
            at = max(at, end)
        if at < extent.end:
            yield Extent(at, extent.offset + at - extent.address, extent.end - at)


def _first_after(ranges: Sequence[Range], address: int) -> int:
    """The number of the first of these sorted ranges that ends behind ``address``."""
    return bisect_right(ranges, address, key=lambda each: each[1])


def find_holes(
    image: Image, fresh: Fresh, dead: Iterable[Range], coded: frozenset[int], staying: Sequence[Range]
) -> list[Hole]:
    """The holes, in order of address; ``coded`` are the numbers of the sections that hold GPU code, ``staying``
    where such code is afterwards.

    Only these lose pages, and never the page of a section's first byte, so that each keeps its address.
    """
    ranges = sorted([*dead, *image.gone, *([image.table] if image.table else [])])
    barred = sorted([*_barred(image, coded), *staying])
    holes: list[Hole] = []
    for load in image.loads:
        first = load.address // image.granule + 1
        last = load.end // image.granule
        pages = _pages(image.granule, fresh, barred, ranges, (first, last))
        holes += [Hole(start * image.granule, end * image.granule) for start, end in pages]
    return holes


def _barred(image: Image, coded: frozenset[int]) -> list[Range]:
    """What no hole may touch: other sections, and the first byte of those with GPU code."""
    headers = [(number, header) for number, header in enumerate(image.headers) if header.loaded]
    return [(h.address, h.address + 1 if number in coded else h.end) for number, h in headers]


def _pages(
    page: int, fresh: Fresh, barred: Sequence[Range], dead: Sequence[Range], limits: Range
) -> list[Range]:
    """The runs of pages, by number, that are dead in part and zero as a whole, within the limits."""
    runs: list[list[int]] = []
    done = limits[0]
    for number, (start, end) in enumerate(dead):
        if number % _OFTEN == 0:
            give_back(
                fresh.content, 0, len(fresh.content)
            )  # the kernel maps 64 KiB around each byte that is read
        low, high = max(done, start // page), min(limits[1], -(-end // page))
        if low >= high:
            continue
        inner_low, inner_high = -(-start // page), end // page
        if low < inner_low and not _empty(page, fresh, barred, low):
            low += 1
        done = high
        if high > max(inner_high, low) and not _empty(page, fresh, barred, high - 1):
            high -= 1
        low, high = _free(page, barred, low, high)
        if low < high:
            if runs and runs[-1][1] == low:
                runs[-1][1] = high
            else:
                runs.append([low, high])
    return [(start, end) for start, end in runs]


def _free(page: int, barred: Sequence[Range], low: int, high: int) -> Range:
    """The part of a run of pages that no barred range touches; they lie at its ends, if anywhere."""
    while low < high and _touched(barred, low * page, (low + 1) * page):
        low += 1
    while low < high and _touched(barred, (high - 1) * page, high * page):
        high -= 1
    return low, high


def _touched(barred: Sequence[Range], start: int, end: int) -> bool:
    at = _first_after(barred, start)
    return at < len(barred) and barred[at][0] < end


def _empty(page: int, fresh: Fresh, barred: Sequence[Range], number: int) -> bool:
    start, end = number * page, (number + 1) * page
    return not _touched(barred, start, end) and fresh.zero(start, end)


def at_least(holes: Iterable[Hole], size: int) -> list[Hole]:
    """The holes of at least this size in bytes."""
    return [hole for hole in holes if hole.end - hole.start >= size]
