"""What the machine that runs a bundle must have: a C library new enough, a driver, whatever stays the host's.

Symbol versions are compared number by number, so 2.9 is older than 2.34 (LSB, "Symbol versioning").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packager.plan import Action, Decision, Plan
from packager.recipes.host import split_version
from packager.resolve.closure import Kind

DRIVER_GROUP = "driver"
"""The group of the GPU driver's libraries in the recipes."""

_MEANT = {"GLIBC_ABI_DT_RELR": "GLIBC_2.36"}
"""Markers that stand for a release: glibc 2.36's NEWS introduces DT_RELR with this one."""


@dataclass(frozen=True, slots=True)
class Floor:
    """The oldest version that will do, the files that want it, and whether the bundle itself has the library."""

    version: str
    wanted_by: tuple[str, ...]
    bundled: bool


@dataclass(frozen=True, slots=True)
class Marker:
    """A version without a number that the C library must offer: GLIBC_PRIVATE binds to one exact build."""

    name: str
    wanted_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostLibrary:
    """A library that the host provides, why, by which rule, and which bundled files ask for it."""

    name: str
    group: str
    reason: str
    rule: str
    asked_by: tuple[str, ...]

    @property
    def of_driver(self) -> bool:
        """True for a library of the GPU driver."""
        return self.group == DRIVER_GROUP


@dataclass(frozen=True, slots=True)
class Requirements:
    """What the host must provide. A floor is None where nothing in the bundle asks for one."""

    machine: str
    loader: str | None
    glibc: Floor | None
    glibcxx: Floor | None
    cxxabi: Floor | None
    markers: tuple[Marker, ...]
    libraries: tuple[HostLibrary, ...]

    @property
    def driver(self) -> tuple[str, ...]:
        """The names of the GPU driver's libraries among them."""
        return tuple(library.name for library in self.libraries if library.of_driver)


def requirements(plan: Plan) -> Requirements:
    """What the host must provide for the files that ``plan`` keeps."""
    kept = plan.of(Action.KEEP)
    program = plan.program.object
    if program is None:
        raise ValueError("a plan begins with the program")
    return Requirements(
        machine=program.elf.machine.name,
        loader=program.elf.interp,
        glibc=_floor(kept, "GLIBC", "libc.so.6"),
        glibcxx=_floor(kept, "GLIBCXX", "libstdc++.so.6"),
        cxxabi=_floor(kept, "CXXABI", "libstdc++.so.6"),
        markers=tuple(_markers(kept)),
        libraries=tuple(_host_libraries(plan)),
    )


def _floor(kept: Sequence[Decision], prefix: str, library: str) -> Floor | None:
    wanted: dict[tuple[int, ...], set[str]] = {}
    for name, version in _versions(kept):
        series, number = split_version(_MEANT.get(version, version))
        if series == prefix and number:
            wanted.setdefault(number, set()).add(name)
    if not wanted:
        return None
    highest = max(wanted)
    return Floor(
        ".".join(map(str, highest)), tuple(sorted(wanted[highest])), any(d.name == library for d in kept)
    )


def _markers(kept: Sequence[Decision]) -> Iterator[Marker]:
    wanted: dict[str, set[str]] = {}
    for name, version in _versions(kept):
        if version.startswith("GLIBC_") and split_version(version)[0] != "GLIBC":
            wanted.setdefault(version, set()).add(name)
    for version in sorted(wanted):
        yield Marker(version, tuple(sorted(wanted[version])))


def _versions(kept: Sequence[Decision]) -> Iterator[tuple[str, str]]:
    """(file, version it wants) for every kept file."""
    for decision in kept:
        for need in decision.object.elf.versions if decision.object else ():
            for version in need.versions:
                yield decision.name, version


def _host_libraries(plan: Plan) -> Iterator[HostLibrary]:
    """What is left to the host, and what was left out although something kept needs it."""
    kept = {d.path: d.name for d in plan.of(Action.KEEP)}
    for d in sorted((*plan.of(Action.HOST), *plan.of(Action.DROP)), key=lambda d: d.name):
        edges = [
            e for e in d.edges if e.source in kept and (d.action is Action.HOST or e.kind is Kind.NEEDED)
        ]
        if d.action is Action.HOST or edges:
            askers = {kept[edge.source] for edge in edges}
            yield HostLibrary(d.name, d.group, d.reason, d.rule, tuple(sorted(askers)))
