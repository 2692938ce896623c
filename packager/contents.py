"""What goes into a bundle or an image: every kept file at its place, the licence texts, what dpack itself adds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from packager.account.licence import licence_texts
from packager.account.manifest import Contents, Placed
from packager.account.origin import Origin, origins
from packager.analysis import Analysis
from packager.emit import Item, in_order
from packager.errors import usage
from packager.plan import EXECUTABLE, Action, Decision
from packager.request import SCRATCH
from packager.transform.apply import Job
from packager.transform.worker import working
from packager.worker import Worker


def contents_of(analysis: Analysis, top: str = "") -> Contents:
    """Everything that goes in, with where it came from; ``top`` is the directory of the bundle in an image.

    With the base "scratch" the C library stands at its own places instead, and its loader's configuration too.
    """
    plan = analysis.plan
    came_from = _origins(analysis)
    placed = [
        Placed(path, d, d.change.words) for d in plan.of(Action.KEEP) for path in _places(d, analysis, top)
    ]
    texts = licence_texts(came_from[d.object.host] for d in plan.of(Action.KEEP) if d.object)
    return Contents(
        tuple(placed),
        tuple(replace(text, path=top + text.path) for text in texts),
        came_from,
        analysis.recipes.licences,
        added=_added(analysis),
    )


def _origins(analysis: Analysis) -> dict[str, Origin]:
    """Where each file came from: each root knows its own packages, and what a base lacks is of another root."""
    decided = (*analysis.plan.of(Action.KEEP), *analysis.plan.of(Action.DROP))
    files = [d.object.host for d in decided if d.object]
    ground = analysis.ground
    of_base = [file for file in files if ground.destination.in_base(file)]
    others = [file for file in files if not ground.destination.in_base(file)]
    root = (ground.other or ground.loader).sysroot.root
    return {**origins(others, root), **origins(of_base, ground.loader.sysroot.root)}


def _places(d: Decision, analysis: Analysis, top: str) -> tuple[str, ...]:
    if d.group == EXECUTABLE:
        return (f"{top}bin/{Path(d.path).name}",)
    if _on_scratch(analysis):
        from packager.oci.base import c_library_places  # noqa: PLC0415 - only for images on nothing

        if places := c_library_places(d, analysis.loader):
            return places
    return (f"{top}lib/{d.file_names[0]}",)


def _added(analysis: Analysis) -> tuple[Item, ...]:
    if not _on_scratch(analysis):
        return ()
    from packager.oci.base import configuration_items  # noqa: PLC0415 - only for images on nothing

    return configuration_items(analysis.plan, analysis.loader)


def _on_scratch(analysis: Analysis) -> bool:
    return analysis.request.aim.base == SCRATCH


@contextmanager
def items_of(contents: Contents, worker: Worker | None = None) -> Iterator[list[Item]]:
    """What is written: every file once, and links for the other names that it is asked for by.

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
        with working(tuple(jobs.values()), worker) as results:
            made = dict(zip(jobs, results, strict=True))
            texts = [Item(text.path, 0o644, text.source) for text in contents.texts]
            files = [replace(item, source=made.get(item.path, item.source)) for item in ordered]
            yield [*texts, *contents.added, *files]


def _originals(placed: Placed) -> Iterator[Item]:
    d = placed.decision
    if d.object is not None:
        yield Item(placed.path, 0o755, Path(d.object.host))
        folder, _, name = placed.path.rpartition("/")
        if name == d.file_names[0] and d.group != EXECUTABLE:
            for other in d.file_names[1:]:
                yield Item(f"{folder}/{other}", 0o777, b"", name)


def check_inputs(analysis: Analysis, output: Path) -> None:
    """Refuse to write over a file that goes into the bundle."""
    for o in analysis.closure.objects:
        if os.path.exists(output) and output.samefile(o.host):  # noqa: PTH110 - which knows names that are too long
            raise usage(
                f"cannot write {output}", f"it is {o.name}, which goes into the bundle", next="name another"
            )
