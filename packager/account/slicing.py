"""What a slice does to files, as people and programs read it; and what a vendor's licence says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from packager.account.size import human
from packager.account.table import Table, text
from packager.arch import Gpu, spelling
from packager.slicing import Sliced, Slices

if TYPE_CHECKING:
    from packager.recipes import Licence


def slices_text(done: Slices, gpus: Sequence[Gpu]) -> str:
    """Of one file the sizes before and after, by section and by architecture; of several a line each and the sum.
    Then what could not go, and why.
    """
    links = "".join(f"{name} is a link to {target}\n" for name, target in done.links.items())
    if len(done.files) == 1:
        return _text(done.files[0], gpus) + links
    rows = [(s.path, human(s.before), human(s.after), _fate(s)) for s in done.files]
    before, after = sum(s.before for s in done.files), sum(s.after for s in done.files)
    columns = ("file", "before", f"for {_and(gpus)}", "")
    table = Table(
        columns, (*rows, ("together", human(before), human(after), f"{human(before - after)} less"))
    )
    return text(table) + "".join(f"{s.path}: {line}" for s in done.files for line in _left(s)) + links


def _text(sliced: Sliced, gpus: Sequence[Gpu]) -> str:
    if not sliced.removed:
        return f"{sliced.path} for {_and(gpus)}: {_fate(sliced)}, {human(sliced.after)}\n" + "".join(
            _left(sliced)
        )
    head = f"{sliced.path} for {_and(gpus)}: {human(sliced.before)}, {human(sliced.after)} after"
    segments = f"{human(sliced.removed)} less in {sliced.segments} segments"
    tables = f"{text(_sections(sliced))}\n{text(_arches(sliced))}"
    return f"{head}, {segments}\n\n{tables}" + "".join(_left(sliced))


def _fate(sliced: Sliced) -> str:
    if sliced.removed:
        return f"{human(sliced.removed)} less"
    return "nothing to cut" if sliced.code_before else "no GPU code"


def _and(gpus: Sequence[Gpu]) -> str:
    return " and ".join(map(str, gpus))


def _left(sliced: Sliced) -> Iterator[str]:
    for each in sliced.left:
        yield f"{each.section} keeps {human(each.bytes)} that could go: {each.reason}\n"


def _sections(sliced: Sliced) -> Table:
    rows = [(each.name, human(each.before), human(each.after), each.technique) for each in sliced.sections]
    before, after = sum(s.before for s in sliced.sections), sum(s.after for s in sliced.sections)
    rest = ("everything else", human(sliced.before - before), human(sliced.after - after), "")
    return Table(("section", "before", "after", "how"), (*rows, rest))


def _arches(sliced: Sliced) -> Table:
    rows = [(name, human(before), human(after)) for name, before, after in _by_arch(sliced)]
    return Table(("architecture", "before", "after"), tuple(rows))


def _by_arch(sliced: Sliced) -> Iterator[tuple[str, int, int]]:
    for (arch, kind), before in sorted(sliced.code_before.items()):
        yield spelling(kind, arch), before, sliced.code_after.get((arch, kind), 0)


def slices_document(done: Slices, gpus: Sequence[Gpu]) -> dict[str, Any]:
    """One JSON document for several files, sizes in bytes."""
    return {
        "gpus": [str(gpu) for gpu in gpus],
        "files": list(map(_slice_json, done.files)),
        "links": dict(done.links),
    }


def _slice_json(sliced: Sliced) -> dict[str, Any]:
    return {
        "path": sliced.path,
        "before": sliced.before,
        "after": sliced.after,
        "segments": sliced.segments,
        "sections": [
            {"name": s.name, "before": s.before, "after": s.after, "technique": s.technique}
            for s in sliced.sections
        ],
        "arches": [
            {"arch": name, "before": before, "after": after} for name, before, after in _by_arch(sliced)
        ],
        "left": [{"section": s.section, "bytes": s.bytes, "reason": s.reason} for s in sliced.left],
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
