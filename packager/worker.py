"""Python in a process beside this one: a second core, and imports that nobody waits for.

A thread would hold Python's lock while it computes or imports. There are two ways: a new process, which can import
while this one goes on, and a copy of this one, which is there at once and has imported what this one has. Either
has a session of its own, so that Ctrl-C reaches dpack alone, which then ends it. Calls go in and answers come out
pickled: both ends are the same code on the same machine. It ends by itself when dpack is gone.
"""

from __future__ import annotations

import gc
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, Generic, NoReturn, TypeVar

from packager.errors import DpackError

Item = TypeVar("Item")
Result = TypeVar("Result")
Call = tuple[Callable[[Any], Any], Any]
"""A function of a module, and its argument."""

_WORTH = 16 << 20  # bytes: what is read while a process is copied


class Worker:
    """The process. It makes the calls in the order in which it gets them."""

    def __init__(self, calls: IO[bytes], answers: IO[bytes], end: Callable[[], None]) -> None:
        """``calls`` and ``answers`` are the pipes to the process, ``end`` ends it."""
        self._calls, self._answers, self.end = calls, answers, end

    def ask(self, calls: Sequence[Call]) -> None:
        """Hand over some calls; all that were asked before must be answered first, lest both ends wait."""
        try:
            pickle.dump(tuple(calls), self._calls)
            self._calls.flush()
        except BrokenPipeError:
            pass  # the answer is that there is none

    def answer(self) -> Any:
        """Wait for the next answer; raise the DpackError that the call raised, or EOFError without an answer."""
        try:
            answer = pickle.load(self._answers)  # noqa: S301 - written by the child, below
        except pickle.UnpicklingError as error:
            raise EOFError from error  # half an answer is none
        if isinstance(answer, DpackError):
            raise answer
        return answer


@contextmanager
def started(prepare: Callable[[], None] | None = None) -> Iterator[Worker]:
    """Start the process and let it call ``prepare``, before it is known what there is to do; it ends when the
    context is left.
    """
    # -P: a directory named packager where dpack is called must not be taken for this package.
    command = [sys.executable, "-P", "-m", __name__]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdin is not None  # noqa: S101 - for mypy: both are pipes
        assert child.stdout is not None  # noqa: S101
        try:
            try:
                pickle.dump(prepare, child.stdin)
                child.stdin.flush()
            except BrokenPipeError:
                raise gone("cannot start a second process") from None
            yield Worker(child.stdin, child.stdout, child.kill)
        finally:
            child.kill()
            with suppress(BrokenPipeError):  # it ended before it read all calls
                child.stdin.close()


@contextmanager
def copied() -> Iterator[Worker]:
    """A copy of this process, which must have no other threads: one could hold a lock that nobody releases in the
    copy.
    """
    (theirs, calls), (answers, ours) = os.pipe(), os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        number = os.fork()
    except OSError:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for end in (theirs, calls, answers, ours):
            os.close(end)
        raise
    if not number:
        _be_copy(theirs, ours, not_its=(calls, answers), mask=before)
    os.close(theirs)
    os.close(ours)
    with open(calls, "wb") as asked, open(answers, "rb") as answered:  # noqa: PTH123 - these have no paths
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)  # what came meanwhile is raised here
            yield Worker(asked, answered, lambda: os.kill(number, signal.SIGKILL))
        finally:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            with suppress(BrokenPipeError):  # as above
                asked.close()


def _be_copy(calls: int, answers: int, *, not_its: Sequence[int], mask: Iterable[int]) -> NoReturn:
    """What the copy does: answer, and nothing of what this process does when it ends, also by a signal. All are
    blocked until it has the system's way of ending.
    """
    try:
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for end in not_its:
            os.close(end)
        os.setsid()
        _serve(open(calls, "rb"), open(answers, "wb"))  # noqa: SIM115 - the end of the process closes them
    except Exception:  # noqa: BLE001 - an error in dpack, shown as Python would
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(0)


def spread(
    function: Callable[..., Result],
    items: Sequence[Item],
    sizes: Sequence[int],
    *,
    part: Callable[[Item], Any] | None = None,
    wait: Callable[[Item], None] | None = None,
) -> list[Result]:
    """``function(item)`` for each item, the largest first, some of them in a process beside this one.

    Two take half the time of one at the best, and no more would help: in CUDA's closure one file is as much work
    as all others. ``sizes`` are in bytes. With ``part(item)``, some of an item's work that can be done apart, it is
    ``function(item, result=...)``, and ``result()`` is what the part gave: that of the largest item is the other
    process's first work. ``wait(item)`` is called here when an item is done, in a thread of its own: for what
    waits for a disk while both processes go on. Raises the DpackError of the first item that has one, when all are
    done.
    """
    if not items:
        return []
    first, *others = sorted(range(len(items)), key=lambda number: -sizes[number])
    work: _Work[Item, Result] = _Work(
        partial(_whole, function, part) if part else function, items, others, wait
    )
    large = sum(sizes[number] for number in others) >= _WORTH
    if large and len(os.sched_getaffinity(0)) > 1 and threading.active_count() == 1:
        aside = _Part(part, items[first]) if part else None
        with copied() as worker:
            _shared(work, worker, first, partial(function, result=aside) if aside else function, aside)
    else:
        work.take(first)
        work.take_all()
    work.settle()
    return [_result(work.done[number]) for number in range(len(items))]


def _whole(function: Callable[..., Result], part: Callable[[Item], Any], item: Item) -> Result:
    """An item with its part, which is done where it is asked for."""
    return function(item, result=partial(part, item))


class _Part(Generic[Item]):
    """What the worker finds of an item's part. Where it finds nothing, the part is done here, with its error."""

    def __init__(self, part: Callable[[Item], Any], item: Item) -> None:
        self._call = part, item
        self._over = threading.Event()
        self._found: list[Any] = []

    def __call__(self) -> Any:
        self._over.wait()
        part, item = self._call
        return self._found[0] if self._found else part(item)

    def give(self, worker: Worker) -> None:
        """Let the worker do it."""
        try:
            worker.ask([self._call])
            self._found.append(worker.answer())
        except (DpackError, EOFError):
            pass
        finally:
            self._over.set()


class _Work(Generic[Item, Result]):
    """Items that are still to do, by number, and what became of the others."""

    def __init__(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        todo: Sequence[int],
        wait: Callable[[Item], None] | None,
    ) -> None:
        self._function, self._items, self._wait = function, items, wait
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in todo:
            self._todo.put(number)
        self._waiting: list[threading.Thread] = []
        self.done: dict[int, Result | Exception] = {}

    def take(self, number: int, function: Callable[[Item], Result] | None = None) -> None:
        """Do one of the items here, by another function than the others where one is given."""
        try:
            self._finish(number, (function or self._function)(self._items[number]))
        except DpackError as error:
            self.done[number] = error

    def _finish(self, number: int, result: Result) -> None:
        self.done[number] = result
        if self._wait:
            thread = threading.Thread(target=self._settle, args=(number, self._wait), daemon=True)
            thread.start()
            self._waiting.append(thread)

    def _settle(self, number: int, wait: Callable[[Item], None]) -> None:
        try:
            wait(self._items[number])
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self.done[number] = error

    def settle(self) -> None:
        """Wait until nothing is waited for."""
        for thread in self._waiting:
            thread.join()

    def take_all(self) -> None:
        """Do what is left here."""
        with suppress(queue.Empty):
            while True:
                self.take(self._todo.get_nowait())

    def give_all(self, worker: Worker, aside: _Part[Item] | None) -> None:
        """Let the worker do the part, then what is left, one item after the other, until it is gone."""
        if aside:
            aside.give(worker)
        with suppress(queue.Empty):
            while True:
                number = self._todo.get_nowait()
                worker.ask([(self._function, self._items[number])])
                try:
                    self._finish(number, worker.answer())
                except DpackError as error:
                    self.done[number] = error
                except EOFError:
                    self.done[number] = gone(f"cannot read {self._items[number]}")
                    return
                except Exception as error:  # noqa: BLE001 - raised in the thread that waits
                    self.done[number] = error
                    return


def _shared(
    work: _Work[Item, Result],
    worker: Worker,
    first: int,
    function: Callable[[Item], Result],
    aside: _Part[Item] | None,
) -> None:
    """Do the first item and as many as there is time for here, its part and the others with the worker."""
    beside = threading.Thread(target=work.give_all, args=(worker, aside), daemon=True)
    beside.start()
    try:
        work.take(first, function)  # here, where its result need not travel
        work.take_all()
        beside.join()
    except BaseException:
        worker.end()
        beside.join()  # before the pipes are closed that it reads
        raise


def gone(what: str) -> DpackError:
    """The error for what a worker was to do that has no answer; ``what`` could not be done."""
    return DpackError(
        what,
        "the process that did it was ended",
        next="run dpack again; `dmesg` tells whether the kernel ended it for want of memory",
    )


def _result(outcome: Result | Exception) -> Result:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _serve(calls: IO[bytes], answers: IO[bytes]) -> None:
    """Answer each call, and stop when nobody listens."""
    with suppress(EOFError, BrokenPipeError):  # there is nothing more to do
        while True:
            some: tuple[Call, ...] = pickle.load(calls)  # noqa: S301 - written by the process that started this one
            for function, argument in some:
                try:
                    answer = function(argument)
                except DpackError as error:
                    answer = error
                pickle.dump(answer, answers)
                answers.flush()


def main() -> None:
    """The new process: gets ready, then answers."""
    gc.set_threshold(100_000)  # as in the process that started this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints is no answer
    with suppress(EOFError):
        if prepare := pickle.load(sys.stdin.buffer):  # noqa: S301 - as above
            prepare()
        _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
