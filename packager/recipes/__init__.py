"""Recipes: what is known about libraries, models, frameworks, targets and hosts, read from TOML and validated
as a whole.

``recipes/README.md`` documents the files. This package is their only reader.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from packager.errors import usage
from packager.recipes import reader, references
from packager.recipes.catalogue import Recipes
from packager.recipes.host import Compression, Host, HostPackage, Platform, Supplied, read_host
from packager.recipes.table import Table
from packager.recipes.target import Target, read_target
from packager.recipes.values import (
    EVERY_FEATURE,
    PROGRAM,
    Component,
    Family,
    Feature,
    Footprint,
    Framework,
    Licence,
    Loading,
    Model,
    Package,
    Part,
    normalised,
)

__all__ = [
    "EVERY_FEATURE",
    "PROGRAM",
    "Component",
    "Compression",
    "Family",
    "Feature",
    "Footprint",
    "Framework",
    "Host",
    "HostPackage",
    "Licence",
    "Loading",
    "Model",
    "Package",
    "Part",
    "Platform",
    "Recipes",
    "Supplied",
    "Target",
    "built_in",
    "load",
    "normalised",
]

_FOLDERS = ("libraries", "models", "frameworks", "hosts", "targets")
_DEVICES = ("targets", "hosts")
_LISTS = ("features.toml", "licences.toml")

_Value = TypeVar("_Value", Family, Model, Framework, Host, Target)
_Row = TypeVar("_Row", Feature, Licence)
_Any = TypeVar("_Any", Family, Model, Framework, Host, Target, Feature, Licence)


@dataclass(frozen=True, slots=True)
class _File:
    """A recipe file: its folder (or its own name, for a list), where it is, and how messages call it."""

    folder: str
    path: Path
    shown: Path


def built_in() -> Path:
    """Where the recipes that dpack ships stand: inside an installed package, beside one in a checkout."""
    package = Path(__file__).resolve().parent.parent
    installed = package / "_recipes"
    return installed if installed.is_dir() else package.parent / "recipes"


def load(extra: Sequence[Path] = (), *, devices: bool = True) -> Recipes:
    """The recipes that dpack ships and those of the directories ``extra``.

    A file there replaces the one of the same folder and name that came before; ``features.toml`` and
    ``licences.toml`` add to what is there, name by name. Without ``devices`` the targets and hosts are not read,
    which are most of the files and of no use where nobody names one. Raises DpackError (exit 2) that tells every
    problem of every file, each with its key path.
    """
    problems: list[str] = []
    files = [each for each in _files(extra, problems) if devices or each.folder not in _DEVICES]
    families, unread = _read_folder(files, "libraries", reader.read_family, problems)
    models, unread_models = _read_folder(files, "models", reader.read_model, problems)
    frameworks, _ = _read_folder(files, "frameworks", reader.read_framework, problems)
    hosts, unread_hosts = _read_folder(files, "hosts", read_host, problems)
    targets = _read_targets(files, hosts, problems)
    features = _read_lists(files, "features.toml", reader.read_features, problems)
    licences = _read_lists(files, "licences.toml", reader.read_licences, problems)
    problems += references.check_families(list(families.values()), features, licences, unread)
    problems += references.check_model_features(list(models.values()), features)
    problems += references.check_targets(list(targets.values()), list(hosts.values()), unread_hosts)
    closed = references.close_models(models, unread_models, problems)
    if problems:
        raise usage(
            "cannot use the recipes",
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''}",
            tried=problems,
            next="recipes/README.md explains the format; `dpack recipes check DIR` reads a directory again",
        )
    return Recipes(
        families=_sorted(families.values()),
        models=_sorted(closed),
        frameworks=_sorted(frameworks.values()),
        licences=_sorted(licences.values()),
        features=_sorted(features.values()),
        targets=_sorted(targets.values()),
        hosts=_sorted(hosts.values()),
    )


def _files(extra: Sequence[Path], problems: list[str]) -> list[_File]:
    """Every recipe file in force, later directories before earlier ones where a name is the same."""
    files = {each.shown: each for each in _directory(built_in(), Path())}
    for directory in extra:
        found = list(_directory(directory, directory))
        if not found:
            kinds = ", ".join([*(f"{folder}/*.toml" for folder in _FOLDERS), *_LISTS])
            why = f"holds none of {kinds}" if directory.is_dir() else "no such directory"
            problems.append(f"{directory}: {why}")
        files |= {_place(each, directory): each for each in found}
    return list(files.values())


def _place(file: _File, directory: Path) -> Path:
    """What a file replaces: its like in any directory before, but a list only itself."""
    return file.path if file.folder in _LISTS else file.path.relative_to(directory)


def _directory(directory: Path, shown: Path) -> Iterator[_File]:
    for folder in _FOLDERS:
        for path in sorted(directory.glob(f"{folder}/*.toml")):
            yield _File(folder, path, shown / folder / path.name)
    for name in _LISTS:
        if (directory / name).is_file():
            yield _File(name, directory / name, shown / name)


def _read_folder(
    files: Sequence[_File], folder: str, read: Callable[[Table, Path], _Value], problems: list[str]
) -> tuple[dict[str, _Value], list[str]]:
    """The values of a folder's files by name, and the names of those that are not even TOML."""
    values: dict[str, _Value] = {}
    unread = []
    for file in files:
        if file.folder == folder:
            top = _open(file, problems)
            if top is None:
                unread.append(file.path.stem)
            else:
                values[file.path.stem] = read(top, file.shown)
    return values, unread


def _read_targets(files: Sequence[_File], hosts: dict[str, Host], problems: list[str]) -> dict[str, Target]:
    compressions = {
        name: host.compression
        for host in hosts.values()
        if host.compression
        for name in (host.name, *host.aliases)
    }

    def read(top: Table, source: Path) -> Target:
        return read_target(top, source, compressions)

    return _read_folder(files, "targets", read, problems)[0]


def _read_lists(
    files: Sequence[_File], name: str, read: Callable[[Table], list[_Row]], problems: list[str]
) -> dict[str, _Row]:
    tops = [_open(file, problems) for file in files if file.folder == name]
    return {row.name: row for top in tops if top is not None for row in read(top)}


def _open(file: _File, problems: list[str]) -> Table | None:
    try:
        values = tomllib.loads(file.path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        problems.append(f"{file.shown}: cannot be read: {error}")
        return None
    return Table(values, str(file.shown), problems)


def _sorted(values: Iterable[_Any]) -> tuple[_Any, ...]:
    return tuple(sorted(values, key=lambda value: value.name))
