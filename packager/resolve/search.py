"""ld.so's search: from the name of a shared object to its file, and every place that was asked.

The order is glibc's ``_dl_map_object`` (elf/dl-load.c), also described in ld.so(8):

1. a name with a slash is a path, and nothing is searched;
2. DT_RPATH of the object that asks, of the one that loaded it, and so on up to the program, unless the object
   that asks has a DT_RUNPATH (an object with a DT_RUNPATH has no DT_RPATH);
3. the library path that the user gives, in the place of LD_LIBRARY_PATH;
4. DT_RUNPATH of the object that asks, and of no other;
5. ld.so.cache; where there is none, the directories of ld.so.conf, from which ldconfig would make it;
6. the loader's own default directories, unless the object that asks has DF_1_NODEFLIB;
7. not in ld.so: directories whose files will stand in the bundle's own lib/: what was lent where a base lacks
   it, and the package cache's.

In each directory the glibc-hwcaps sub-directories of the chosen CPU come first. A file of another class or
machine is passed over, and the search goes on.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from packager.errors import DpackError
from packager.resolve.cache import CacheEntry, conf_directories, parse_cache
from packager.resolve.elf import DF_1_PIE, ET_EXEC, Elf, OtherMachineError, read_elf
from packager.resolve.machine import Machine
from packager.resolve.sysroot import Sysroot


class How(StrEnum):
    """How an object was found: the rule of the search that found it."""

    PROGRAM = "program"
    INTERPRETER = "interpreter"
    LOADED = "already loaded"
    PATH = "path"
    RPATH = "rpath"
    LIBRARY_PATH = "library path"
    RUNPATH = "runpath"
    CACHE = "ld.so.cache"
    CONF = "ld.so.conf"
    DEFAULT = "default directory"
    BESIDE = "beside"
    LENT = "--root, as the base lacks it"
    FETCHED = "fetched"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One file that was asked for, and why it was not taken: "no such file", "made for aarch64", …"""

    how: How
    path: str
    outcome: str
    of: str = ""

    @property
    def found_something(self) -> bool:
        """True where a file was there and was not taken."""
        return self.outcome not in {_ABSENT, _RELATIVE}

    @property
    def stops_the_loader(self) -> bool:
        """True for a file at which ld.so gives up with an error, where dpack looks further and tells of it."""
        return self.outcome.startswith("unusable")

    def __str__(self) -> str:
        origin = f" of {self.of}" if self.of else ""
        path = posixpath.basename(self.path) if self.how is How.LENT else self.path
        return f"{path}: {self.outcome} ({self.how}{origin})"


@dataclass(frozen=True, slots=True)
class Found:
    """The file that the search takes: its path as found, and ``of``, the object whose path led to it."""

    path: str
    elf: Elf
    how: How
    of: str = ""
    passed_over: tuple[Attempt, ...] = ()


@dataclass(frozen=True, slots=True)
class NotFound:
    """Nothing was found; ``attempts`` are the places, in the order in which they were asked."""

    attempts: tuple[Attempt, ...]


@dataclass(frozen=True, slots=True)
class Asker:
    """What the search takes from an object that asks for another: its own facts and its origin."""

    path: str
    origin: str
    elf: Elf


@dataclass(frozen=True, slots=True)
class Loader:
    """The dynamic loader of one target: everything about it that the search depends on.

    ``lib`` is what $LIB stands for, ``platform`` what $PLATFORM does; ``hwcaps`` are the glibc-hwcaps
    sub-directories that the chosen CPU has, best first; ``cache`` is None where there is no ld.so.cache. ``lent``
    are directories of links to another root's files, for what a base lacks; ``store`` those of the package cache.
    """

    sysroot: Sysroot
    machine: Machine
    library_path: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    lib: str = "lib"
    platform: str = ""
    hwcaps: tuple[str, ...] = ()
    conf: tuple[str, ...] = ()
    cache: tuple[CacheEntry, ...] | None = None
    lent: tuple[str, ...] = ()
    store: tuple[str, ...] = ()
    _elves: dict[str, Elf | DpackError] = field(default_factory=dict, repr=False, compare=False)
    _listings: dict[str, frozenset[str]] = field(init=False, default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(program: Elf, sysroot: Sysroot, library_path: Sequence[str] = (), cpu: str = "") -> Loader:
        """The loader that ``program`` names, with its default directories read from its own file."""
        machine = program.machine
        defaults, lib = _defaults(sysroot, program.interp, machine)
        content = sysroot.read("/etc/ld.so.cache")
        return Loader(
            sysroot=sysroot,
            machine=machine,
            library_path=tuple(library_path),
            defaults=defaults,
            lib=lib,
            platform=machine.name,
            hwcaps=machine.hwcaps[machine.hwcaps.index(cpu) :] if cpu in machine.hwcaps else (),
            conf=conf_directories(sysroot),
            cache=None if content is None else parse_cache(content),
        )

    def search(self, name: str, chain: Sequence[Asker]) -> Found | NotFound:
        """Find ``name`` for ``chain[0]``, which was loaded by ``chain[1]``, and so on up to the program."""
        attempts: list[Attempt] = []
        for how, path, of in self._candidates(name, chain):
            taken = self._try(path)
            if isinstance(taken, Elf):
                odd = tuple(a for a in attempts if a.found_something)
                return Found(path, taken, how, of, odd)
            attempts.append(Attempt(how, path, taken, of))
        return NotFound(tuple(dict.fromkeys(attempts)))

    def take(self, path: str, how: How, of: str = "") -> Found | NotFound:
        """The object at ``path``, if the loader would take it."""
        taken = self._try(path)
        if isinstance(taken, Elf):
            return Found(path, taken, how, of)
        return NotFound((Attempt(how, path, taken, of),))

    def read(self, path: str) -> Elf:
        """The facts of the file at ``path`` of the target; raises DpackError, read once."""
        real = self.sysroot.host(path) or path
        if real not in self._elves:
            try:
                self._elves[real] = read_elf(real, path)
            except DpackError as error:
                self._elves[real] = error
        elf = self._elves[real]
        if isinstance(elf, DpackError):
            raise elf
        return elf

    def _try(self, path: str) -> Elf | str:
        """The file's facts, or in words why the loader would not take it."""
        if not path.startswith("/"):
            return _RELATIVE
        directory, base = posixpath.split(path)
        if base not in self._listing(directory):
            return _ABSENT
        if not self.sysroot.is_file(path):
            return "passed over: no file, or a link that leads nowhere"
        return self._readable(path)

    def _readable(self, path: str) -> Elf | str:
        try:
            elf = self.read(path)
        except OtherMachineError as error:
            return f"passed over: {error.why.partition(';')[0]}"
        except DpackError as error:  # damaged, where ld.so would stop; or not to be read, where it goes on
            return f"unusable: {error.why}"
        if elf.machine != self.machine:
            return f"passed over: made for {elf.machine.name}, the program is for {self.machine.name}"
        return _not_loadable(elf) or elf

    def _listing(self, directory: str) -> frozenset[str]:
        """Names in ``directory``: one read of it is cheaper than asking for forty names one by one."""
        if directory not in self._listings:
            self._listings[directory] = frozenset(self.sysroot.names(directory))
        return self._listings[directory]

    def _candidates(self, name: str, chain: Sequence[Asker]) -> Iterator[tuple[How, str, str]]:
        asker = chain[0]
        name = self.expand(name, asker.origin)
        if "/" in name:
            yield How.PATH, self._absolute(name), ""
            return
        if asker.elf.runpath is None:
            for link in chain:
                yield from self._in(self._split(link.elf.rpath, link.origin), name, How.RPATH, link.path)
        yield from self._in(self.library_path, name, How.LIBRARY_PATH)
        yield from self._in(self._split(asker.elf.runpath, asker.origin), name, How.RUNPATH, asker.path)
        yield from self._cached(name, nodeflib=asker.elf.nodeflib)
        if not asker.elf.nodeflib:
            yield from self._in(self.defaults, name, How.DEFAULT)
        yield from self._in(self.lent, name, How.LENT)
        yield from self._in(self.store, name, How.FETCHED)

    def _in(
        self, directories: Sequence[str], name: str, how: How, of: str = ""
    ) -> Iterator[tuple[How, str, str]]:
        for directory in directories:
            if "glibc-hwcaps" in self._listing(directory):
                for level in self.hwcaps:
                    yield how, posixpath.join(directory, "glibc-hwcaps", level, name), of
            yield how, posixpath.join(directory, name), of

    def _cached(self, name: str, *, nodeflib: bool) -> Iterator[tuple[How, str, str]]:
        if self.cache is None:
            outside = [d for d in self.conf if not (nodeflib and d in self.defaults)]
            yield from self._in(outside, name, How.CONF)
            return
        same = [e for e in self.cache if e.name == name and e.flags == self.machine.cache_flag]
        ranked = [e for level in self.hwcaps for e in same if e.hwcaps == level]
        best = next(iter(ranked + [e for e in same if not e.hwcaps]), None)
        if best and not (nodeflib and any(best.path.startswith(d + "/") for d in self.defaults)):
            yield How.CACHE, best.path, ""

    def _split(self, paths: str | None, origin: str) -> list[str]:
        """The directories of an rpath. They keep their ``..``, which the kernel takes after following links."""
        if not paths:
            return []
        return [_directory(self.expand(path, origin)) for path in paths.split(":")]

    def _absolute(self, path: str) -> str:
        return path if path.startswith("/") else self.sysroot.inside(path)

    def expand(self, path: str, origin: str) -> str:
        """``path`` with $ORIGIN, $LIB and $PLATFORM replaced, braces or not (ld.so(8), rpath token expansion)."""
        values = {"ORIGIN": origin, "LIB": self.lib, "PLATFORM": self.platform}
        return _TOKEN.sub(lambda match: values[match[1] or match[2]], path)


_ABSENT = "no such file"
_RELATIVE = "left out: depends on the directory in which the program is started"
_TOKEN = re.compile(r"\$(?:\{(ORIGIN|LIB|PLATFORM)\}|(ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
_SYSTEM_DIRECTORIES = re.compile(rb"(?:/[\w./+-]*lib[\w./+-]*/\0){2,8}")


def _not_loadable(elf: Elf) -> str:
    """Why ld.so refuses to load ``elf`` as a library (_dl_map_object_from_fd), empty where it does not."""
    if elf.type == ET_EXEC or elf.flags_1 & DF_1_PIE:
        return "unusable: a program, not a shared object"
    return "" if elf.dynamic else "unusable: no dynamic section"


def _directory(path: str) -> str:
    """A directory of a search path: without the slash at its end; an empty one is the working directory."""
    return (path.rstrip("/") or "/") if path else "."


def _defaults(sysroot: Sysroot, interp: str | None, machine: Machine) -> tuple[tuple[str, ...], str]:
    """The default directories and $LIB. glibc's loader holds its directories as one run of strings, each with a
    slash at its end (elf/rtld.c, system_dirs); where no loader can be read, the layout of the root decides.
    """
    content = sysroot.read(interp) if interp else None
    run = _SYSTEM_DIRECTORIES.search(content) if content else None
    if run:
        directories = tuple(part.decode() for part in run[0].split(b"\0") if part)
        first = directories[0].strip("/").removeprefix("usr/")
        return tuple(d.rstrip("/") for d in directories), first
    if machine.triplet and sysroot.is_directory(f"/usr/lib/{machine.triplet}"):
        multiarch = f"lib/{machine.triplet}"
        return (f"/{multiarch}", f"/usr/{multiarch}", "/lib", "/usr/lib"), multiarch
    return ("/lib64", "/usr/lib64", "/lib", "/usr/lib"), "lib64"
