"""The closure: every object that a program loads, each edge between two of them, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packager.recipes import EVERY_FEATURE, Component
from packager.resolve.elf import Elf
from packager.resolve.search import Attempt, How


class Kind(StrEnum):
    """How one object asks for another: in its dynamic section, or while it runs."""

    NEEDED = "needed"
    DLOPEN = "dlopen"


class Source(StrEnum):
    """What an edge rests on."""

    DYNAMIC = "DT_NEEDED"
    INTERPRETER = "PT_INTERP"
    FILTER = "DT_FILTER"
    AUXILIARY = "DT_AUXILIARY"
    RECIPE = "recipe"
    NOTE = ".note.dlopen"
    STRING = "string"
    USER = "--include"


class Need(StrEnum):
    """What becomes of the object that asks when the other is absent (the words of UAPI.12 and the recipes)."""

    REQUIRED = "required"
    RECOMMENDED = "recommended"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class Evidence:
    """Why an edge exists: its source, the rule ("libraries/cudnn9.toml: adv"), how badly it is needed, and the
    features for which it is followed ("*": whatever the model does).
    """

    source: Source
    rule: str = ""
    need: Need = Need.REQUIRED
    serves: tuple[str, ...] = (EVERY_FEATURE,)


@dataclass(frozen=True, slots=True)
class Object:
    """One loaded object. ``path`` is where the loader found it, ``real`` with links resolved, both as the
    target sees them; ``host`` is the file on this machine; ``loader`` the path of the object that loaded it.
    """

    path: str
    real: str
    host: str
    elf: Elf
    how: How
    of: str = ""
    loader: str = ""
    passed_over: tuple[Attempt, ...] = ()

    @property
    def name(self) -> str:
        """The soname; the file's own name where it has none."""
        return self.elf.soname or self.real.rpartition("/")[2]

    @property
    def place(self) -> str:
        """The path to show: for what was lent, that of the file itself, as the link to it is gone tomorrow."""
        return self.host if self.how is How.LENT else self.path


@dataclass(frozen=True, slots=True)
class Edge:
    """``source`` (a path) asks for ``name``; ``target`` is the path of the object that answers, "" on a miss."""

    source: str
    name: str
    kind: Kind
    evidence: Evidence
    target: str
    how: How | None


@dataclass(frozen=True, slots=True)
class Miss:
    """A name that nothing answers. Alternatives that were tried in its place stand in ``names``."""

    name: str
    source: str
    kind: Kind
    evidence: Evidence
    attempts: tuple[Attempt, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mention:
    """A name of a shared object that stands as a string in an object that imports dlopen.

    ``rule`` names the recipe that knows it; empty when none does, which makes it a possible miss.
    """

    source: str
    name: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """An API symbol that an object imports, and the only component that implements it."""

    source: str
    symbol: str
    component: Component


@dataclass(frozen=True, slots=True)
class Closure:
    """The result of resolving. ``objects`` are in loading order, the program first."""

    objects: tuple[Object, ...]
    edges: tuple[Edge, ...]
    misses: tuple[Miss, ...] = ()
    mentions: tuple[Mention, ...] = ()
    uses: tuple[Use, ...] = ()

    @property
    def program(self) -> Object:
        """The object that resolving began with."""
        return self.objects[0]

    def find(self, path: str) -> Object | None:
        """The object that the loader found at ``path``."""
        return next((o for o in self.objects if o.path == path), None)

    def edges_from(self, path: str) -> tuple[Edge, ...]:
        """What the object at ``path`` asks for, in its own order."""
        return tuple(edge for edge in self.edges if edge.source == path)

    def edges_to(self, path: str) -> tuple[Edge, ...]:
        """Who asks for the object at ``path``."""
        return tuple(edge for edge in self.edges if edge.target == path)
