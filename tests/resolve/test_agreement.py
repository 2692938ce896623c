"""Every program and library of this machine: our walk over DT_NEEDED against the real dynamic loader.

The oracle is the machine's own loader with LD_TRACE_LOADED_OBJECTS=1, which maps everything and starts nothing.
It is given the file with links resolved, because the kernel tells a program that path (/proc/self/exe), while a
loader that is started by hand takes $ORIGIN from the path on its command line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from builders.oracle import NO_RECIPES, RealLoader, native, real_loader, trace, traced, walked

from packager.errors import DpackError
from packager.resolve.elf import Elf, read_elf
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve

_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_LIBRARIES = (
    "/usr/local/lib",
    "/usr/lib/{triplet}",
    "/lib/{triplet}",
    "/usr/lib64",
    "/lib64",
    "/usr/lib",
    "/lib",
)


def _files(directories: tuple[str, ...], machine: str) -> Iterator[tuple[str, Elf]]:
    """Each file of ``directories`` once, that is a dynamic ELF file of ``machine``."""
    seen = set()
    for directory in map(Path, directories):
        for path in sorted(directory.iterdir()) if directory.is_dir() else ():
            real = os.path.realpath(path)
            if real in seen or not Path(real).is_file() or not os.access(real, os.R_OK):
                continue
            seen.add(real)
            try:
                elf = read_elf(real)
            except DpackError:
                continue
            if elf.dynamic and elf.machine.name == machine:
                yield real, elf


@cache
def _loader(interp: str | None) -> Loader:
    """One loader for all files that name the same interpreter: what it has read, it need not read again."""
    program = read_elf("/bin/sh")
    return native(Loader.of(replace(program, interp=interp), Sysroot.at("/")))


def _difference(path: str, elf: Elf, real: RealLoader) -> tuple[int, str]:
    """How many names were compared, and what each side says where they differ."""
    told = trace([real.path, path])
    theirs = traced(told.stdout, real.path)
    if told.returncode and not theirs and elf.needed:
        return 0, f"{path}: the loader fails: {told.stderr.strip()}"
    closure = resolve(path, _loader(elf.interp), NO_RECIPES)
    own = os.path.realpath(real.path)
    mine = {
        name: target for name, target in walked(closure).items() if os.path.realpath(target or "/") != own
    }
    names = sorted(name for name in mine | theirs if mine.get(name) != theirs.get(name))
    return len(theirs), "\n".join(
        f"{path}: {n}: ours {mine.get(n)!r}, the loader {theirs.get(n)!r}" for n in names
    )


@pytest.mark.parametrize(
    ("what", "directories", "least"), [("programs", _PROGRAMS, 100), ("libraries", _LIBRARIES, 100)]
)
def test_every_file_resolves_as_the_loader_resolves_it(what, directories, least, capsys):
    real = real_loader()
    places = tuple(directory.format(triplet=real.machine.triplet) for directory in directories)
    files = list(_files(places, real.machine.name))
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda row: _difference(row[0], row[1], real), files))
    different, names = [text for _, text in answers if text], sum(count for count, _ in answers)
    with capsys.disabled():
        print(f"\n{len(files)} {what}, {names} names: {len(different)} differ from {real.path}")  # noqa: T201
    assert not different, "\n".join(different)
    assert len(files) > least
    assert names > len(files)
