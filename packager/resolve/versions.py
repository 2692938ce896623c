"""Symbol versions: which ones a file wants from each library, which ones a library defines, and what is unmet.

The dynamic loader refuses to start a program when a library that it needs defines a set of versions and one
that is wanted is not among them (glibc, elf/dl-version.c). Two cases it lets pass, and so does this: a library
without any version, and a version that only weak references want (VER_FLG_WEAK).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from packager.recipes.host import split_version
from packager.resolve.closure import Object
from packager.resolve.elf import DT_SYMTAB, DT_VERNEED, DT_VERNEEDNUM, ElfFile
from packager.resolve.symbols import symbol_count
from packager.resolve.verdef import Names, definitions

DT_VERSYM = 0x6FFFFFF0

_WEAK = 2
_MOST = 1 << 14
_TABLE_LIMIT = 1 << 22


@dataclass(frozen=True, slots=True)
class Wanted:
    """A version that a file wants of a library, and the sorted names of the symbols that want it. A marker such
    as GLIBC_ABI_DT_RELR has no symbols. ``weak``: the loader goes on where it is absent.
    """

    library: str
    version: str
    symbols: tuple[str, ...]
    weak: bool = False


@dataclass(frozen=True, slots=True)
class Unmet:
    """A version that ``file`` wants and that the library, as it is on the target, does not define."""

    file: str
    library: str
    version: str
    symbols: tuple[str, ...]

    @property
    def words(self) -> str:
        """The version and the first symbols that want it: "GLIBC_2.34 (dlopen, dlsym)"."""
        shown = ", ".join(self.symbols[:3]) + (", …" if len(self.symbols) > 3 else "")
        return self.version + (f" ({shown})" if shown else "")

    def __str__(self) -> str:
        version, _, symbols = self.words.partition(" ")
        return " ".join(filter(None, (self.file, "wants", version, "of", self.library, symbols)))


class Provider(Protocol):
    """Something that has libraries: a base image, a host profile, a bundle."""

    def offers(self, library: str, version: str) -> bool | None:
        """Whether its ``library`` has ``version``; None where it does not have the library at all."""


@dataclass(frozen=True, slots=True)
class Defined:
    """A provider whose libraries were read: the versions of each, by soname."""

    versions: Mapping[str, frozenset[str]]

    def offers(self, library: str, version: str) -> bool | None:
        """As :class:`Provider`; a library without any versions answers to all, as for the loader."""
        known = self.versions.get(library)
        return None if known is None else not known or version in known


def defined_versions(path: str | Path) -> frozenset[str]:
    """The versions that the file at ``path`` defines; none for a file without them. Raises ElfError."""
    with ElfFile(path) as file:
        return frozenset(each.name for each in definitions(file) if not each.base)


def wanted_versions(path: str | Path) -> tuple[Wanted, ...]:
    """The versions that the file at ``path`` wants, in its own order, with the symbols that want each.

    Raises ElfError.
    """
    with ElfFile(path) as file:
        rows = dict(_needs(file))
        symbols: dict[int, set[str]] = {index: set() for index in rows}
        if rows:
            for index, name in _imports(file):
                if index in symbols:
                    symbols[index].add(name)
    return tuple(
        Wanted(library, version, tuple(sorted(symbols[index])), weak)
        for index, (library, version, weak) in rows.items()
    )


def unmet(needing: Iterable[Object], provider: Provider) -> tuple[Unmet, ...]:
    """What the files ``needing`` want of the provider's libraries and these do not define, in their order.

    Only a file that wants something absent is read for the names of the symbols. Raises ElfError.
    """
    return tuple(lack for o in needing for lack in _lacks(o, provider))


def _lacks(o: Object, provider: Provider) -> Iterator[Unmet]:
    asked = ((need.file, version) for need in o.elf.versions for version in need.versions)
    absent = {(library, version) for library, version in asked if provider.offers(library, version) is False}
    if absent:
        for each in wanted_versions(o.host):
            if (each.library, each.version) in absent and not each.weak:
                yield Unmet(o.name, each.library, each.version, each.symbols)


def highest(versions: Iterable[str]) -> dict[str, str]:
    """The highest number of each family of versions: {"GLIBC": "2.36"}. Others (GLIBC_PRIVATE) do not count."""
    best: dict[str, tuple[int, ...]] = {}
    for family, number in map(split_version, versions):
        if number:
            best[family] = max(number, best.get(family, ()))
    return {family: ".".join(map(str, best[family])) for family in sorted(best)}


def _needs(file: ElfFile) -> Iterator[tuple[int, tuple[str, str, bool]]]:
    """(index, (library, version, weak)) for each version that ``file`` wants (Elf64_Verneed, Elf64_Vernaux)."""
    address, count = file.tag(DT_VERNEED), file.tag(DT_VERNEEDNUM) or 0
    if address is None or not count:
        return
    offset, names, total = file.offset_of(address), Names(file), 0
    for _ in range(min(count, _MOST)):
        _, entries, library, first, following = struct.unpack("<HHIII", file.read_at(offset, 16))
        at = offset + first
        for _ in range(entries):
            total += 1
            if total > _MOST:
                raise file.error("damaged: more symbol versions than any file needs")
            _, flags, index, name, step = struct.unpack("<IHHII", file.read_at(at, 16))
            yield index & 0x7FFF, (names.at(library), names.at(name), bool(flags & _WEAK))
            at += step
            if not step:
                break
        offset += following
        if not following:
            return


def _imports(file: ElfFile) -> Iterator[tuple[int, str]]:
    """(version index, name) for each symbol that ``file`` wants; none where it has no table of versions."""
    table, versions, count = file.tag(DT_SYMTAB), file.tag(DT_VERSYM), symbol_count(file)
    if table is None or versions is None or not count:
        return
    if count > _TABLE_LIMIT:
        raise file.error(f"damaged: a table of {count} symbols")
    names = Names(file)
    indexes = struct.unpack(f"<{count}H", file.read_at(file.offset_of(versions), 2 * count))
    rows = struct.iter_unpack("<IBBHQQ", file.read_at(file.offset_of(table), 24 * count))
    for index, (name, _, _, section, _, _) in zip(indexes, rows, strict=True):
        if section == 0 and name:
            yield index & 0x7FFF, names.at(name)
