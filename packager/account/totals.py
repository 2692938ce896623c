"""Files and bytes, group by group: the rows of the size table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from packager.plan import EXECUTABLE

LICENCE_GROUP = "licence texts"

_FIRST = (EXECUTABLE, "CUDA runtime", "cuBLAS", "cuDNN", "NVRTC")
"""What published size tables list, in their order; other groups follow by size."""

_LAST = ("other libraries", LICENCE_GROUP)


@dataclass(frozen=True, slots=True)
class Counted:
    """One file to count: its group, its bytes, and whether it is kept or dropped."""

    group: str
    size: int
    kept: bool


@dataclass(frozen=True, slots=True)
class GroupTotal:
    """What one group keeps and drops: numbers of files, and bytes."""

    group: str
    files: int
    bytes: int
    dropped_files: int
    dropped_bytes: int


def totals(files: Iterable[Counted]) -> tuple[GroupTotal, ...]:
    """A total for each group, in the order of the size table."""
    groups: dict[str, list[Counted]] = {}
    for file in files:
        groups.setdefault(file.group, []).append(file)
    return in_order(total(name, members) for name, members in groups.items())


def total(name: str, files: Iterable[Counted]) -> GroupTotal:
    """The files counted together, under one name."""
    members = tuple(files)
    kept = [file.size for file in members if file.kept]
    dropped = [file.size for file in members if not file.kept]
    return GroupTotal(name, len(kept), sum(kept), len(dropped), sum(dropped))


def in_order(groups: Iterable[GroupTotal]) -> tuple[GroupTotal, ...]:
    """The groups as the size table lists them: a fixed head and tail, between them the largest first."""
    return tuple(sorted(groups, key=_place))


def _place(row: GroupTotal) -> tuple[int, int, str]:
    if row.group in _FIRST:
        return _FIRST.index(row.group), 0, ""
    if row.group in _LAST:
        return len(_FIRST) + 1 + _LAST.index(row.group), 0, ""
    return len(_FIRST), -row.bytes - row.dropped_bytes, row.group
