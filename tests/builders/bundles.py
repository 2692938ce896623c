"""What the tests of emit share: a manifest, and a picture of what was written."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

from packager.emit import Entry, Item

EPOCH = 1_700_000_000


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
