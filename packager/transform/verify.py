"""Read a rewritten ELF file back, with another reader than the one that wrote it, and compare.

pyelftools is that reader: dpack writes with its own code and with lief, and a mistake of either must not reach
a user's device. The code must be the same bytes, and everything that the loader acts on must be the same
facts, the rpath aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from packager.errors import DpackError

_PF_X = 1
_SHF_EXECINSTR = 4
_SEARCH_PATHS = {"DT_RPATH", "DT_RUNPATH"}
_NAMES = {"DT_NEEDED": "needed", "DT_SONAME": "soname"}
_COUNTED = {
    "DT_INIT_ARRAYSZ",
    "DT_FINI_ARRAYSZ",
    "DT_RELASZ",
    "DT_PLTRELSZ",
    "DT_RELRSZ",
    "DT_FLAGS",
    "DT_FLAGS_1",
}


def prepare() -> None:
    """Import pyelftools ahead of its use: it takes a tenth of a second."""
    import elftools.elf.elffile  # noqa: F401, PLC0415


def verify(original: Path, rewritten: Path, rpath: str | None) -> None:
    """Compare the two files; DpackError that names the first difference which should not be there."""
    before, after = _facts(original), _facts(rewritten)
    if rpath is not None:
        before["rpath"] = [rpath]
    for name in before:
        if before[name] != after.get(name):
            raise _changed(original, f"its {name} changed: {_difference(before[name], after.get(name))}")
    _same_code(original, rewritten)


def _difference(before: Any, after: Any) -> str:
    """What changed, short enough for a message: of two lists only what stands in one of them."""
    if isinstance(before, list) and isinstance(after, list):
        gone, new = [x for x in before if x not in after], [x for x in after if x not in before]
        return f"{gone[:3]} went, {new[:3]} came"
    return f"{before} before, {after} after"


def _facts(path: Path) -> dict[str, Any]:
    from elftools.common.exceptions import ELFError  # noqa: PLC0415 - takes a tenth of a second to import
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415

    try:
        with path.open("rb") as stream:
            return _read(ELFFile(stream))
    except ELFError as error:
        raise DpackError(
            f"cannot read {path.name} back", str(error), next="keep it as it is: --no-strip"
        ) from error


def _read(elf: Any) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "type": elf.header.e_type,
        "machine": elf.header.e_machine,
        "interpreter": None,
        "needed": [],
        "soname": [],
        "rpath": [],
        "tables": {},
        "thread-local storage": None,
        "symbols": [],
    }
    for segment in elf.iter_segments():
        kind = segment.header.p_type
        if kind == "PT_INTERP":
            facts["interpreter"] = segment.get_interp_name()
        elif kind == "PT_TLS":
            facts["thread-local storage"] = (segment.header.p_filesz, segment.header.p_memsz)
        elif kind == "PT_DYNAMIC":
            _read_dynamic(segment, facts)
    return facts


def _read_dynamic(segment: Any, facts: dict[str, Any]) -> None:
    for tag in segment.iter_tags():
        if tag.entry.d_tag in _NAMES:
            facts[_NAMES[tag.entry.d_tag]].append(getattr(tag, _NAMES[tag.entry.d_tag]))
        elif tag.entry.d_tag in _SEARCH_PATHS:
            facts["rpath"].append(tag.rpath if tag.entry.d_tag == "DT_RPATH" else tag.runpath)
        elif tag.entry.d_tag in _COUNTED:
            facts["tables"][tag.entry.d_tag] = tag.entry.d_val
    # lief sorts the table anew when it writes the hash table over it; relocations name the new places. The
    # section knows the length of the table; by the segment pyelftools counts the symbols in that hash table,
    # which of a program that exports nothing are none.
    table = segment.elffile.get_section_by_name(".dynsym") or segment
    facts["symbols"] = sorted(
        (s.name, s.entry.st_info.bind, s.entry.st_info.type, s.entry.st_size, s.entry.st_shndx == "SHN_UNDEF")
        for s in table.iter_symbols()
    )


def _same_code(original: Path, rewritten: Path) -> None:
    """Every executable section, or where there are no section headers every executable segment, is the same."""
    before, after = list(_code(original)), list(_code(rewritten))
    if [name for name, _, _ in before] != [name for name, _, _ in after]:
        raise _changed(original, "its executable sections changed")
    for (name, offset, size), (_, new_offset, new_size) in zip(before, after, strict=True):
        if _digest(original, offset, size) != _digest(rewritten, new_offset, min(size, new_size)):
            raise _changed(original, f"its code changed{f' in {name}' if name else ''}")


def _changed(original: Path, why: str) -> DpackError:
    return DpackError(
        f"cannot use the rewritten {original.name}",
        why,
        next="try --no-strip; and please report this, with the program",
    )


def _code(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size in bytes of what is executed; segments have no name, and may have grown."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - as above

    with path.open("rb") as stream:
        elf = ELFFile(stream)
        sections = [s for s in elf.iter_sections() if s.header.sh_flags & _SHF_EXECINSTR]
        if sections:
            yield from ((s.name, s.header.sh_offset, s.header.sh_size) for s in sections)
            return
        for segment in elf.iter_segments("PT_LOAD"):
            if segment.header.p_flags & _PF_X:
                yield "", segment.header.p_offset, segment.header.p_filesz


def _digest(path: Path, offset: int, size: int) -> bytes:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        stream.seek(offset)
        while size:
            piece = stream.read(min(size, 1 << 20))
            if not piece:
                break
            digest.update(piece)
            size -= len(piece)
    return digest.digest()
