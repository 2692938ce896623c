"""The plan: what becomes of every file of the closure, and why. ``packager/decide.py`` makes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from packager.arch import Gpu
from packager.destination import ANYWHERE, Destination
from packager.recipes import Component, Family, Model
from packager.resolve.closure import Edge, Mention, Miss, Object

if TYPE_CHECKING:
    from packager.cuda.cut import Cut
    from packager.cuda.select import Policy

EXECUTABLE = "executable"
"""The group of the program itself."""


class Action(StrEnum):
    """What becomes of one file."""

    KEEP = "keep"
    DROP = "drop"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Choice:
    """What the user asked for: the models, globs of what to put in or leave out whatever the recipes say, and
    where the bundle is to run.
    """

    models: tuple[Model, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    strict: bool = False
    strip: bool = True
    destination: Destination = ANYWHERE

    @property
    def features(self) -> frozenset[str] | None:
        """The features of all models together; None where no model is named, so that nothing is dropped."""
        return frozenset(f for model in self.models for f in model.features) if self.models else None

    @property
    def named(self) -> str:
        """The models as a sentence names them: "model cnn", "models cnn and rnn"."""
        return ("model " if len(self.models) == 1 else "models ") + " and ".join(m.name for m in self.models)


@dataclass(frozen=True, slots=True)
class Slice:
    """GPU code that is cut out of one file: what stays is for ``gpus``, chosen by ``policy``; ``cut`` says how."""

    gpus: tuple[Gpu, ...]
    policy: Policy
    cut: Cut

    @property
    def words(self) -> str:
        """As the manifest lists it: "sliced for sm_86"."""
        return f"sliced for {', '.join(map(str, self.gpus))}"


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to one kept file: whether it is stripped, the rpath that it gets (None: its own), and the GPU
    code that is cut out of it.
    """

    strip: bool = False
    rpath: str | None = None
    slice: Slice | None = None

    def __bool__(self) -> bool:
        return self.strip or self.rpath is not None or self.slice is not None

    @property
    def words(self) -> tuple[str, ...]:
        """As the manifest lists it: ("stripped", "rpath $ORIGIN/../lib")."""
        words = ("stripped",) if self.strip else ()
        words = words if self.rpath is None else (*words, f"rpath {self.rpath}")
        return words if self.slice is None else (*words, self.slice.words)


@dataclass(frozen=True, slots=True)
class Decision:
    """One file's fate. ``size`` is in bytes, 0 for what only the host has; ``edges`` lead to it, the deciding
    one first; ``rule`` names the recipe's file and component, "" where the file itself is the reason. ``uncut``
    are the bytes that slicing it would save, where its licence or the user does not allow it.
    """

    action: Action
    name: str
    reason: str
    rule: str
    size: int
    object: Object | None = None
    component: Component | None = None
    family: Family | None = None
    edges: tuple[Edge, ...] = ()
    change: Change = Change()
    uncut: int = 0

    @property
    def packed_size(self) -> int:
        """Its bytes after slicing; what stripping saves is known only when it is done."""
        return self.change.slice.cut.size if self.change.slice else self.size

    @property
    def path(self) -> str:
        """Where the loader found the file; empty for what was not found and is left to the host."""
        return self.object.path if self.object else ""

    @property
    def group(self) -> str:
        """The row of the size table that the file counts in."""
        if self.family is not None:
            return self.family.group
        return "other libraries" if self.edges else EXECUTABLE

    @property
    def also_asked_as(self) -> tuple[str, ...]:
        """Names other than its own that edges ask for it by."""
        return tuple(sorted({edge.name for edge in self.edges if "/" not in edge.name} - {self.name}))

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names that it has in the bundle's lib/: those that it is asked for by, as the loader opens files
        by them. One, as a rule, and its soname, which comes first; the others are links to the first.
        """
        asked = {edge.name for edge in self.edges if "/" not in edge.name} or {self.name}
        return tuple(sorted(asked, key=lambda name: (name != self.name, name)))


@dataclass(frozen=True, slots=True)
class Conflict:
    """Something in the input that contradicts the request; ``ways`` are the ways out."""

    what: str
    why: str
    ways: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saving:
    """What naming ``model`` would leave out: the names and their bytes together."""

    model: str
    names: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Every decision, the program's first, and what stands in the way.

    ``misses`` are needed and not there; ``absent`` are recommended and not there; ``on_index`` are the names of
    them that the package index has. ``mentions`` are names that
    kept objects hold as strings and no recipe knows: possible misses. ``warnings`` and ``notes`` are sentences.
    """

    choice: Choice
    decisions: tuple[Decision, ...]
    misses: tuple[Miss, ...] = ()
    absent: tuple[Miss, ...] = ()
    on_index: frozenset[str] = frozenset()
    conflicts: tuple[Conflict, ...] = ()
    mentions: tuple[Mention, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    savings: tuple[Saving, ...] = ()

    @property
    def program(self) -> Decision:
        """The decision on the program itself."""
        return self.decisions[0]

    def of(self, action: Action) -> tuple[Decision, ...]:
        """The decisions with this action, in loading order."""
        return tuple(d for d in self.decisions if d.action is action)

    def size(self, action: Action) -> int:
        """The bytes of the files with this action."""
        return sum(d.size for d in self.of(action))

    @property
    def packed_size(self) -> int:
        """The bytes of the kept files after slicing."""
        return sum(d.packed_size for d in self.of(Action.KEEP))

    def count(self, action: Action) -> int:
        """The number of files with this action."""
        return len(self.of(action))

    @property
    def complete(self) -> bool:
        """True when nothing is missing and nothing contradicts; with ``strict``, nothing may be missing."""
        return not self.misses and not self.conflicts and not (self.choice.strict and self.mentions)
