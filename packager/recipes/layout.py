"""How recipes are laid out for people, and turned into JSON."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from packager.arch import Arch

_WIDTH = 100


def rows(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Two columns, the second wrapped beside the first."""
    listed = list(pairs)
    width = max((len(key) for key, _ in listed), default=0)
    return [
        line
        for key, value in listed
        for line in textwrap.wrap(
            value,
            _WIDTH,
            initial_indent=f"  {key:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def wrapped(text: str, indent: str) -> list[str]:
    """A paragraph."""
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def columns(table: Iterable[tuple[str, ...]]) -> list[str]:
    """Lines of a table whose columns are as wide as their widest cell."""
    lines = list(table)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def plain(value: object) -> Any:
    """A value as JSON has it: tables for dataclasses, sorted arrays for sets, text for paths and architectures."""
    if isinstance(value, Arch | Path):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    return [plain(each) for each in value] if isinstance(value, tuple) else value
