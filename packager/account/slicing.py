"""What a slice does to files, as people and programs read it; and what a vendor's licence says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from packager.account.size import human
from packager.account.table import Table, text
from packager.arch import Gpu, spelling
from packager.cuda.cut import Cut
from packager.cuda.question import sizes_of
from packager.slicing import Sliced

if TYPE_CHECKING:
    from packager.recipes import Licence


def slices_text(slices: Sequence[Sliced], gpus: Sequence[Gpu]) -> str:
    """Of one file the sizes before and after, by section and by architecture; of several a line each and the sum.
    Then what could not go, and why.
    """
    if len(slices) == 1:
        return _text(slices[0], gpus)
    rows = [(s.path, human(s.cut.whole), human(s.cut.size), _fate(s)) for s in slices]
    whole, size = sum(s.cut.whole for s in slices), sum(s.cut.size for s in slices)
    columns = ("file", "before", f"for {_and(gpus)}", "")
    table = Table(columns, (*rows, ("together", human(whole), human(size), "")))
    return text(table) + "".join(f"{s.path}: {line}" for s in slices for line in _left(s.cut))


def _text(sliced: Sliced, gpus: Sequence[Gpu]) -> str:
    cut = sliced.cut
    if not cut.removed:
        return f"{sliced.path} for {_and(gpus)}: nothing to cut, {human(cut.size)}\n" + "".join(_left(cut))
    head = f"{sliced.path} for {_and(gpus)}: {human(cut.whole)}, {human(cut.size)} after"
    segments = f"{human(cut.removed)} less in {cut.segments} segments"
    tables = f"{text(_sections(cut))}\n{text(_arches(sliced))}"
    return f"{head}, {segments}\n\n{tables}" + "".join(_left(cut))


def _fate(sliced: Sliced) -> str:
    if sliced.cut.removed:
        return f"{human(sliced.cut.removed)} less"
    return "nothing to cut" if sliced.sizes else "no GPU code"


def _and(gpus: Sequence[Gpu]) -> str:
    return " and ".join(map(str, gpus))


def _left(cut: Cut) -> Iterator[str]:
    for each in cut.left:
        yield f"{each.section} keeps {human(each.bytes)} that could go: {each.reason}\n"


def _sections(cut: Cut) -> Table:
    rows = [(each.name, human(each.before), human(each.after), each.technique) for each in cut.sections]
    before, after = sum(s.before for s in cut.sections), sum(s.after for s in cut.sections)
    rest = ("everything else", human(cut.whole - before), human(cut.size - after), "")
    return Table(("section", "before", "after", "how"), (*rows, rest))


def _arches(sliced: Sliced) -> Table:
    after = sizes_of(sliced.cut.kept)
    rows = [
        (spelling(kind, arch), human(before), human(after.get((arch, kind), 0)))
        for (arch, kind), before in sorted(sliced.sizes.items())
    ]
    return Table(("architecture", "before", "after"), tuple(rows))


def slice_json(sliced: Sliced, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """One file as values, sizes in bytes."""
    cut, after = sliced.cut, sizes_of(sliced.cut.kept)
    return {
        "path": sliced.path,
        "gpus": [str(gpu) for gpu in gpus],
        "before": cut.whole,
        "after": cut.size,
        "segments": cut.segments,
        "sections": [
            {"name": s.name, "before": s.before, "after": s.after, "technique": s.technique}
            for s in cut.sections
        ],
        "arches": [
            {"arch": spelling(kind, arch), "before": before, "after": after.get((arch, kind), 0)}
            for (arch, kind), before in sorted(sliced.sizes.items())
        ],
        "left": [{"section": s.section, "bytes": s.bytes, "reason": s.reason} for s in cut.left],
    }


def vendor_notice(names: Sequence[str], licence: Licence) -> str:
    """One paragraph on modified files under a licence that does not allow passing them on."""
    them, are, its = ("them", "are", "their") if len(names) > 1 else ("it", "is", "its")
    return (
        f"{', '.join(names)} {are} under the {licence.title}. That lets you pass {them} on with your application "
        f"only as NVIDIA shipped {them}: you may unpack {them} from {its} archive, but not change {them}, nor make "
        f"another work out of {them}. A file with GPU code cut out is a changed file; leaving whole files out "
        f"changes none. Whether you may slice {them} for your own use, or by another agreement with NVIDIA, is for "
        f"you to settle; this is no legal advice. ({licence.source})"
    )
