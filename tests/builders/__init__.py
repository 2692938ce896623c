"""Inputs for tests, built in code: no binary file is kept in the repository."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def table(names: str, rows: Iterable[Sequence[Any]]) -> pytest.MarkDecorator:
    """Parametrise a test by ``rows``, whose first column names the row and whose others are ``names``."""
    return pytest.mark.parametrize(names.split(), [pytest.param(*row[1:], id=row[0]) for row in rows])
