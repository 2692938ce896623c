"""Writes a bundle: the items, then the manifest that accounts for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packager.emit.archive import Form, Last, write_archive
from packager.emit.directory import write_directory
from packager.emit.format import EPOCH, Format, level_of, top_of
from packager.emit.item import Entry, Item, in_order
from packager.place import cannot_write, check_output, placed


@dataclass(frozen=True, slots=True)
class Written:
    """A bundle on disk.

    ``size``     bytes of the archive; for a directory, of all its files together.
    ``sha256``   of the archive, in hexadecimal; None for a directory.
    ``entries``  every file in the order in which it was written, the manifest last.
    """

    output: Path
    format: Format
    size: int
    sha256: str | None
    entries: tuple[Entry, ...]


def write(  # noqa: PLR0913 - the options of `dpack bundle -o`, each with a usual value
    items: Sequence[Item],
    last: Last,
    output: Path,
    *,
    format: Format,  # noqa: A002 - the noun
    top: str | None = None,
    force: bool = False,
    epoch: int = EPOCH,
    level: int | None = None,
    threads: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Written:
    """Write the items, ordered by :func:`in_order`, and then what ``last`` makes of their entries.

    ``top`` is the directory that a tar unpacks to (the output's name without suffix for None, none at all
    for ""). ``epoch`` is every file's time in seconds. ``progress`` is called on this thread with the bytes
    of each piece that was read. The bytes of the output do not depend on ``threads``.

    Raises DpackError when an item cannot be read or changes meanwhile, or the output cannot be written;
    whatever is raised, nothing is left behind and an output that existed is untouched.
    """
    level = level_of(format, level)
    check_output(output, force=force)
    ordered = in_order(items)
    try:
        with placed(output, force=force) as beside:
            if format is Format.DIR:
                entries = write_directory(beside, ordered, last, epoch, progress)
                size, sha256 = sum(entry.size for entry in entries), None
            else:
                form = Form(top_of(output) if top is None else top, epoch, format, level, threads)
                archive = write_archive(beside, ordered, last, form, progress)
                size, sha256, entries = archive.size, archive.sha256, archive.entries
    except OSError as error:
        raise cannot_write(output, error, sum(item.size for item in ordered)) from error
    return Written(output, format, size, sha256, entries)
