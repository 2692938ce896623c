"""What a slice does to one file, as people and programs read it; and what a vendor's licence says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from packager.account.size import human
from packager.account.table import Table, text
from packager.arch import Arch, Gpu, Kind, spelling
from packager.cuda.code import GpuCode, Loose, Member
from packager.cuda.cut import Cut
from packager.recipes import Licence

Piece = Member | Loose


def slice_text(code: GpuCode, cut: Cut, gpus: Sequence[Gpu]) -> str:
    """The sizes before and after, by section and by architecture, and what could not go and why."""
    for_whom = " and ".join(map(str, gpus))
    if not cut.removed:
        head = f"{code.path} for {for_whom}: nothing to cut, {human(cut.size)}\n"
        return head + "".join(_left(cut))
    head = f"{code.path} for {for_whom}: {human(cut.whole)}, {human(cut.size)} after"
    segments = f"{human(cut.removed)} less in {cut.segments} segments"
    return "".join(
        (f"{head}, {segments}\n\n", text(_sections(cut)), "\n", text(_arches(code, cut)), *_left(cut))
    )


def _left(cut: Cut) -> Iterator[str]:
    for each in cut.left:
        yield f"{each.section} keeps {human(each.bytes)} that could go: {each.reason}\n"


def _sections(cut: Cut) -> Table:
    rows = [(each.name, human(each.before), human(each.after), each.technique) for each in cut.sections]
    before, after = sum(s.before for s in cut.sections), sum(s.after for s in cut.sections)
    rest = ("everything else", human(cut.whole - before), human(cut.size - after), "")
    return Table(("section", "before", "after", "how"), (*rows, rest))


def _sizes(pieces: Iterable[Piece]) -> Counter[tuple[Arch, Kind]]:
    sizes: Counter[tuple[Arch, Kind]] = Counter()
    for piece in pieces:
        sizes[piece.arch, piece.kind] += piece.size
    return sizes


def _arches(code: GpuCode, cut: Cut) -> Table:
    before, after = _sizes(code.pieces), _sizes(cut.kept)
    rows = [
        (spelling(kind, arch), human(before[arch, kind]), human(after[arch, kind]))
        for arch, kind in sorted(before)
    ]
    return Table(("architecture", "before", "after"), tuple(rows))


def slice_json(code: GpuCode, cut: Cut, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """The same as values, sizes in bytes."""
    before, after = _sizes(code.pieces), _sizes(cut.kept)
    return {
        "path": code.path,
        "gpus": [str(gpu) for gpu in gpus],
        "before": cut.whole,
        "after": cut.size,
        "segments": cut.segments,
        "sections": [
            {"name": s.name, "before": s.before, "after": s.after, "technique": s.technique}
            for s in cut.sections
        ],
        "arches": [
            {"arch": spelling(kind, arch), "before": before[arch, kind], "after": after[arch, kind]}
            for arch, kind in sorted(before)
        ],
        "left": [{"section": s.section, "bytes": s.bytes, "reason": s.reason} for s in cut.left],
    }


def vendor_notice(name: str, licence: Licence) -> str:
    """One paragraph on a modified file under a licence that does not allow passing one on."""
    return (
        f"{name} is under the {licence.title}. It lets you pass the file on with your application only as NVIDIA "
        "shipped it: you may unpack it from its archive, but not change it, nor make another work out of it. A "
        "file with GPU code cut out is a changed file; leaving whole files out changes none. Whether you may "
        "slice it for your own use, or by another agreement with NVIDIA, is for you to settle; this is no legal "
        f"advice. ({licence.source})"
    )
