"""Strip: leave out what an ELF file carries beyond its segments (symbol table, debug information).

What the kernel and the loader map stays byte for byte, at the same offsets: the file is cut after its last
segment, and a section header table of the sections that are in memory is written behind it. Section numbers
stay, because dynamic symbols name their section by number. Unlike strip(1) this works for every machine.
"""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

from packager.errors import DpackError
from packager.resolve.elf import ElfFile

_SHF_ALLOC = 2
_SHT_STRTAB = 3
_HEADER = struct.Struct("<IIQQQQIIQQ")

Row = tuple[int, ...]
"""A section header: name, type, flags, address, offset, size, link, info, alignment, size of an entry."""


def strip(source: Path, target: Path) -> None:
    """Write ``source`` without symbols and debug information to ``target``.

    A file without section headers has nothing to strip and is copied. Raises DpackError for a file that
    carries more behind its ELF image (a self-extracting program): cutting would break it.
    """
    with ElfFile(source) as file:
        rows = _sections(file)
        if not rows:
            shutil.copyfile(source, target)
            return
        end = max((s.offset + s.size for s in file.segments), default=64)
        overlay = file.size - _image_end(file, rows, end)
        if overlay > 0:
            raise DpackError(
                f"cannot strip {source}",
                f"{overlay} bytes follow its ELF image, as in a self-extracting program",
                next="keep it as it is: --no-strip",
            )
        kept, names = _kept(file, rows)
        _write(source, target, end, kept, names)


def _sections(file: ElfFile) -> list[Row]:
    head = file.read_at(0, 64)
    (table,) = struct.unpack_from("<Q", head, 40)
    entry, count, names = struct.unpack_from("<HHH", head, 58)
    if entry != _HEADER.size or not count or names >= count:
        return []
    return list(_HEADER.iter_unpack(file.read_at(table, _HEADER.size * count)))


def _image_end(file: ElfFile, rows: list[Row], end: int) -> int:
    """Where the file's last section, segment or header ends. A .bss (type 8) takes no room in the file."""
    table: int = struct.unpack("<Q", file.read_at(40, 8))[0]
    ends = [row[4] + row[5] for row in rows if row[1] != 8]
    return max([end, table + _HEADER.size * len(rows), *ends])


def _kept(file: ElfFile, rows: list[Row]) -> tuple[list[Row], bytes]:
    """The section headers to write, the last one for their names, and these names. A section that goes from
    between others leaves an empty header, so that numbers stay.
    """
    (number,) = struct.unpack_from("<H", file.read_at(62, 2))
    text = file.read_at(rows[number][4], rows[number][5])
    last = max((i for i, row in enumerate(rows) if row[2] & _SHF_ALLOC), default=0)
    names = bytearray(b"\0")
    kept: list[Row] = []
    for row in rows[: last + 1]:
        if not row[2] & _SHF_ALLOC:
            kept.append((0,) * 10)
            continue
        at = len(names)
        names += text[row[0] : text.find(b"\0", row[0])] + b"\0"
        link = row[6] if row[6] <= last and rows[row[6]][2] & _SHF_ALLOC else 0
        kept.append((at, *row[1:6], link, *row[7:]))
    at = len(names)
    names += b".shstrtab\0"
    kept.append((at, _SHT_STRTAB, 0, 0, 0, len(names), 0, 0, 1, 0))
    return kept, bytes(names)


def _write(source: Path, target: Path, end: int, kept: list[Row], names: bytes) -> None:
    table = end + len(names) + 7 & ~7
    kept[-1] = (*kept[-1][:4], end, *kept[-1][5:])
    with source.open("rb") as old, target.open("wb") as new:
        left = end
        while left:
            piece = old.read(min(left, 1 << 20))
            if not piece:
                raise DpackError(f"cannot strip {source}", "the file became shorter while it was read")
            new.write(piece)
            left -= len(piece)
        new.write(names.ljust(table - end, b"\0"))
        for row in kept:
            new.write(_HEADER.pack(*row))
        new.seek(40)
        new.write(struct.pack("<Q", table))
        new.seek(60)
        new.write(struct.pack("<HH", len(kept), len(kept) - 1))
    target.chmod(0o755)
