"""Slices of single files, with no program or plan about them: ``dpack slice``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packager.arch import Gpu
from packager.cuda.cut import Cut, Left, SectionCut, write
from packager.cuda.question import Question, Sizes, answer, sizes_of
from packager.cuda.select import Policy
from packager.errors import DpackError
from packager.worker import spread


@dataclass(frozen=True, slots=True)
class Job:
    """A file to slice for some GPUs by a policy, and where the slice goes; None where nothing is written.
    ``output`` is the name that it gets in the end.
    """

    file: Path
    gpus: tuple[Gpu, ...]
    policy: Policy
    target: Path | None = None
    output: Path | None = None

    def __str__(self) -> str:
        return str(self.file)


@dataclass(frozen=True, slots=True)
class Sliced:
    """What became of the file ``path``, in bytes ``before`` and ``after``: the whole file, its GPU code by
    architecture and kind, its sections. ``segments`` are its program headers (0 where nothing changed), ``left``
    what had to stay.
    """

    path: str
    before: int
    after: int
    segments: int
    code_before: Sizes
    code_after: Sizes
    sections: tuple[SectionCut, ...]
    left: tuple[Left, ...]

    @property
    def removed(self) -> int:
        """Bytes that the file loses."""
        return self.before - self.after


def slices(jobs: Sequence[Job]) -> list[Sliced]:
    """Plan the cut of each file and write it.

    Raises DpackError for a file that cannot be read or written, changes meanwhile, or has GPU code of which none
    runs on one of the GPUs; others may be written then.
    """
    return spread(_sliced, jobs, [_size(job.file) for job in jobs])


def _sliced(job: Job) -> Sliced:
    found = answer(Question(job.file, job.gpus, job.policy, cut=True))
    if found.cut is None:
        raise DpackError(
            f"cannot slice {job.file} for {' and '.join(map(str, found.lacking))}",
            "it has no code that runs there",
            tried=[f"it has {', '.join(map(str, found.arches)) or 'no machine code'}"],
            next="choose one of these with --gpu; `dpack gpu FILE` shows all that there is",
        )
    cut = found.cut
    if job.target is not None:
        _write(job.file, job.target, job.output or job.target, cut)
    after = sizes_of(cut.kept)
    return Sliced(
        str(job.file), cut.whole, cut.size, cut.segments, found.sizes, after, cut.sections, cut.left
    )


def _size(file: Path) -> int:
    """What there is to read; 0 for what the reader will complain of."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _write(file: Path, target: Path, output: Path, cut: Cut) -> None:
    """Write the cut file, and wait until it is on the disk."""
    try:
        write(file, target, cut)
        with target.open("rb") as written:
            os.fsync(written.fileno())
    except OSError as error:
        from packager.emit.place import cannot_write  # noqa: PLC0415 - not worth its time in the process beside

        raise cannot_write(output, error, cut.size) from error
