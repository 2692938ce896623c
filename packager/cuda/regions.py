"""The GPU code of a file, sorted by the sections that hold it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from packager.cuda.code import Container, GpuCode, Loose, Member
from packager.cuda.image import Image

Range = tuple[int, int]


class Region(NamedTuple):
    """A section, or a segment of a file without sections; ``number`` is None for the latter."""

    number: int | None
    name: str
    start: int
    end: int
    align: int


@dataclass(frozen=True, slots=True)
class Left:
    """``bytes`` that could go but stay, in which section, and why."""

    section: str
    bytes: int
    reason: str


class Code(NamedTuple):
    """The GPU code of one region, and the offsets of the members and loose cubins that stay."""

    region: Region
    containers: tuple[Container, ...]
    loose: tuple[Loose, ...]
    kept: frozenset[int]

    @property
    def dead_size(self) -> int:
        """Bytes of the members and loose cubins that go."""
        return sum(piece.size for piece in self.pieces if piece.offset not in self.kept)

    @property
    def pieces(self) -> Iterator[Member | Loose]:
        """Every member, then every loose cubin."""
        for container in self.containers:
            yield from container.members
        yield from self.loose

    def parts(self, container: Container) -> list[tuple[int, int]]:
        """Offset and size of what the container keeps, neighbours joined."""
        joined: list[tuple[int, int]] = []
        for member in container.members:
            if member.offset not in self.kept or not member.size:
                continue
            if joined and sum(joined[-1]) == member.offset:
                joined[-1] = (joined[-1][0], joined[-1][1] + member.size)
            else:
                joined.append((member.offset, member.size))
        return joined


def regions(image: Image) -> list[Region]:
    """The sections in memory that have bytes in the file; the segments where there are no sections."""
    if not image.headers:
        return [Region(None, "", row.address, row.end, 8) for row in image.loads]
    return [
        Region(number, image.names[number], h.address, h.end, h.align)
        for number, h in enumerate(image.headers)
        if h.loaded
    ]


def codes_of(image: Image, code: GpuCode, kept: frozenset[int]) -> list[Code]:
    """The GPU code region by region, in order of address; ``kept`` are the offsets of what stays."""
    whole = regions(image)
    containers, loose = defaultdict[Region, list[Container]](list), defaultdict[Region, list[Loose]](list)
    for container in code.containers:
        for region in _around(whole, container.address):
            containers[region].append(container)
    for piece in code.loose:
        for region in _around(whole, piece.address):
            loose[region].append(piece)
    return [
        Code(
            region,
            tuple(sorted(containers[region], key=lambda each: each.address)),
            tuple(sorted(loose[region], key=lambda each: each.address)),
            kept,
        )
        for region in sorted({*containers, *loose}, key=lambda each: each.start)
    ]


def _around(whole: Sequence[Region], address: int) -> list[Region]:
    """The region of an address: one, or none in a file whose tables contradict each other."""
    return [region for region in whole if region.start <= address < region.end][:1]


def coded(image: Image, codes: Sequence[Code]) -> tuple[Region, ...]:
    """The regions with GPU code, those included that had some before an earlier cut."""
    now = {code.region for code in codes}
    return tuple(
        region
        for region in regions(image)
        if region in now or any(start < region.end and region.start < end for start, end in image.gone)
    )
