#!/usr/bin/env python3
"""Print the ``[[package]]`` rows of a host profile, read from the Debian packages of that system.

    python recipes/hosts/read.py linux/amd64=DIR linux/arm64=DIR > rows.toml

Each DIR holds the .deb files of one platform, as ``debootstrap --foreign --variant=minbase --arch=arm64 bookworm
ROOT`` leaves them in ROOT/var/cache/apt/archives. Nothing of them is run. A library counts where it stands in
one of the loader's default directories and has a soname. Needs dpkg-deb, and dpack installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection

from packager.resolve.elf import ElfError, read_elf

_DEFAULT_DIRECTORIES = ("lib", "lib64", "usr/lib", "usr/lib64", "lib/*-linux-gnu", "usr/lib/*-linux-gnu")
_NUMBERED = re.compile(r"(.+)_(\d+(?:\.\d+)*)")


class Row(NamedTuple):
    """A package of one platform, with its libraries and the symbol versions that they define."""

    name: str
    version: str
    sonames: tuple[str, ...]
    versions: tuple[str, ...]


def main(arguments: Sequence[str]) -> None:
    """Print one row for each package with a library, and one a platform where the platforms differ."""
    platforms = dict(argument.split("=", 1) for argument in arguments)
    seen: dict[Row, list[str]] = {}
    for platform, directory in platforms.items():
        for package in sorted(Path(directory).glob("*.deb")):
            row = read_package(package)
            if row.sonames:
                seen.setdefault(row, []).append(platform)
    for row in sorted(seen, key=lambda row: (row.name, seen[row])):
        sys.stdout.write(rendered(row, () if len(seen[row]) == len(platforms) else seen[row]))


def read_package(package: Path) -> Row:
    """The libraries of one .deb file."""
    fields = subprocess.run(
        ["dpkg-deb", "-f", package, "Package", "Version"],  # noqa: S607 - wherever the system has it
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    name, version = (line.split(": ", 1)[1] for line in fields.splitlines())
    sonames, versions = set(), set()
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)  # noqa: S607 - as above
        for path in _libraries(Path(root)):
            soname, defined = _read(path)
            if soname:
                sonames.add(soname)
                versions.update(defined)
    return Row(name, version, tuple(sorted(sonames)), highest(versions))


def _libraries(root: Path) -> Iterator[Path]:
    for pattern in _DEFAULT_DIRECTORIES:
        for directory in root.glob(pattern):
            yield from (path for path in directory.iterdir() if path.is_file() and not path.is_symlink())


def _read(path: Path) -> tuple[str, set[str]]:
    """The soname of a library, and the names of the symbol versions it defines; nothing for any other file."""
    try:
        soname = read_elf(path).soname
    except ElfError:
        return "", set()
    with path.open("rb") as file:
        tables = (each for each in ELFFile(file).iter_sections() if isinstance(each, GNUVerDefSection))
        defined = {next(names).name for table in tables for _, names in table.iter_versions()}
    # The first version definition of a file is its own name.
    return soname or "", defined - {soname, path.name}


def highest(versions: set[str]) -> tuple[str, ...]:
    """The highest of each numbered series (GLIBC_2.36), and every name that is no number (GLIBC_ABI_DT_RELR)."""
    series: dict[str, str] = {}
    others = set()
    for version in versions:
        hit = _NUMBERED.fullmatch(version)
        if hit is None:
            others.add(version)
        else:
            series[hit[1]] = max(series.get(hit[1], version), version, key=_number)
    return tuple(sorted({*series.values(), *others}))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.rpartition("_")[2].split("."))


def rendered(row: Row, platforms: Sequence[str]) -> str:
    """The row as TOML."""
    lines = ["", "[[package]]", f"name = {json.dumps(row.name)}", f"version = {json.dumps(row.version)}"]
    if platforms:
        lines.append(f"platforms = {json.dumps(sorted(platforms))}")
    lines.append(f"sonames = {_array(row.sonames)}")
    if row.versions:
        lines.append(f"versions = {_array(row.versions)}")
    return "\n".join(lines) + "\n"


def _array(names: Sequence[str]) -> str:
    flat = json.dumps(list(names))
    return flat if len(flat) < 100 else "[\n" + "".join(f"    {json.dumps(name)},\n" for name in names) + "]"


if __name__ == "__main__":
    main(sys.argv[1:])
