"""A device for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_device import Device


@pytest.fixture
def device(tmp_path: Path) -> Device:
    """One for x86_64."""
    return Device(tmp_path)
