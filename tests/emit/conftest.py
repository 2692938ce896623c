"""What the tests of emit share: peers to compare with, a manifest, and a picture of what was written."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from packager.emit import Entry, Item

EPOCH = 1_700_000_000


def require(tool: str) -> str:
    """The path of a tool; without it the test is skipped, or fails where DPACK_REQUIRE_PEERS=1."""
    if found := shutil.which(tool):
        return found
    return missing(f"{tool} is not installed")


def missing(why: str) -> str:
    if os.environ.get("DPACK_REQUIRE_PEERS") == "1":
        pytest.fail(why)
    pytest.skip(why)


def manifest(entries: tuple[Entry, ...]) -> Item:
    """A last item that says what came before it."""
    rows = [[entry.path, entry.mode, entry.size, entry.sha256] for entry in entries]
    return Item("dpack.json", 0o644, json.dumps(rows).encode())


def dump(root: Path) -> dict[str, str]:
    """Every path under a directory, as "mode seconds size sha256" for a file and "mode seconds" for a directory."""
    lines = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        text = f"{stat.S_IMODE(status.st_mode):o} {int(status.st_mtime)}"
        if stat.S_ISREG(status.st_mode):
            text += f" {status.st_size} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        else:
            assert stat.S_ISDIR(status.st_mode)
        lines[str(path.relative_to(root))] = text
    return lines


def expected(entries: tuple[Entry, ...], epoch: int = EPOCH) -> dict[str, str]:
    """The dump that a bundle with these entries must give."""
    lines = {".": f"755 {epoch}"}
    for entry in entries:
        parent = Path(entry.path).parent
        while str(parent) != ".":
            lines[str(parent)] = f"755 {epoch}"
            parent = parent.parent
        lines[entry.path] = f"{entry.mode:o} {epoch} {entry.size} {entry.sha256}"
    return lines


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
