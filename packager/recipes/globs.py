"""One name against many patterns.

Recipes hold a few hundred patterns and a run asks about a hundred names. Compiling every pattern would cost
more than the rest of the load, so patterns are filed under their literal beginning, and a name is compared
only with those that begin as it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

T = TypeVar("T")

_WILDCARD = re.compile(r"[*?[]")


def is_glob(pattern: str) -> bool:
    """Whether the name holds a wildcard, and so may stand for several."""
    return _WILDCARD.search(pattern) is not None


def literal_beginning(pattern: str) -> str:
    """The part of a pattern before its first wildcard: ``libcudnn_`` of ``libcudnn_*.so.9``."""
    return _WILDCARD.split(pattern, maxsplit=1)[0]


class Globs(Generic[T]):
    """Patterns (``*``, ``?``, ``[…]`` as in :mod:`fnmatch`, case counts) and the value of each."""

    __slots__ = ("_filed", "_lengths", "_seen")

    def __init__(self, entries: Iterable[tuple[str, T]]) -> None:
        self._filed: dict[str, list[tuple[str, T]]] = {}
        for pattern, value in entries:
            self._filed.setdefault(literal_beginning(pattern), []).append((pattern, value))
        self._lengths = sorted({len(beginning) for beginning in self._filed}, reverse=True)
        self._seen: dict[str, tuple[T, ...]] = {}

    def matches(self, name: str) -> tuple[T, ...]:
        """The values whose pattern matches, the most specific (longest literal beginning) first."""
        if name not in self._seen:
            self._seen[name] = tuple(self._matches(name))
        return self._seen[name]

    def _matches(self, name: str) -> Iterator[T]:
        for length in self._lengths:
            if length > len(name):
                continue
            beginning = name[:length]
            for pattern, value in self._filed.get(beginning, ()):
                if pattern == name or (pattern != beginning and _rest_matches(name, pattern, beginning)):
                    yield value


def _rest_matches(name: str, pattern: str, beginning: str) -> bool:
    """Whether a name that begins as the pattern does also ends so; ``beginning*`` needs no look."""
    return (len(pattern) == len(beginning) + 1 and pattern[-1] == "*") or fnmatchcase(name, pattern)
