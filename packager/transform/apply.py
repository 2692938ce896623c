"""Applies the plan's change to one file: strip, then rpath, then the slice, and reads the result back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packager.errors import DpackError
from packager.plan import Change, Slice


@dataclass(frozen=True, slots=True)
class Job:
    """One file to change. ``scratch`` is a directory that is made for its copies."""

    source: Path
    change: Change
    scratch: Path


def prepare() -> None:
    """Import what takes long, while nobody waits for it."""
    from packager.transform import rpath, verify  # noqa: PLC0415 - as below

    rpath.prepare()
    verify.prepare()


def apply(job: Job) -> Path:
    """Make the changed copy of a file, compare it with the original, and return its path.

    Raises DpackError when the file cannot be changed or there is no room for the copy.
    """
    try:
        return _apply(job)
    except OSError as error:
        raise DpackError(
            f"cannot prepare {job.source.name} in {job.scratch.parent}",
            error.strerror or str(error),
            next="make room there, or set TMPDIR to a directory that has it",
        ) from error


def _apply(job: Job) -> Path:
    from packager.transform.rpath import set_rpath  # noqa: PLC0415 - lief is slow to import
    from packager.transform.strip import strip  # noqa: PLC0415
    from packager.transform.verify import verify  # noqa: PLC0415

    job.scratch.mkdir()
    result = job.source
    if job.change.strip:
        result = job.scratch / "stripped"
        strip(job.source, result)
    if job.change.rpath is not None:
        unpatched, result = result, job.scratch / "with-rpath"
        set_rpath(unpatched, result, job.change.rpath)
    if job.change.slice is not None:
        whole, result = result, job.scratch / "sliced"
        _slice(whole, result, job.change.slice, planned=whole == job.source)
    verify(job.source, result, job.change.rpath)
    return result


def _slice(source: Path, target: Path, planned_slice: Slice, *, planned: bool) -> None:
    """Cut as planned; a file that was changed since the plan has other offsets and is read again."""
    from packager.cuda import cut, scan, select  # noqa: PLC0415 - most changes cut nothing

    if planned:
        cut.write(source, target, planned_slice.cut)
        return
    selection = select.keep(scan.read_gpu_code(source), planned_slice.gpus, planned_slice.policy)
    cut.write(source, target, cut.plan_cut(selection.code, selection))
