"""What a root file system provides before anything is added to it, and who provides the C library.

A program runs on a base image when its dynamic loader stands where the program says (PT_INTERP) and the C library
beside it is new enough. On an empty base there is neither: the C library is then a part of the bundle like others.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from packager.errors import DpackError
from packager.recipes import Recipes
from packager.recipes.globs import is_glob
from packager.resolve.elf import ET_DYN, Elf
from packager.resolve.machine import Machine
from packager.resolve.search import Asker, Found, How, Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.versions import Defined, defined_versions, highest

C_LIBRARY_GROUP = "C library"
"""The group of the families in the recipes that are a C library with its loader."""

VERSIONED = ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1")
"""The libraries whose symbol versions programs want: GLIBC, GLIBCXX and CXXABI, GCC."""

_LOADERS = {
    "x86_64": "/lib64/ld-linux-x86-64.so.2",
    "aarch64": "/lib/ld-linux-aarch64.so.1",
    "ppc64le": "/lib64/ld64.so.2",
    "s390x": "/lib/ld64.so.1",
    "riscv64": "/lib/ld-linux-riscv64-lp64d.so.1",
    "loongarch64": "/lib64/ld-linux-loongarch-lp64d.so.1",
}
"""Where compilers make programs look for glibc's loader (glibc, sysdeps/unix/sysv/linux/*/shlib-versions and
the ABIs' own documents)."""


@dataclass(frozen=True, slots=True)
class CLibrary:
    """The C library of a root: "glibc 2.36", "musl" or, with an empty name, none that was found.

    ``loader`` is the path of its dynamic loader, "" without one.
    """

    name: str = ""
    version: str = ""
    loader: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip() or "none"


@dataclass(frozen=True, slots=True)
class Provided:
    """What a root provides: its C library, and the versions that :data:`VERSIONED` define in it."""

    c_library: CLibrary
    defined: Defined


def provided_by(sysroot: Sysroot, machine: Machine, library_path: Iterable[str] = ()) -> Provided:
    """What the root provides for programs of ``machine``. Raises ElfError where one of its libraries is damaged."""
    interp = _LOADERS.get(machine.name)
    has_loader = interp is not None and sysroot.is_file(interp)
    nobody = Elf(path="/", machine=machine, type=ET_DYN, size=0, interp=interp if has_loader else None)
    loader = Loader.of(nobody, sysroot, tuple(library_path))
    found = {name: loader.search(name, [Asker("/", "/", nobody)]) for name in VERSIONED}
    versions = {
        name: defined_versions(loader.sysroot.host(answer.path) or answer.path)
        for name, answer in found.items()
        if isinstance(answer, Found)
    }
    glibc = highest(versions.get("libc.so.6", ())).get("GLIBC", "")
    musl = f"/lib/ld-musl-{machine.name}.so.1"
    if glibc:
        c_library = CLibrary("glibc", glibc, interp or "" if has_loader else "")
    else:
        c_library = CLibrary("musl", "", musl) if sysroot.is_file(musl) else CLibrary()
    return Provided(c_library, Defined(versions))


def with_own_c_library(recipes: Recipes) -> Recipes:
    """The recipes for a bundle that runs on nothing: the C libraries are the bundle's and not the host's.

    The GPU driver stays the host's always: it belongs to the kernel module of one machine.
    """
    families = tuple(
        replace(family, provided_by="bundle") if family.group == C_LIBRARY_GROUP else family
        for family in recipes.families
    )
    return replace(recipes, families=families)


def supplement(names: Iterable[str], program: Elf, loader: Loader, folder: Path) -> tuple[str, ...]:
    """Find what a base lacks with the ``loader`` of another root (this machine, or a sysroot), and put a link to
    each file into ``folder``. Returns the names that were found and not there yet; ``names`` may be globs.

    The folder is to be seen beside the base (``Sysroot.seeing``) and searched after everything else
    (``Loader.lent``): with the other root's own directories, its versions of what the base has would come in.
    """
    askers = [program, *_lent(loader, folder)]
    added = []
    for wanted in dict.fromkeys(names):
        for name, path in _in_root(wanted, askers, loader):
            host, link = loader.sysroot.host(path), folder / name
            if host is None or link.is_symlink():
                continue
            try:
                link.symlink_to(host)
            except OSError as error:
                raise DpackError(
                    f"cannot write {link}",
                    error.strerror or str(error),
                    next="set TMPDIR to another directory",
                ) from None
            added.append(name)
    return tuple(added)


def _lent(loader: Loader, folder: Path) -> Iterator[Elf]:
    """What was found before: it may look for its own libraries elsewhere than the program does."""
    for link in sorted(folder.iterdir()):
        yield loader.read(loader.sysroot.inside(link.resolve()))


def _in_root(wanted: str, askers: Sequence[Elf], loader: Loader) -> Iterator[tuple[str, str]]:
    """Name and path of each file that ``wanted`` means: the one of that name, or those that match a glob in the
    first directory that has any.
    """
    program, *others = (Asker(elf.path, posixpath.dirname(elf.path), elf) for elf in askers)
    if is_glob(wanted):
        origins = [other.origin for other in others]
        for directory in (*origins, *loader.library_path, *loader.conf, *loader.defaults):
            hits = [name for name in loader.sysroot.names(directory) if fnmatchcase(name, wanted)]
            if hits:
                yield from ((name, posixpath.join(directory, name)) for name in hits)
                return
    elif "/" not in wanted:
        chains = ([program], *([other, program] for other in others))
        beside = (posixpath.join(other.origin, wanted) for other in others)
        answers = itertools.chain(
            (loader.search(wanted, chain) for chain in chains),
            (loader.take(path, How.BESIDE) for path in beside),
        )
        yield from itertools.islice(((wanted, each.path) for each in answers if isinstance(each, Found)), 1)
