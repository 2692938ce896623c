"""Changes files in a process of its own, while this one compresses others.

lief takes half a second to import, and a thread would hold Python's lock for most of it. The process has a
session of its own, so that Ctrl-C reaches dpack alone, which then ends it. Jobs go in and answers come out
pickled: both ends are the same code on the same machine.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from packager.errors import DpackError
from packager.transform.apply import Job, apply, prepare

Worker = subprocess.Popen[bytes]
"""The process; it has imported what it needs by the time that it gets its jobs."""


@contextmanager
def started() -> Iterator[Worker]:
    """Start the process, before it is known what there is to do; it ends when the context is left."""
    # -P: a directory named packager where dpack is called must not be taken for this package.
    command = [sys.executable, "-P", "-m", __name__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        try:
            yield child
        finally:
            child.kill()


@contextmanager
def working(jobs: Sequence[Job], worker: Worker | None = None) -> Iterator[tuple[Callable[[], Path], ...]]:
    """Give the jobs, in their order, to a worker that was started or to a new one, and yield for each of them a
    function that waits for its result and raises what the job raised.

    A worker takes jobs once. The work is called off when its context is left.
    """
    if not jobs:
        yield ()
        return
    with nullcontext(worker) if worker else started() as child:
        waiting = _Waiting(child, jobs)
        yield tuple(partial(waiting.result, number) for number in range(len(jobs)))


class _Waiting:
    """The answers of the child, in the order of the jobs, read as far as they are asked for."""

    def __init__(self, child: subprocess.Popen[bytes], jobs: Sequence[Job]) -> None:
        assert child.stdin is not None  # noqa: S101 - for mypy: both are pipes
        assert child.stdout is not None  # noqa: S101
        self._answers = child.stdout
        self._jobs = jobs
        self._known: list[Path | DpackError] = []
        with child.stdin as stream:
            pickle.dump(tuple(jobs), stream)

    def result(self, number: int) -> Path:
        while len(self._known) <= number:
            try:
                self._known.append(pickle.load(self._answers))  # noqa: S301 - written by the child, below
            except EOFError:
                name = self._jobs[len(self._known)].source
                raise DpackError(
                    f"cannot change {name}", "the program that changes files was ended"
                ) from None
        answer = self._known[number]
        if isinstance(answer, DpackError):
            raise answer
        return answer


def main() -> None:
    """The child: reads the jobs, writes an answer for each, and stops when nobody listens."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    prepare()
    try:
        jobs: tuple[Job, ...] = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by the parent, above
    except EOFError:
        return  # there was nothing to do
    for job in jobs:
        try:
            answer: Path | DpackError = apply(job)
        except DpackError as error:
            answer = error
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    main()
