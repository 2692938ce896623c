"""Slices of files alone, with no program or plan about them: ``dpack slice``."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from packager.arch import Gpu
from packager.cuda.cut import Aims, Cut, Left, SectionCut, write
from packager.cuda.question import Question, Sizes, aims, answer, sizes_of
from packager.cuda.select import Policy
from packager.errors import DpackError, usage
from packager.place import cannot_write, check_output, placed
from packager.resolve.elf import ElfFile
from packager.worker import spread


@dataclass(frozen=True, slots=True)
class Output:
    """Where slices go: to the file ``path``, or into the directory ``path``, which is made where it is missing."""

    path: Path
    directory: bool
    force: bool = False


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


@dataclass(frozen=True, slots=True)
class Slices:
    """The files, each once, and the links: another name that was asked for, and that of the file it leads to."""

    files: tuple[Sliced, ...]
    links: Mapping[str, str]


def check_files(files: Sequence[Path]) -> None:
    """Raise the DpackError of the first that is no ELF file or cannot be opened, before there is work done."""
    for file in files:
        with ElfFile(file):
            pass


def slice_files(
    files: Sequence[Path], gpus: tuple[Gpu, ...], policy: Callable[[str], Policy], output: Output | None
) -> Slices:
    """Slice each file for some GPUs by the policy of its name; without an ``output`` nothing is written.

    Raises DpackError for a file that is damaged, changes meanwhile, or has GPU code of which none runs on one of
    the GPUs, and for an output that cannot be written. Nothing is left behind then.
    """
    own, links = _distinct(files)
    if output is None:
        return Slices(_sliced([_Job(file, gpus, policy(file.name)) for file in own]), dict(links))
    try:
        places = _places(own, links, output)
        with ExitStack() as stack:
            if output.directory:
                stack.enter_context(_directory(output.path))
            jobs = [
                _Job(
                    file,
                    gpus,
                    policy(file.name),
                    stack.enter_context(placed(place, force=output.force)),
                    place,
                )
                for file, place in zip(own, places, strict=True)
            ]
            for name, target in links:
                stack.enter_context(placed(output.path / name, force=output.force)).symlink_to(target)
            done = _sliced(jobs)
            with _undisturbed():  # an interrupt leaves all names or none
                for place in (*places, *(output.path / name for name, _ in links)):
                    check_output(place, force=output.force)  # all once more, before the first is put there
                stack.close()
        return Slices(done, dict(links))
    except OSError as error:
        raise cannot_write(Path(error.filename2 or output.path), error, sum(map(_size, own))) from error


def _distinct(files: Sequence[Path]) -> tuple[list[Path], list[tuple[str, str]]]:
    """Each file once, by the name at the end of its links; and its other names, each with that one."""
    same: dict[tuple[int, int], list[Path]] = {}
    for file in files:
        same.setdefault(_identity(file), []).append(file)
    own, links = list[Path](), list[tuple[str, str]]()
    for names in same.values():
        places = {_place(name) for name in names}
        file = next((name for name in names if _leads_to(name) not in places), names[0])
        own.append(file)
        links += [(name, file.name) for name in sorted({each.name for each in names} - {file.name})]
    return own, links


def _leads_to(name: Path) -> Path | None:
    """The next name, of a link; None of a file."""
    return _place(name.parent / name.readlink()) if name.is_symlink() else None


def _place(name: Path) -> Path:
    """Where a name is, and not what it leads to."""
    return name.parent.resolve() / name.name


def _identity(file: Path) -> tuple[int, int]:
    known = file.stat()
    return known.st_dev, known.st_ino


def _places(own: Sequence[Path], links: Sequence[tuple[str, str]], output: Output) -> list[Path]:
    """Where each file goes. DpackError (exit 2) where one cannot be written there, before any work is done."""
    path = output.path
    if not output.directory:
        _check_apart(path, own)
        check_output(path, force=output.force)
        return [path]
    names = [*(file.name for file in own), *(name for name, _ in links)]
    twice = sorted(name for name in names if names.count(name) > 1)
    if twice:
        raise usage(
            f"cannot write {path / twice[0]}", "two of the files have that name", next="slice them one by one"
        )
    if not path.is_dir():
        if os.path.lexists(path):
            raise usage(f"cannot write into {path}", "it is no directory", next="name another with -o")
        check_output(path, force=False)
    else:
        for name in names:
            _check_apart(path / name, own)
            check_output(path / name, force=output.force)
    return [path / file.name for file in own]


def _check_apart(place: Path, files: Sequence[Path]) -> None:
    for file in files:
        if place.exists() and place.samefile(file):
            raise usage(
                f"cannot write {place}", f"it is {file}, a file to slice", next="choose another name with -o"
            )


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """A directory that is there, or is made and goes away again when the body raises."""
    made = not path.exists()
    path.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # not empty: somebody else writes there
                path.rmdir()
        raise


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C and its like wait until the body is done. Only the main thread hears of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = list[int]()
    before = {
        number: signal.signal(number, lambda which, _: came.append(which))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@dataclass(frozen=True, slots=True)
class _Job:
    """A file to slice; the slice is written to ``target``, which becomes ``place`` in the end."""

    file: Path
    gpus: tuple[Gpu, ...]
    policy: Policy
    target: Path | None = None
    place: Path | None = None

    def __str__(self) -> str:
        return str(self.file)


def _sliced(jobs: Sequence[_Job]) -> tuple[Sliced, ...]:
    return tuple(spread(_done, jobs, [_size(job.file) for job in jobs], part=_aims, wait=_reach_disk))


def _size(file: Path) -> int:
    return file.stat().st_size


def _question(job: _Job) -> Question:
    return Question(job.file, job.gpus, job.policy, cut=True)


def _aims(job: _Job) -> Aims:
    return aims(_question(job))


def _done(job: _Job, result: Callable[[], Aims]) -> Sliced:
    found = answer(_question(job), result)
    if found.cut is None:
        raise DpackError(
            f"cannot slice {job.file} for {' and '.join(map(str, found.lacking))}",
            "it has no code that runs there",
            tried=[f"it has {', '.join(map(str, found.arches)) or 'no machine code'}"],
            next="choose one of these with --gpu; `dpack gpu FILE` shows all that there is",
        )
    cut = found.cut
    if job.target is not None:
        _write(job, job.target, cut)
    after = sizes_of(cut.kept)
    return Sliced(
        str(job.file), cut.whole, cut.size, cut.segments, found.sizes, after, cut.sections, cut.left
    )


def _write(job: _Job, target: Path, cut: Cut) -> None:
    try:
        write(job.file, target, cut, to_disk=True)
    except OSError as error:
        raise cannot_write(job.place or target, error, cut.size) from error


def _reach_disk(job: _Job) -> None:
    """Wait until the slice is on the disk."""
    if job.target is not None:
        try:
            with job.target.open("rb") as written:
                os.fsync(written.fileno())
        except OSError as error:
            raise cannot_write(job.place or job.target, error, job.target.stat().st_size) from error
