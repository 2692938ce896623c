"""From a plan to a bundle: change what must be changed, write everything, account for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packager.account.licence import licence_texts
from packager.account.manifest import FILE_NAME, Contents, Placed, manifest, to_json, with_archive
from packager.account.origin import origins
from packager.emit import Entry, Format, Item, Written, in_order, write
from packager.errors import usage
from packager.plan import EXECUTABLE, Action, Decision
from packager.request import Analysis
from packager.transform.apply import Job
from packager.transform.worker import working


@dataclass(frozen=True, slots=True)
class Output:
    """Where the bundle goes and how: format, whether what is there may be replaced, file times, level."""

    path: Path
    format: Format
    force: bool = False
    epoch: int = 0
    level: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A written bundle and its manifest, the archive's own size and digest included."""

    written: Written
    manifest: dict[str, Any]


def bundle(analysis: Analysis, output: Output, progress: Callable[[int], None] | None = None) -> Bundle:
    """Write the bundle of a complete plan.

    Raises DpackError where a file cannot be read, changed or written; nothing is left behind then.
    """
    plan = analysis.plan
    _check_inputs(analysis, output.path)
    contents = _contents(analysis)

    def last(entries: tuple[Entry, ...]) -> Item:
        return Item(FILE_NAME, 0o644, to_json(manifest(plan, entries, contents)))

    with items_of(contents) as items:
        written = write(
            items,
            last,
            output.path,
            format=output.format,
            force=output.force,
            epoch=output.epoch,
            level=output.level,
            progress=progress,
        )
    whole = manifest(plan, written.entries[:-1], contents)
    return Bundle(written, with_archive(whole, written.format, written.size, written.sha256))


def _check_inputs(analysis: Analysis, output: Path) -> None:
    """Refuse to write over a file that goes into the bundle."""
    for o in analysis.closure.objects:
        if output.exists() and output.samefile(o.host):
            raise usage(
                f"cannot write {output}", f"it is {o.name}, which goes into the bundle", next="name another"
            )


def _contents(analysis: Analysis) -> Contents:
    """Everything that goes into the bundle, with where it came from."""
    plan = analysis.plan
    files = [d.object.host for d in (*plan.of(Action.KEEP), *plan.of(Action.DROP)) if d.object]
    came_from = origins(files, analysis.loader.sysroot.root)
    placed = [Placed(_place(d), d, d.change.words) for d in plan.of(Action.KEEP)]
    texts = licence_texts(came_from[d.object.host] for d in plan.of(Action.KEEP) if d.object)
    return Contents(tuple(placed), texts, came_from, analysis.recipes.licences)


def _place(d: Decision) -> str:
    """Where a kept file stands in the bundle."""
    return f"bin/{Path(d.path).name}" if d.group == EXECUTABLE else f"lib/{d.file_names[0]}"


@contextmanager
def items_of(contents: Contents) -> Iterator[list[Item]]:
    """What goes into the bundle: every file once, and links for the other names that it is asked for by.

    Changed copies are made while the first items are already written, in the order in which they are needed.
    """
    with tempfile.TemporaryDirectory(prefix="dpack-") as scratch:
        ordered = in_order([item for placed in contents.placed for item in _originals(placed)])
        changes = {one.path: one.decision.change for one in contents.placed if one.decision.change}
        jobs = {
            item.path: Job(item.source, changes[item.path], Path(scratch, str(number)))
            for number, item in enumerate(ordered)
            if item.path in changes and isinstance(item.source, Path)
        }
        with working(tuple(jobs.values())) as results:
            made = dict(zip(jobs, results, strict=True))
            texts = [Item(text.path, 0o644, text.source) for text in contents.texts]
            yield [*texts, *(replace(item, source=made.get(item.path, item.source)) for item in ordered)]


def _originals(placed: Placed) -> Iterator[Item]:
    d = placed.decision
    if d.object is not None:
        yield Item(placed.path, 0o755, Path(d.object.host))
        for name in () if d.group == EXECUTABLE else d.file_names[1:]:
            yield Item(f"lib/{name}", 0o777, b"", d.file_names[0])
