"""How a long download tells what it has done; the command line draws it."""

from __future__ import annotations

from typing import Protocol


class Bar(Protocol):
    """The progress of one file. Calls come from the thread that downloads it."""

    def advance(self, n: int) -> None:
        """``n`` more bytes are there; negative where a download had to start over."""

    def finish(self) -> None:
        """The file is done, or given up."""


class Progress(Protocol):
    """Starts bars; several may run at once, each in its own thread."""

    def start(self, label: str, total: int | None) -> Bar:
        """A bar for the file ``label`` of ``total`` bytes, None where the size is not known."""


class NoBar:
    """Shows nothing."""

    def advance(self, n: int) -> None:
        """Nothing."""

    def finish(self) -> None:
        """Nothing."""


class NoProgress:
    """Shows nothing: the default."""

    def start(self, label: str, total: int | None) -> Bar:  # noqa: ARG002 - the protocol's signature
        """A bar that shows nothing."""
        return NoBar()
