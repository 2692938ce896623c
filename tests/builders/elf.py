"""A writer of tiny ELF files: valid enough for the kernel, ld.so and readelf, and small enough to read in a dump.

One file is a few hundred bytes: a read-only PT_LOAD (headers, names, symbols, notes, strings) and a writable one
with the dynamic section, which ld.so writes to. Layouts are those of the System V gABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

X86_64, AARCH64 = 62, 183
ET_REL, ET_EXEC, ET_DYN, ET_CORE = 1, 2, 3, 4
PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_PHDR, PT_GNU_STACK = 1, 2, 3, 4, 6, 0x6474E551
DT_NULL, DT_NEEDED, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT = 0, 1, 4, 5, 6, 10, 11
DT_SONAME, DT_RPATH, DT_RUNPATH = 14, 15, 29
DT_FLAGS_1, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF
DF_1_NODEFLIB, DF_1_PIE = 0x800, 0x08000000

_PAGE = 0x1000
_R, _RW = 4, 6


@dataclass(frozen=True, slots=True)
class Tiny:
    """What to write. ``rodata`` are strings of the read-only data; ``dynamic`` is False for a static program.

    ``entries`` are further (tag, value) rows of the dynamic section; ``sections`` adds section headers.
    """

    machine: int = X86_64
    type: int = ET_DYN
    interp: str | None = None
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    flags_1: int = 0
    versions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    imports: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    notes: tuple[tuple[str, int, bytes], ...] = ()
    rodata: tuple[str, ...] = ()
    entries: tuple[tuple[int, int], ...] = ()
    dynamic: bool = True
    sections: bool = False

    def with_(self, **changes: object) -> Tiny:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]  # the names are checked by replace itself

    def build(self) -> bytes:
        """The file's bytes."""
        return _Writer(self).content()

    def write(self, path: Path) -> Path:
        """Write the file, executable, with the directories above it; ``path`` again."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.build())
        path.chmod(0o755)
        return path


def elf32(machine: int = 3) -> bytes:
    """An ELF32 header with nothing behind it but zeros, as long as an ELF64 one."""
    ident = b"\x7fELF" + bytes([1, 1, 1]) + bytes(9)
    return (
        ident + struct.pack("<HHIIIIIHHHHHH", ET_DYN, machine, 1, 0, 52, 0, 0, 52, 32, 0, 40, 0, 0)
    ).ljust(128, b"\0")


def big_endian() -> bytes:
    """The header of an ELF64 file in the other byte order (s390x)."""
    ident = b"\x7fELF" + bytes([2, 2, 1]) + bytes(9)
    return (ident + struct.pack(">HHIQQQIHHHHHH", ET_DYN, 22, 1, 0, 64, 0, 0, 64, 56, 0, 64, 0, 0)).ljust(
        128, b"\0"
    )


@dataclass(slots=True)
class _Names:
    """A string table under construction."""

    content: bytearray = field(default_factory=lambda: bytearray(b"\0"))

    def add(self, name: str) -> int:
        at = len(self.content)
        self.content += name.encode() + b"\0"
        return at


@dataclass(slots=True)
class _Part:
    """One piece of the file: its section name and type, and where it came to stand."""

    name: str
    type: int
    content: bytes
    offset: int = 0
    address: int = 0
    link: str = ""
    entry: int = 0


class _Writer:
    def __init__(self, tiny: Tiny) -> None:
        self.tiny = tiny
        self.names = _Names()
        self.parts: list[_Part] = []

    def content(self) -> bytes:
        tiny = self.tiny
        tags = self._tags() if tiny.dynamic else []
        self._read_only_parts()
        at = 64 + 56 * self._program_header_count()
        for part in self.parts:
            at = part.offset = part.address = -(-at // 8) * 8
            at += len(part.content)
        text_end = at
        if tiny.dynamic:
            offset = -(-at // 8) * 8
            dynamic = _Part(".dynamic", 6, b"", offset, offset + _PAGE, ".dynstr", 16)
            dynamic.content = self._dynamic(tags)
            self.parts.append(dynamic)
        body = bytearray(self._header() + self._program_headers(text_end))
        for part in self.parts:
            body += bytes(part.offset - len(body)) + part.content
        return self._with_sections(body) if tiny.sections else bytes(body)

    def _tags(self) -> list[tuple[int, int]]:
        tiny = self.tiny
        tags = [(DT_NEEDED, self.names.add(name)) for name in tiny.needed]
        named = ((DT_SONAME, tiny.soname), (DT_RPATH, tiny.rpath), (DT_RUNPATH, tiny.runpath))
        tags += [(tag, self.names.add(value)) for tag, value in named if value is not None]
        if tiny.flags_1:
            tags.append((DT_FLAGS_1, tiny.flags_1))
        return tags + list(tiny.entries)

    def _read_only_parts(self) -> None:
        tiny = self.tiny
        if tiny.interp is not None:
            self.parts.append(_Part(".interp", 1, tiny.interp.encode() + b"\0"))
        if tiny.notes:
            self.parts.append(_Part(".note.dlopen", 7, b"".join(note(*row) for row in tiny.notes)))
        if tiny.rodata:
            self.parts.append(_Part(".rodata", 1, b"".join(text.encode() + b"\0" for text in tiny.rodata)))
        if tiny.dynamic:
            symbols, table = self._symbols(), _Part(".hash", 5, self._hash(), link=".dynsym", entry=4)
            needs = self._version_needs()
            self.parts += [_Part(".dynsym", 11, symbols, link=".dynstr", entry=24), table]
            if needs:
                self.parts.append(_Part(".gnu.version_r", 0x6FFFFFFE, needs, link=".dynstr"))
            self.parts.append(_Part(".dynstr", 3, bytes(self.names.content)))

    def _symbols(self) -> bytes:
        rows = [bytes(24)]
        for names, section in ((self.tiny.imports, 0), (self.tiny.exports, 0xFFF1)):
            rows += [struct.pack("<IBBHQQ", self.names.add(name), 0x12, 0, section, 0, 0) for name in names]
        return b"".join(rows)

    def _hash(self) -> bytes:
        """A DT_HASH table with one bucket, whose chain runs through every symbol."""
        count = 1 + len(self.tiny.imports) + len(self.tiny.exports)
        chain = [0, *range(2, count), 0][:count]
        return struct.pack(f"<III{count}I", 1, count, 1 if count > 1 else 0, *chain)

    def _version_needs(self) -> bytes:
        out = b""
        for row, (file, versions) in enumerate(self.tiny.versions):
            last = row == len(self.tiny.versions) - 1
            size = 16 + 16 * len(versions)
            out += struct.pack("<HHIII", 1, len(versions), self.names.add(file), 16, 0 if last else size)
            for number, version in enumerate(versions):
                step = 0 if number == len(versions) - 1 else 16
                out += struct.pack(
                    "<IHHII", _sysv_hash(version), 0, number + 2, self.names.add(version), step
                )
        return out

    def _part(self, name: str) -> _Part | None:
        return next((part for part in self.parts if part.name == name), None)

    def _dynamic(self, tags: list[tuple[int, int]]) -> bytes:
        places = (
            (DT_HASH, ".hash"),
            (DT_SYMTAB, ".dynsym"),
            (DT_STRTAB, ".dynstr"),
            (DT_VERNEED, ".gnu.version_r"),
        )
        for tag, name in places:
            if part := self._part(name):
                tags.append((tag, part.address))
        tags += [(DT_STRSZ, len(self.names.content)), (DT_SYMENT, 24)]
        if self.tiny.versions:
            tags.append((DT_VERNEEDNUM, len(self.tiny.versions)))
        return b"".join(struct.pack("<QQ", *row) for row in [*tags, (DT_NULL, 0)])

    def _program_header_count(self) -> int:
        tiny = self.tiny
        return 2 + 2 * (tiny.interp is not None) + bool(tiny.notes) + 2 * tiny.dynamic

    def _program_headers(self, text_end: int) -> bytes:
        count = self._program_header_count()
        rows = []
        if (interp := self._part(".interp")) is not None:
            rows.append(_segment(PT_PHDR, _R, (64, 64, 56 * count), 8))
            rows.append(_segment(PT_INTERP, _R, (interp.offset, interp.address, len(interp.content)), 1))
        rows.append(_segment(PT_LOAD, _R, (0, 0, text_end), _PAGE))
        if (dynamic := self._part(".dynamic")) is not None:
            place = dynamic.offset, dynamic.address, len(dynamic.content)
            rows += [_segment(PT_LOAD, _RW, place, _PAGE), _segment(PT_DYNAMIC, _RW, place, 8)]
        if (notes := self._part(".note.dlopen")) is not None:
            rows.append(_segment(PT_NOTE, _R, (notes.offset, notes.address, len(notes.content)), 4))
        rows.append(_segment(PT_GNU_STACK, _RW, (0, 0, 0), 16))
        return b"".join(rows)

    def _header(self, table: int = 0, count: int = 0) -> bytes:
        ident = b"\x7fELF" + bytes([2, 1, 1]) + bytes(9)
        tiny, headers = self.tiny, self._program_header_count()
        entry = 64 if count else 0
        names = count - 1 if count else 0
        rest = (tiny.type, tiny.machine, 1, 0, 64, table, 0, 64, 56, headers, entry, count, names)
        return ident + struct.pack("<HHIQQQIHHHHHH", *rest)

    def _with_sections(self, body: bytearray) -> bytes:
        names = _Names()
        order = [part.name for part in self.parts]
        rows = [bytes(64)]
        for part in self.parts:
            flags = 3 if part.name == ".dynamic" else 2
            link = order.index(part.link) + 1 if part.link else 0
            place = part.address, part.offset, len(part.content)
            information = 1 if part.name == ".dynsym" else len(self.tiny.versions) if "_r" in part.name else 0
            align = 4 if part.type == 7 else 8
            rest = (link, information, align, part.entry)
            rows.append(struct.pack("<IIQQQQIIQQ", names.add(part.name), part.type, flags, *place, *rest))
        own = names.add(".shstrtab")
        offset = len(body)
        rows.append(struct.pack("<IIQQQQIIQQ", own, 3, 0, 0, offset, len(names.content), 0, 0, 1, 0))
        body += names.content
        body += bytes(-len(body) % 8)
        body[:64] = self._header(len(body), len(rows))
        return bytes(body) + b"".join(rows)


def note(owner: str, kind: int, description: bytes) -> bytes:
    """One note record, owner and description padded to four bytes."""
    name = owner.encode() + b"\0"
    return b"".join(
        (
            struct.pack("<III", len(name), len(description), kind),
            name.ljust(-(-len(name) // 4) * 4, b"\0"),
            description.ljust(-(-len(description) // 4) * 4, b"\0"),
        )
    )


def _segment(kind: int, flags: int, place: tuple[int, int, int], align: int) -> bytes:
    offset, address, size = place
    return struct.pack("<IIQQQQQQ", kind, flags, offset, address, address, size, size, align)


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value


def write_tree(root: Path, files: Sequence[tuple[str, Tiny | bytes | str]]) -> None:
    """Write ``files`` under ``root``: an ELF file, plain bytes, or the target of a symbolic link."""
    for name, what in files:
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(what, Tiny):
            what.write(path)
        elif isinstance(what, bytes):
            path.write_bytes(what)
        else:
            path.symlink_to(what)
