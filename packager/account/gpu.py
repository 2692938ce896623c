"""The GPU code of a file as people and programs read it: by architecture and section, or all of it as JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from packager.account.size import human
from packager.account.table import Table, text
from packager.arch import Arch, Kind, spelling
from packager.cuda.code import Container, GpuCode, Loose, Member

Kernels = dict[int, tuple[str, ...]]
"""The names of the kernels of each piece, by its offset in the file."""

_COLUMNS = ("architecture", "kind", "section", "count", "size", "uncompressed")


def gpu_text(code: GpuCode, kernels: Kernels | None = None) -> str:
    """What the file holds, as a line and a table; with ``kernels`` a line for each of them too."""
    what = f"{code.path} ({code.machine.name}, {human(code.size)})"
    if not code:
        return f"{what}: no GPU code\n"
    places = _count(len(code.containers), "container")
    outside = f" and {_count(len(code.loose), 'cubin')} outside any" if code.loose else ""
    lines = f"{what}: {human(code.gpu_size)} of GPU code in {places}{outside}\n\n{text(_table(code))}"
    return lines + (f"\n{_kernel_lines(code, kernels)}" if kernels else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("s" if number != 1 else "")


def _placed(code: GpuCode) -> Iterator[tuple[str, Member | Loose]]:
    """Every piece with the section it lies in."""
    for container in code.containers:
        for member in container.members:
            yield container.section, member
    for piece in code.loose:
        yield piece.section, piece


def _table(code: GpuCode) -> Table:
    counts: Counter[tuple[Arch, Kind, str]] = Counter()
    sizes: Counter[tuple[Arch, Kind, str]] = Counter()
    content: Counter[tuple[Arch, Kind, str]] = Counter()
    for section, piece in _placed(code):
        key = piece.arch, piece.kind, section
        counts[key] += 1
        sizes[key] += piece.size
        content[key] += piece.uncompressed_size
    rows = [
        (spelling(kind, arch), str(kind), section, str(counts[key]), human(sizes[key]), human(content[key]))
        for key in sorted(counts)
        for arch, kind, section in (key,)
    ]
    total = ("total", "", "", str(counts.total()), human(sizes.total()), human(content.total()))
    rest = ("not GPU code", "", "", "", human(code.size - code.gpu_size), "")
    return Table(_COLUMNS, (*rows, total, rest))


def _kernel_lines(code: GpuCode, kernels: Kernels) -> str:
    """One line for each kernel: its name, and the architectures that there is code for."""
    found: defaultdict[str, set[tuple[Arch, Kind]]] = defaultdict(set)
    for piece in code.pieces:
        for name in kernels[piece.offset]:
            found[name].add((piece.arch, piece.kind))
    return "".join(
        f"{name}  {' '.join(spelling(kind, arch) for arch, kind in sorted(found[name]))}\n"
        for name in sorted(found)
    )


def gpu_json(code: GpuCode, kernels: Kernels | None = None) -> dict[str, Any]:
    """Everything that was found, sizes and offsets in bytes; each piece has "kernels" where they are given."""
    return {
        "path": code.path,
        "machine": code.machine.name,
        "size": code.size,
        "gpu_size": code.gpu_size,
        "sections": [
            {"name": each.name, "offset": each.offset, "address": each.address, "size": each.size}
            for each in code.sections
            if each.name in code.names
        ],
        "containers": [_container(each, kernels) for each in code.containers],
        "loose": [{"section": each.section, **_piece(each, kernels)} for each in code.loose],
    }


def _container(container: Container, kernels: Kernels | None) -> dict[str, Any]:
    return {
        "section": container.section,
        "offset": container.offset,
        "address": container.address,
        "size": container.size,
        "wrapped": container.wrapped,
        "members": [_piece(member, kernels) for member in container.members],
    }


def _piece(piece: Member | Loose, kernels: Kernels | None) -> dict[str, Any]:
    names = {} if kernels is None else {"kernels": list(kernels[piece.offset])}
    return {
        "kind": str(piece.kind),
        "arch": str(piece.arch),
        "offset": piece.offset,
        "size": piece.size,
        "compressed": piece.compressed,
        "uncompressed_size": piece.uncompressed_size,
        **names,
    }


def gpu_document(files: Sequence[tuple[GpuCode, Kernels | None]]) -> dict[str, Any]:
    """One JSON document for several files."""
    return {"files": [gpu_json(code, kernels) for code, kernels in files]}
