"""Changes files in a process beside this one, which compresses others meanwhile; lief alone takes half a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from packager import worker
from packager.errors import DpackError
from packager.transform.apply import Job, apply, prepare
from packager.worker import Worker


def started() -> AbstractContextManager[Worker]:
    """Start the process before it is known what there is to do; it has imported what it needs by then."""
    return worker.started(prepare)


@contextmanager
def working(jobs: Sequence[Job], ready: Worker | None = None) -> Iterator[tuple[Callable[[], Path], ...]]:
    """Give the jobs, in their order, to a worker that was started or to a new one, and yield for each of them a
    function that waits for its result and raises what the job raised.

    The work is called off when its context is left.
    """
    if not jobs:
        yield ()
        return
    with nullcontext(ready) if ready else started() as child:
        child.ask([(apply, job) for job in jobs])
        waiting = _Waiting(child, jobs)
        yield tuple(partial(waiting.result, number) for number in range(len(jobs)))


class _Waiting:
    """The answers of the child, in the order of the jobs, read as far as they are asked for."""

    def __init__(self, child: Worker, jobs: Sequence[Job]) -> None:
        self._child = child
        self._jobs = jobs
        self._known: list[Path | DpackError] = []

    def result(self, number: int) -> Path:
        while len(self._known) <= number:
            self._known.append(self._next(self._jobs[len(self._known)]))
        known = self._known[number]
        if isinstance(known, DpackError):
            raise known
        return known

    def _next(self, job: Job) -> Path | DpackError:
        try:
            path: Path = self._child.answer()
        except DpackError as error:
            return error
        except EOFError:
            raise worker.gone(f"cannot change {job.source}") from None
        return path
