"""What the recipes say, as values: families of libraries, their components, models, licences, frameworks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


def normalised(name: str) -> str:
    """The name of a distribution as indexes compare it (PEP 503): "nvidia-cudnn-cu12" of "NVIDIA_cuDNN.cu12"."""
    return re.sub(r"[-_.]+", "-", name).lower()


PROGRAM = "program"
"""The opener that stands for the program itself: anything may link the component or open it."""

EVERY_FEATURE = "*"
"""In ``serves``: the component is used whatever the model does."""

How = Literal["dlopen", "needed"]
Need = Literal["required", "recommended", "optional"]
ProvidedBy = Literal["bundle", "host"]


@dataclass(frozen=True, slots=True)
class Loading:
    """One way in which a component gets into a process.

    ``by``     id of the component that loads it (``cudnn9:shim``), or ``program``.
    ``how``    ``dlopen`` while it runs, or ``needed`` when it is linked (DT_NEEDED).
    ``names``  the names that the loader asks for. Globs are matched beside the loader and in the
               directories in reach.
    ``exact``  of several matches only those whose name stands as a string in the loader.
    ``serves`` the features for which this loader asks for it: those of the component, or fewer of them
               (TensorFlow opens cuFFT whatever the model does, ONNX Runtime only for transforms).
    """

    by: str
    how: How
    names: tuple[str, ...]
    exact: bool
    serves: tuple[str, ...]

    def used_with(self, features: frozenset[str]) -> bool:
        """Whether this loader may ask for the component in a model with these features."""
        return _meet(self.serves, features)


@dataclass(frozen=True, slots=True)
class Component:
    """One library of a family, or a few that are always used together.

    ``files``    globs on soname and base name.
    ``serves``   the features it is for; ``*`` is every feature.
    ``need``     what leaving it out means where the model uses one of its features; ``without`` says it.
    ``symbols``  globs on the API functions that no other component of the family implements.
    ``since``, ``until``  the versions of the family that have it: from ``since`` on, and before ``until``;
                 empty means no bound.
    """

    family: str
    name: str
    about: str
    files: tuple[str, ...]
    serves: tuple[str, ...]
    need: Need
    without: str
    symbols: tuple[str, ...]
    since: str
    until: str
    loaded: tuple[Loading, ...]
    evidence: str

    @property
    def id(self) -> str:
        """Its name among all recipes: ``cudnn9:adv``."""
        return f"{self.family}:{self.name}"

    def used_with(self, features: frozenset[str]) -> bool:
        """Whether a model with these features may use it, whoever loads it.

        Where the loader is known, :meth:`Loading.used_with` answers more closely.
        """
        return _meet(self.serves, features)


def _meet(serves: tuple[str, ...], features: frozenset[str]) -> bool:
    return EVERY_FEATURE in serves or not features.isdisjoint(serves)


@dataclass(frozen=True, slots=True)
class Package:
    """A distribution on the package index that holds the libraries ``sonames`` (globs).

    ``cuda`` is the major version of CUDA that it is built for, None where it does not depend on one.
    ``versions`` is a version specifier (PEP 440) where later or earlier releases hold other sonames.
    """

    name: str
    cuda: int | None
    sonames: tuple[str, ...]
    versions: str

    @property
    def requirement(self) -> str:
        """The requirement string that gets a release with these sonames: ``nvidia-cudnn-cu12>=8,<9``."""
        return self.name + self.versions


@dataclass(frozen=True, slots=True)
class Family:
    """The libraries of one product that share a version.

    ``group``        its row in the size table.
    ``files``        globs; a file that matches one and that no component claims is new to the recipe.
    ``licence``      name of a :class:`Licence`.
    ``provided_by``  ``host``: never bundled.
    ``one_version``  its parts work only with parts of the same release.
    ``source``       the recipe's file, ``libraries/cudnn9.toml`` for one that dpack ships.
    """

    name: str
    title: str
    about: str
    group: str
    files: tuple[str, ...]
    licence: str
    provided_by: ProvidedBy
    one_version: bool
    packages: tuple[Package, ...]
    components: tuple[Component, ...]
    source: Path


@dataclass(frozen=True, slots=True)
class Feature:
    """Something a model may do, with a sentence that explains it."""

    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Model:
    """A type of model. ``features`` holds those of the models that it includes too."""

    name: str
    title: str
    about: str
    features: frozenset[str]
    includes: tuple[str, ...]
    source: Path


@dataclass(frozen=True, slots=True)
class Licence:
    """What a class of licence allows, and the text that says so."""

    name: str
    title: str
    modify: bool
    redistribute: bool
    note: str
    source: str


@dataclass(frozen=True, slots=True)
class Part:
    """One row of a framework's size."""

    title: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Footprint:
    """The published size of a deployment: bytes, what they count, who measured it and when."""

    bytes: int
    counts: str
    source: str
    date: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Framework:
    """A framework to compare a bundle with; a footprint is None where nobody published one."""

    name: str
    title: str
    about: str
    gpu: Footprint | None
    cpu: Footprint | None
    source: Path
