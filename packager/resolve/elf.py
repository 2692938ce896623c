"""The dynamic facts of one ELF file: what it is, what it needs, where it looks for it.

Read-only, 64-bit little-endian, and from the program headers alone, so that a file without section headers
reads the same. Nothing is loaded whole: a library of 750 MB costs a few kilobytes of reads. Layouts are those
of the System V gABI (chapters 4 and 5) and of the LSB for symbol versions. Every field of the file is taken
as a lie until it fits the file, so that a damaged one ends in :class:`ElfError`, never in a crash or a loop.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from packager.errors import EXIT_USAGE, DpackError
from packager.resolve.machine import Machine, machine_of

ET_EXEC, ET_DYN = 2, 3
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE = 1, 2, 3, 4
DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ = 1, 4, 5, 6, 10
DT_SONAME, DT_RPATH, DT_RUNPATH = 14, 15, 29
DT_PLTRELSZ, DT_RELA, DT_RELASZ, DT_JMPREL = 2, 7, 8, 23
DT_GNU_HASH, DT_FLAGS_1, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFEF5, 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF
DF_1_NODEFLIB, DF_1_PIE = 0x800, 0x08000000

DT_AUXILIARY, DT_FILTER = 0x7FFFFFFD, 0x7FFFFFFF

_DYNAMIC_LIMIT = 1 << 20
_STRING_LIMIT = 1 << 16
_TABLE_LIMIT = 1 << 22
_VERSION_LIMIT = 1 << 14


class ElfError(DpackError):
    """A file that cannot be read as a 64-bit little-endian ELF file; ``why`` says what it is instead."""


class OtherMachineError(ElfError):
    """An ELF file of another class or byte order: one that the loader passes over in its search."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One program header: type, permission flags, and where it lies in the file and in memory (bytes)."""

    type: int
    flags: int
    offset: int
    address: int
    size: int
    memory_size: int


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """The symbol versions wanted from one shared object, e.g. libc.so.6: (GLIBC_2.17, GLIBC_2.34)."""

    file: str
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Elf:
    """What one file tells the dynamic loader. ``rpath`` is None where DT_RUNPATH replaces it, as in ld.so."""

    path: str
    machine: Machine
    type: int
    size: int
    interp: str | None = None
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    flags_1: int = 0
    dynamic: bool = False
    versions: tuple[VersionNeed, ...] = ()
    filters: tuple[str, ...] = ()
    auxiliaries: tuple[str, ...] = ()

    @property
    def nodeflib(self) -> bool:
        """True when the object asks the loader to leave out the default directories (-z nodefaultlib)."""
        return bool(self.flags_1 & DF_1_NODEFLIB)

    @property
    def static(self) -> bool:
        """True for a program that no dynamic loader starts (static-pie included)."""
        return self.interp is None and not self.needed


def read_elf(path: str | Path, name: str | None = None) -> Elf:
    """Read the dynamic facts of the file at ``path``; ``name`` is the path to show (default: the same).

    Raises ElfError (not a loadable ELF file), OtherMachineError (ELF of another class or byte order), or
    DpackError (the file cannot be opened).
    """
    with ElfFile(path, name) as file:
        return file.facts()


class ElfFile:
    """An open ELF file, for the questions that need more than :func:`read_elf`: symbols, notes, strings."""

    def __init__(self, path: str | Path, name: str | None = None) -> None:
        self.name = str(name or path)
        self._descriptor = _open(str(path), self.name)
        try:
            status = os.fstat(self._descriptor)
            self.size, self.modified = status.st_size, status.st_mtime_ns
            self.machine, self.type, self.segments = self._header()
            self._tags = self._dynamic()
        except BaseException:
            os.close(self._descriptor)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def error(self, why: str, next: str = "check the file; copy it again") -> ElfError:  # noqa: A002 - DpackError's
        """The error to raise for this file."""
        return ElfError(f"cannot read {self.name}", why, exit=EXIT_USAGE, next=next)

    def read_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes at ``offset``; ElfError when the file ends before them."""
        if not 0 <= offset <= self.size or size < 0 or offset + size > self.size:
            raise self.error(f"truncated: {size} bytes wanted at offset {offset}, the file has {self.size}")
        content = os.pread(self._descriptor, size, offset)
        if len(content) < size:
            raise self.error(
                f"cut short while it was read: {len(content)} of {size} bytes at offset {offset}"
            )
        return content

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset`` of the file; the count of bytes read, 0 at the end."""
        return os.preadv(self._descriptor, [buffer], offset)

    def _header(self) -> tuple[Machine, int, tuple[Segment, ...]]:
        head = os.pread(self._descriptor, 64, 0)
        if head[:4] != b"\x7fELF":
            raise _not_elf(self.name, head)
        if len(head) < 20:
            raise self.error(f"truncated: an ELF header of {len(head)} bytes")
        if head[4] != 2 or head[5] != 1:
            bits, order = (
                {1: "32-bit", 2: "64-bit"}.get(head[4], "?"),
                {1: "little", 2: "big"}.get(head[5], "?"),
            )
            raise OtherMachineError(
                f"cannot read {self.name}",
                f"a {bits} {order}-endian ELF file; dpack reads 64-bit little-endian ones",
                exit=EXIT_USAGE,
                next="give a program built for x86_64, aarch64 or another 64-bit little-endian machine",
            )
        if len(head) < 64:
            raise self.error(f"truncated: an ELF header of {len(head)} bytes")
        kind, number = struct.unpack_from("<HH", head, 16)
        if kind not in {ET_EXEC, ET_DYN}:
            what, step = {
                1: ("a relocatable object (.o)", "link it, and give dpack the program"),
                4: ("a core dump", "give dpack the program that it is of"),
            }.get(kind, (f"of ELF type {kind}", "name a built program"))
            raise self.error(f"{what}, neither a program nor a shared object", step)
        (table,) = struct.unpack_from("<Q", head, 32)
        entry, count = struct.unpack_from("<HH", head, 54)
        if entry != 56 or not count:
            raise self.error(f"damaged: {count} program headers of {entry} bytes each")
        rows = struct.iter_unpack("<IIQQQQQQ", self.read_at(table, 56 * count))
        return machine_of(number), kind, tuple(Segment(r[0], r[1], r[2], r[3], r[5], r[6]) for r in rows)

    def _dynamic(self) -> tuple[tuple[int, int], ...]:
        segment = next((s for s in self.segments if s.type == PT_DYNAMIC), None)
        if segment is None:
            return ()
        if segment.size > _DYNAMIC_LIMIT:
            raise self.error(f"damaged: a dynamic section of {segment.size} bytes")
        tags = []
        content = self.read_at(segment.offset, segment.size - segment.size % 16)
        for tag, value in struct.iter_unpack("<QQ", content):
            if tag == 0:
                break
            tags.append((tag, value))
        return tuple(tags)

    def tag(self, wanted: int) -> int | None:
        """The value of the last entry of the dynamic section with this tag; None without one."""
        return next((value for tag, value in reversed(self._tags) if tag == wanted), None)

    def offset_of(self, address: int) -> int:
        """The offset in the file of what is loaded at ``address``."""
        for s in self.segments:
            if s.type == PT_LOAD and s.address <= address < s.address + s.size:
                return s.offset + address - s.address
        raise self.error(f"damaged: nothing in the file is loaded at address {address:#x}")

    def _string(self, index: int) -> str:
        table, size = self.tag(DT_STRTAB), self.tag(DT_STRSZ)
        if table is None or size is None:
            raise self.error("damaged: names without a string table")
        if index >= size:
            raise self.error(f"damaged: a name at {index} of a string table of {size} bytes")
        offset = self.offset_of(table) + index
        length = min(_STRING_LIMIT, size - index, max(0, self.size - offset))
        for step in (256, length):
            text, end, _ = self.read_at(offset, min(step, length)).partition(b"\0")
            if end:
                return os.fsdecode(text)
        raise self.error(f"damaged: a name at {index} of the string table has no end")

    def facts(self) -> Elf:
        """The dynamic facts, as :func:`read_elf` returns them."""
        runpath = self._named(DT_RUNPATH)
        return Elf(
            path=self.name,
            machine=self.machine,
            type=self.type,
            size=self.size,
            interp=self._interp(),
            soname=self._named(DT_SONAME),
            needed=tuple(self._string(value) for tag, value in self._tags if tag == DT_NEEDED),
            rpath=self._named(DT_RPATH) if runpath is None else None,
            runpath=runpath,
            flags_1=self.tag(DT_FLAGS_1) or 0,
            dynamic=bool(self._tags),
            versions=tuple(self._version_needs()),
            filters=tuple(self._string(value) for tag, value in self._tags if tag == DT_FILTER),
            auxiliaries=tuple(self._string(value) for tag, value in self._tags if tag == DT_AUXILIARY),
        )

    def _named(self, tag: int) -> str | None:
        index = self.tag(tag)
        return None if index is None else self._string(index)

    def _interp(self) -> str | None:
        segment = next((s for s in self.segments if s.type == PT_INTERP), None)
        if segment is None:
            return None
        return os.fsdecode(self.read_at(segment.offset, min(segment.size, 4096)).partition(b"\0")[0])

    def _version_needs(self) -> Iterator[VersionNeed]:
        address, count = self.tag(DT_VERNEED), self.tag(DT_VERNEEDNUM) or 0
        if address is None:
            return
        offset, total = self.offset_of(address), 0
        for _ in range(count):
            _, auxiliaries, file, first, following = struct.unpack("<HHIII", self.read_at(offset, 16))
            at, names = offset + first, []
            for _ in range(auxiliaries):
                total += 1
                if total > _VERSION_LIMIT:
                    raise self.error("damaged: more symbol versions than any file needs")
                _, _, _, name, step = struct.unpack("<IHHII", self.read_at(at, 16))
                names.append(self._string(name))
                at += step
                if not step:
                    break
            yield VersionNeed(self._string(file), tuple(names))
            offset += following
            if not following:
                return

    def notes(self) -> Iterator[tuple[str, int, bytes]]:
        """The notes of the file's PT_NOTE segments: owner, type, description."""
        for segment in self.segments:
            if segment.type == PT_NOTE and segment.size <= _TABLE_LIMIT:
                yield from _notes(self.read_at(segment.offset, segment.size))


def _notes(content: bytes) -> Iterator[tuple[str, int, bytes]]:
    at = 0
    while at + 12 <= len(content):
        owner, size, kind = struct.unpack_from("<III", content, at)
        name = content[at + 12 : at + 12 + owner].rstrip(b"\0")
        start = at + 12 + (owner + 3 & ~3)
        yield name.decode("ascii", "replace"), kind, content[start : start + size]
        at = start + (size + 3 & ~3)


def _open(path: str, name: str) -> int:
    """A descriptor of a regular file; O_NONBLOCK so that a FIFO is refused instead of waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError as error:
        raise DpackError(
            f"cannot read {name}",
            "no such file",
            exit=EXIT_USAGE,
            next="check the path; build the program first",
        ) from error
    except OSError as error:
        raise DpackError(
            f"cannot read {name}",
            error.strerror or str(error),
            exit=EXIT_USAGE,
            next="check the path and its permissions",
        ) from error
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        what = "a directory" if stat.S_ISDIR(kind) else "not a regular file"
        raise ElfError(f"cannot read {name}", what, exit=EXIT_USAGE, next="name a built program")
    return descriptor


def _not_elf(name: str, head: bytes) -> ElfError:
    if head[:2] == b"#!":
        line = head[2:].split(b"\n", 1)[0].strip().decode("utf-8", "replace")
        return ElfError(
            f"cannot read {name}",
            f"a script, run by {line}",
            exit=EXIT_USAGE,
            next="give dpack the program that the script starts",
        )
    what = "an empty file" if not head else f"not an ELF file (it begins with {head[:8]!r})"
    return ElfError(f"cannot read {name}", what, exit=EXIT_USAGE, next="give dpack a built Linux program")
