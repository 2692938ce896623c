"""From a plan to a bundle: change what must be changed, write everything, account for it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.account.licence import licence_texts
from packager.account.manifest import FILE_NAME, Contents, Placed, manifest, to_json, with_archive
from packager.account.origin import origins
from packager.emit import Entry, Format, Item, Written, write
from packager.errors import DpackError, usage
from packager.plan import EXECUTABLE, Action, Change, Decision
from packager.request import Analysis


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

    with tempfile.TemporaryDirectory(prefix="dpack-") as scratch:
        written = write(
            _prepared(contents, Path(scratch)),
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
    placed = [Placed(path, d, d.change.words) for d in plan.of(Action.KEEP) for path in _places(d)]
    texts = licence_texts(came_from[d.object.host] for d in plan.of(Action.KEEP) if d.object)
    return Contents(tuple(placed), texts, came_from, analysis.recipes.licences)


def _places(d: Decision) -> tuple[str, ...]:
    """Where a kept file stands in the bundle."""
    if d.group == EXECUTABLE:
        return (f"bin/{Path(d.path).name}",)
    return tuple(f"lib/{name}" for name in d.file_names)


def _prepared(contents: Contents, scratch: Path) -> list[Item]:
    """The items; the changed copies of some of them stand in ``scratch``."""
    try:
        return _items(contents, scratch)
    except OSError as error:
        raise DpackError(
            f"cannot prepare the bundle in {scratch.parent}",
            error.strerror or str(error),
            next="make room there, or set TMPDIR to a directory that has it",
        ) from error


def _items(contents: Contents, scratch: Path) -> list[Item]:
    items = [Item(text.path, 0o644, text.source) for text in contents.texts]
    for number, placed in enumerate(contents.placed):
        if placed.decision.object is not None:
            original = Path(placed.decision.object.host)
            source = _changed(original, placed.decision.change, scratch / str(number))
            items.append(Item(placed.path, 0o755, source))
    return items


def _changed(source: Path, change: Change, scratch: Path) -> Path:
    """``source``, or a changed copy of it that was read back and compared."""
    if not change:
        return source
    from packager.transform.rpath import set_rpath  # noqa: PLC0415 - lief is slow to import
    from packager.transform.strip import strip  # noqa: PLC0415
    from packager.transform.verify import verify  # noqa: PLC0415

    scratch.mkdir()
    result = source
    if change.strip:
        result = scratch / "stripped"
        strip(source, result)
    if change.rpath is not None:
        unpatched, result = result, scratch / "with-rpath"
        set_rpath(unpatched, result, change.rpath)
    verify(source, result, change.rpath)
    return result
