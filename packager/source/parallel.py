"""A few threads at once, all of which end when one fails or the user interrupts."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_THREADS = 4
# Seconds, all threads together, to clear up after the work was called off.
_GRACE = 1.0


class Stopped(Exception):  # noqa: N818 - a thread that was told to end has not failed
    """Raised in a thread that ends because ``stop`` is set."""


def check(stop: threading.Event) -> None:
    """Leave by :class:`Stopped` where the work was called off."""
    if stop.is_set():
        raise Stopped


def each(
    work: Callable[[Item, threading.Event], Result], items: Sequence[Item], threads: int = _THREADS
) -> list[Result]:
    """``work(item, stop)`` for each item, the results in the order of the items.

    The first failure, or KeyboardInterrupt, sets ``stop``, gives the threads a moment to clear up, and is
    raised. The threads are daemons: one that waits on a dead connection does not hold up the exit, which
    concurrent.futures would.
    """
    stop = threading.Event()
    if len(items) <= 1:
        return [work(item, stop) for item in items]
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[int, Result] | BaseException] = queue.SimpleQueue()
    for index in range(len(items)):
        todo.put(index)

    def run() -> None:
        try:
            while not stop.is_set():
                index = todo.get_nowait()
                done.put((index, work(items[index], stop)))
        except queue.Empty:
            return
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits, raised there
            done.put(error)

    workers = [threading.Thread(target=run, daemon=True) for _ in range(min(threads, len(items)))]
    try:
        for worker in workers:
            worker.start()
        return _collect(done, len(items))
    finally:
        stop.set()
        deadline = time.monotonic() + _GRACE
        for worker in workers:
            if worker.ident is not None:
                worker.join(max(0.0, deadline - time.monotonic()))


def _collect(done: queue.SimpleQueue[tuple[int, Result] | BaseException], count: int) -> list[Result]:
    results: dict[int, Result] = {}
    while len(results) < count:
        outcome = done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        results[outcome[0]] = outcome[1]
    return [results[index] for index in range(count)]
