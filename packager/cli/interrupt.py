"""SIGINT, SIGTERM and SIGHUP end a command in the same way, and are not lost.

A handler's exception vanishes where Python calls it inside a destructor or a weak reference's callback, which it
may print and otherwise ignore. So the wish to stop is kept, and work that takes long asks for it on its way.
"""

from __future__ import annotations

import signal
from types import FrameType

_received: list[int] = []


def install() -> None:
    """Make these signals raise KeyboardInterrupt, so that what was half written goes away. One that is ignored,
    as in a job that a script started in the background or with nohup, stays so.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)


def check() -> None:
    """Raise KeyboardInterrupt when a signal came, also when its own exception was lost."""
    if came():
        raise KeyboardInterrupt


def came() -> bool:
    """Whether a signal came."""
    return bool(_received)


def exit_code() -> int:
    """What a shell expects of a command that the first signal ended."""
    return 128 + (_received[0] if _received else signal.SIGINT)


def _stop(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    raise KeyboardInterrupt
