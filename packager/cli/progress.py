"""Progress bars on stderr, drawn by rich, and only where stderr is a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from packager.cli import interrupt

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from packager.source import Bar


class Bars:
    """The bars of one command; they appear with the first download and go when all is done.

    Without a terminal each file is named once, so that a log tells what happened.
    """

    def __init__(self) -> None:
        self._rich: Progress | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._rich is not None:
            self._rich.stop()

    def start(self, label: str, total: int | None) -> Bar:
        """A bar for one file of ``total`` bytes."""
        from packager.source import NoBar

        if not sys.stderr.isatty():
            size = f" ({total / 1e6:.1f} MB)" if total else ""
            sys.stderr.write(f"{label}{size}\n")  # in one piece: other threads write lines as well
            sys.stderr.flush()
            return NoBar()
        with self._lock:
            progress = self._rich = self._rich or _bars()
            progress.start()
        name = " ".join(label.split("-")[:2])  # of a wheel's file name, the distribution and its version
        return _Bar(progress, progress.add_task(name, total=total))


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, n: int) -> None:
        self._progress.advance(self._task, n)

    def finish(self) -> None:
        self._progress.stop_task(self._task)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


@contextmanager
def bytes_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for ``total`` bytes while the block runs, where stderr is a terminal. What it gives takes the bytes
    that are done, and raises KeyboardInterrupt when the user wants to stop.
    """
    if not sys.stderr.isatty():
        yield lambda _count: interrupt.check()
        return
    with _bars() as progress:
        task = progress.add_task(label, total=total)

        def advance(count: int) -> None:
            interrupt.check()
            progress.advance(task, count)

        yield advance
