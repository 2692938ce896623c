"""A small bundle for the tests of emit."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from packager.emit import Item


@pytest.fixture
def items(tmp_path: Path) -> list[Item]:
    """A small bundle: files on disk and in memory, empty, of exactly one tar block, larger than a buffer."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "app").write_bytes(b"\x7fELF" + bytes(range(256)) * 40_000)
    (source / "small").write_bytes(b"s" * 512)
    (source / "odd").write_bytes(hashlib.shake_128(b"odd").digest(1_500_001))
    return [
        Item("share/licences/" + "long/" * 30 + "LICENSE", 0o644, b"licence\n"),
        Item("lib/libsmall.so.1", 0o755, source / "small"),
        Item("bin/app", 0o755, source / "app"),
        Item("lib/libé.so", 0o644, b""),
        Item("lib/libodd.so", 0o644, source / "odd"),
    ]
