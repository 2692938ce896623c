"""What the bytes of a file are: its GPU code by architecture, and everything else by section."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packager.account.size import human
from packager.account.table import Table
from packager.arch import spelling
from packager.cuda.code import Section
from packager.cuda.scan import read_gpu_code
from packager.cuda.sections import SHF_ALLOC, SHF_EXECINSTR, sections_of
from packager.resolve.elf import ElfFile

SHT_NOBITS = 8
_NAMED = 3

_CONTENT = {
    ".nv_fatbin": "containers: headers, and what shares a page with code that stays",
    "__nv_relfatbin": "containers: headers, and what shares a page with code that stays",
    ".lrodata": "large constants of the host code (cuDNN's heuristics)",
    ".ldata": "large data of the host code, cuBLASLt's heuristics among it",
    ".cask_resource": "tables of kernels, and what shares a page with code that stays",
    ".rodata": "constants",
    ".data": "data",
    ".data.rel.ro": "data with pointers",
    ".eh_frame": "unwinding tables",
    ".eh_frame_hdr": "unwinding tables",
    ".gcc_except_table": "unwinding tables",
    ".dynsym": "symbols",
    ".dynstr": "symbols",
    ".gnu.hash": "symbols",
    ".symtab": "symbols",
    ".strtab": "symbols",
}


@dataclass(frozen=True, slots=True)
class Part:
    """``size`` bytes of the file called ``file`` that are ``what``, in the section ``section``."""

    file: str
    section: str
    what: str
    size: int


def parts(path: Path) -> tuple[Part, ...]:
    """All bytes of the ELF file: the sizes add up to the file's. Raises ElfError for what is none."""
    code = read_gpu_code(path)
    with ElfFile(path) as file:
        sections = [each for each in sections_of(file) if each.type != SHT_NOBITS]
    pieces: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for container in code.containers:
        for member in container.members:
            pieces[container.section][f"GPU code, {spelling(member.kind, member.arch)}"] += member.size
    for loose in code.loose:
        pieces[loose.section][f"GPU code, {spelling(loose.kind, loose.arch)}"] += loose.size
    found = [Part(path.name, name, what, n) for name, row in pieces.items() for what, n in row.items()]
    sizes: Counter[str] = Counter()
    for section in sections:
        sizes[section.name] += section.size
    whats = {section.name: _what(section) for section in sections}
    found += [Part(path.name, name, whats[name], size - pieces[name].total()) for name, size in sizes.items()]
    found.append(Part(path.name, "", "headers and padding", code.size - sizes.total()))
    return tuple(part for part in found if part.size)


def _what(section: Section) -> str:
    if section.flags & SHF_EXECINSTR:
        return "machine code of the CPU"
    if section.name.startswith((".rela", ".relr")):
        return "relocations"
    return _CONTENT.get(section.name, "other tables" if section.flags & SHF_ALLOC else "not loaded")


def remaining(paths: Iterable[Path], least: int) -> Table:
    """The parts of all files, those of the same section and kind together, the largest first.

    Rows of fewer than ``least`` bytes are one row at the end.
    """
    rows: defaultdict[tuple[str, str], list[Part]] = defaultdict(list)
    for path in paths:
        for part in parts(path):
            rows[part.section, part.what].append(part)
    sizes = {key: sum(part.size for part in found) for key, found in rows.items()}
    total = sum(sizes.values())
    large = sorted((key for key in sizes if sizes[key] >= least), key=lambda key: (-sizes[key], key))
    lines = [
        (key[1], key[0], human(sizes[key]), _share(sizes[key], total), _most(rows[key])) for key in large
    ]
    small = total - sum(sizes[key] for key in large)
    return Table(
        ("what", "section", "size", "share", "most of it in"),
        (
            *lines,
            ("all else", "", human(small), _share(small, total), ""),
            ("total", "", human(total), "", ""),
        ),
    )


def _share(size: int, total: int) -> str:
    return f"{100 * size / total:.1f} %" if total else ""


def _most(found: Sequence[Part]) -> str:
    ranked = sorted(found, key=lambda part: (-part.size, part.file))[:_NAMED]
    return ", ".join(f"{part.file.partition('.so')[0]} {human(part.size)}" for part in ranked)
