"""Slicing the ten libraries, beside reading them once and writing what stays of them, to the disk as dpack does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from measure import DPACK, WORK, Tool

GPU = "sm_86"
SLICED, COPIED = WORK / "sliced", WORK / "copied"

_SLICE = (DPACK, "slice", "--gpu", GPU, "--vendor", "--output", str(SLICED))
_FORGET = 'for file; do dd if="$file" iflag=nocache count=0 status=none; done'
_PEER = f'mkdir {COPIED} && cat "$@" > /dev/null && cp {SLICED}/* {COPIED}'


def groups(files: Sequence[Path]) -> list[list[Tool]]:
    """Two: with the libraries in the page cache, and without. Every run writes new files."""
    names = tuple(map(str, files))
    what = f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e9:.2f} GB, for {GPU}"
    forget = _shell(_FORGET, names)
    return [_tools(names, f"{what}", ()), _tools(names, f"{what}, not in the page cache", (forget,))]


def _tools(names: tuple[str, ...], what: str, before: tuple[tuple[str, ...], ...]) -> list[Tool]:
    def room(directory: Path) -> tuple[tuple[str, ...], ...]:
        return (("rm", "-rf", str(directory)), ("sync",), *before)

    meant = "<= 1.5 x cat + cp, < 300 MB"
    synced = f"{_PEER} && sync {COPIED}/*"
    return [
        Tool(f"dpack slice FILES ({what})", ((*_SLICE, *names),), meant, before=room(SLICED), writes=SLICED),
        Tool("cat FILES, cp SLICED, sync", (_shell(synced, names),), before=room(COPIED), writes=COPIED),
        Tool(
            "the same, not waiting for the disk", (_shell(_PEER, names),), before=room(COPIED), writes=COPIED
        ),
    ]


def _shell(script: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    return ("sh", "-c", script, "sh", *arguments)


def clean() -> None:
    """Remove what the tools wrote."""
    for folder in (SLICED, COPIED):
        shutil.rmtree(folder, ignore_errors=True)
