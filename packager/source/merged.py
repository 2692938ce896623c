"""Unpacked wheels as one ``include`` and one ``lib``, the way a compiler wants them."""

from __future__ import annotations

import filecmp
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from packager.errors import DpackError
from packager.place import placed
from packager.source.cache import Distribution

_PARTS = ("include", "lib")
_MARK = "dpack-sdk.json"
_SHARED_OBJECT = re.compile(r"\.so(\.|$)")
_VERSIONED = re.compile(r"(lib.+\.so)\.([0-9.]+)")


def sdk(distributions: Sequence[Distribution], directory: Path) -> Path:
    """``directory`` with the headers and libraries of some wheels, as symbolic links into the cache.

    Every ``nvidia/*/include`` and ``nvidia/*/lib`` is merged, subdirectories too: CUDA 12 has one directory
    a library, CUDA 13 has them all in ``nvidia/cu13``. Wheels carry no ``libcudnn.so`` for the linker's
    ``-lcudnn``, so each library gets that name too, of the highest version where there are several.

    The directory is made beside its place and renamed into it; one that sdk made before is replaced, any other
    is left alone. DpackError where two wheels have different files of one name, where the directory holds what
    sdk did not write, and where it cannot be written.
    """
    directory = directory.absolute()
    what = f"cannot write {directory}"
    try:
        if (stranger := _stranger(directory)) is not None:
            raise DpackError(
                what,
                f"it is there already, and dpack did not make {stranger}",
                next="name another directory, or remove this one",
            )
        _replace(directory, distributions)
    except OSError as error:
        why = f"{error.strerror or error} in {directory.parent}"
        raise DpackError(what, why, next="name another directory") from error
    return directory


def _replace(directory: Path, distributions: Sequence[Distribution]) -> None:
    """Put a new directory in its place. The one that sdk made before moves aside, and comes back on failure."""
    old = directory.with_name(f".{directory.name}.{os.getpid()}.old")
    try:
        with placed(directory, force=True) as beside:
            _fill(distributions, beside)
            if directory.exists():
                directory.rename(old)
    except BaseException:
        if old.exists() and not directory.exists():
            old.rename(directory)
        raise
    shutil.rmtree(old, ignore_errors=True)


def library_directories(distribution: Distribution) -> tuple[Path, ...]:
    """The directories of an unpacked wheel that hold shared objects, by its RECORD (PEP 376)."""
    found: set[Path] = set()
    for record in distribution.root.glob("*.dist-info/RECORD"):
        for line in record.read_text(encoding="utf-8").splitlines():
            path = Path(line.partition(",")[0])
            if _SHARED_OBJECT.search(path.name):
                found.add(distribution.root / path.parent)
    return tuple(sorted(found))


def _fill(distributions: Sequence[Distribution], root: Path) -> None:
    origin: dict[Path, tuple[Path, Distribution]] = {}
    for part in _PARTS:
        (root / part).mkdir(parents=True)
    for distribution in distributions:
        for relative, file in _files(distribution):
            if relative in origin:
                _check_same(relative, origin[relative], (file, distribution))
                continue
            origin[relative] = (file, distribution)
            target = root / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file)
    for relative, name in _linker_names(origin):
        (root / relative.with_name(name)).symlink_to(relative.name)
    mark = [{"name": one.name, "version": one.version, "tag": one.tag} for one in distributions]
    (root / _MARK).write_text(json.dumps({"distributions": mark}, indent=2) + "\n", encoding="utf-8")


def _files(distribution: Distribution) -> Iterator[tuple[Path, Path]]:
    """(path below the sdk's root, file in the cache) for each header and library, in a stable order."""
    for part in _PARTS:
        for top in sorted(distribution.root.glob(f"nvidia/*/{part}")):
            for file in sorted(top.rglob("*")):
                if file.is_file() and file.suffix not in {".py", ".pyc"}:
                    yield Path(part) / file.relative_to(top), file


def _check_same(relative: Path, first: tuple[Path, Distribution], second: tuple[Path, Distribution]) -> None:
    if not filecmp.cmp(first[0], second[0], shallow=False):
        names = " and ".join(f"{one.name} {one.version}" for _, one in (first, second))
        raise DpackError(
            f"cannot merge {names}",
            f"each has its own {relative}",
            tried=(str(first[0]), str(second[0])),
            next="leave one of them out, or name versions that belong together",
        )


def _linker_names(files: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """(library, the name that ``-l`` looks for) where that name is not there already."""
    present = set(files)
    chosen: dict[Path, tuple[tuple[int, ...], Path]] = {}
    for file in sorted(present):
        match = _VERSIONED.fullmatch(file.name)
        if match is None or file.with_name(match[1]) in present:
            continue
        version = tuple(int(number) for number in match[2].split(".") if number)
        key = file.with_name(match[1])
        chosen[key] = max(chosen.get(key, ((), file)), (version, file))
    for name, (_, file) in sorted(chosen.items()):
        yield file, name.name


def _stranger(directory: Path) -> str | None:
    """The first thing there that sdk did not write: it makes directories, links and its mark, and no other file."""
    if not directory.is_dir():
        return "it" if directory.exists() else None
    if not (directory / _MARK).is_file():
        return "it" if any(directory.iterdir()) else None
    mark = directory / _MARK
    for path in sorted(directory.rglob("*")):
        if path != mark and not path.is_symlink() and not path.is_dir():
            return str(path.relative_to(directory))
    return None
