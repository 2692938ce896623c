"""What dpack says when it cannot go on.

Every failure a user can cause is a :class:`DpackError`. The command line prints it without a traceback:

    dpack: cannot read ./mnist: a script, run by /bin/sh
      next: give dpack the program that the script starts
"""

from __future__ import annotations

from collections.abc import Sequence

EXIT_NO = 1
"""The question was understood and the answer is no: a miss, a conflict, a failed download."""

EXIT_USAGE = 2
"""The question was wrong: no such file, an unknown model, a recipe with an error."""


class DpackError(Exception):
    """Something that dpack cannot do, with the reason and what to do about it.

    ``what``   what could not be done, with the name of the file: "cannot read ./mnist".
    ``why``    the reason, in the words of the thing itself.
    ``tried``  what was tried or searched, a line each.
    ``next``   what the user can do now.
    ``exit``   the exit code, 1 or 2 (see above).
    """

    def __init__(
        self,
        what: str,
        why: str = "",
        *,
        tried: Sequence[str] = (),
        next: str = "",  # noqa: A002 - the word that the message prints
        exit: int = EXIT_NO,  # noqa: A002 - the word that the message prints
    ) -> None:
        super().__init__(f"{what}: {why}" if why else what)
        self.what = what
        self.why = why
        self.tried = tuple(tried)
        self.next = next
        self.exit = exit

    def lines(self) -> list[str]:
        """The message as it is printed, a list of lines without the program's name."""
        return [
            str(self),
            *(f"  {line}" for line in self.tried),
            *([f"  next: {self.next}"] if self.next else []),
        ]


def usage(what: str, why: str = "", *, tried: Sequence[str] = (), next: str = "") -> DpackError:  # noqa: A002
    """A :class:`DpackError` that exits with 2: the question was wrong."""
    return DpackError(what, why, tried=tried, next=next, exit=EXIT_USAGE)
