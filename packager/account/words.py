"""Small pieces of sentences that the texts of this room share."""

from __future__ import annotations

from collections.abc import Sequence


def few(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def base(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]
