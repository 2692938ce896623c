"""The file name of a wheel, and which of several wheels is the best for a machine.

Names follow the binary distribution format (PEP 427); platform tags follow PEP 600 and its three older
spellings manylinux1, manylinux2010 and manylinux2014, whose glibc floors PEP 600 states.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

_OLD_FLOORS = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
_UNSTATED_FLOOR = (99, 0)
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(.+)")
_ALIASES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class WheelName:
    """One wheel, as far as its file name tells.

    ``name`` is normalised ("nvidia-cudnn-cu12"), ``platform`` is the last part of the file name, which
    may hold several tags joined by dots ("manylinux2014_x86_64.manylinux_2_17_x86_64").
    """

    file: str
    name: str
    version: Version
    build: tuple[int | str, ...]
    platform: str
    any_python: bool
    """True for wheels that bind no Python ABI: ``py3-none-…`` and the like."""

    @property
    def stem(self) -> str:
        """The file name without its suffix."""
        return self.file.removesuffix(".whl")

    def floor(self, machine: str) -> tuple[int, int] | None:
        """The lowest glibc that the wheel asks for on ``machine``, None where it does not fit at all.

        ``any`` asks for none, (0, 0). A plain ``linux_…`` tag states nothing, so it sorts last.
        """
        floors = [_tag_floor(tag, canonical_machine(machine)) for tag in self.platform.split(".")]
        return min((floor for floor in floors if floor is not None), default=None)


class Option(Protocol):
    """Something that :func:`best` chooses among: a wheel on an index, or one in the cache."""

    @property
    def wheel(self) -> WheelName:
        """Its file name."""

    @property
    def yanked(self) -> bool:
        """Whether its author has withdrawn it (PEP 592)."""


OptionT = TypeVar("OptionT", bound=Option)


def canonical_machine(machine: str) -> str:
    """The machine as wheel tags spell it: "arm64" is "aarch64", "amd64" is "x86_64"."""
    return _ALIASES.get(machine.lower(), machine.lower())


def parse(file: str) -> WheelName | None:
    """The parts of a wheel's file name, None for any other file."""
    try:
        name, version, build, tags = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    return WheelName(
        file=file,
        name=canonicalize_name(name),
        version=version,
        build=tuple(build),
        platform=file.removesuffix(".whl").rsplit("-", 1)[1],
        any_python=any(tag.interpreter.startswith("py") and tag.abi == "none" for tag in tags),
    )


def pinned(specifier: SpecifierSet) -> bool:
    """Whether a specifier allows one version only: ``==9.10.2.21``, not ``==9.*``."""
    return any(
        part.operator == "===" or (part.operator == "==" and not part.version.endswith(".*"))
        for part in specifier
    )


def best(options: Iterable[OptionT], specifier: SpecifierSet, machine: str) -> OptionT | None:
    """The option to take: the highest version that fits, and of that the lowest glibc floor.

    A pre-release counts only where the specifier names one, a yanked wheel only where it is pinned with
    ``==`` (PEP 592). Among equals the higher build number wins, then the option that comes first.
    """
    found: OptionT | None = None
    found_rank: tuple[Version, tuple[int, int], tuple[int | str, ...]] | None = None
    exact = pinned(specifier)
    for option in options:
        wheel, floor = option.wheel, option.wheel.floor(machine)
        if floor is None or not wheel.any_python or (option.yanked and not exact):
            continue
        if not specifier.contains(wheel.version, prereleases=bool(specifier.prereleases)):
            continue
        rank = (wheel.version, (-floor[0], -floor[1]), wheel.build)
        if found_rank is None or rank > found_rank:
            found, found_rank = option, rank
    return found


def _tag_floor(tag: str, machine: str) -> tuple[int, int] | None:
    if tag == "any":
        return (0, 0)
    if tag == f"linux_{machine}":
        return _UNSTATED_FLOOR
    if match := _MANYLINUX.fullmatch(tag):
        return (int(match[1]), int(match[2])) if match[3] == machine else None
    family, _, rest = tag.partition("_")
    return _OLD_FLOORS.get(family) if rest == machine else None
