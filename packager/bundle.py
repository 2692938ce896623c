"""From a plan to a bundle: change what must be changed, write everything, account for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.account.manifest import FILE_NAME, manifest, to_json, with_archive
from packager.analysis import Analysis
from packager.contents import check_inputs, contents_of, items_of
from packager.emit import Entry, Format, Item, Written, write
from packager.worker import Worker


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


def bundle(
    analysis: Analysis,
    output: Output,
    progress: Callable[[int], None] | None = None,
    worker: Worker | None = None,
) -> Bundle:
    """Write the bundle of a complete plan. A ``worker`` that was started before saves the time of its start.

    Raises DpackError where a file cannot be read, changed or written; nothing is left behind then.
    """
    plan = analysis.plan
    check_inputs(analysis, output.path)
    contents = contents_of(analysis)

    def last(entries: tuple[Entry, ...]) -> Item:
        return Item(FILE_NAME, 0o644, to_json(manifest(plan, entries, contents)))

    with items_of(contents, worker) as items:
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
