"""Slicing the ten libraries, beside reading them once and writing what stays of them.

    .venv/bin/python tests/bench/slices.py DIR FILE...

slices each FILE for sm_86 into DIR, in one process: what `dpack bundle` does of it, and the second thing measured.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from measure import DPACK, WORK, Tool

GPU = "sm_86"
SLICED, COPIED = WORK / "sliced", WORK / "copied"

_LOOP = (
    f'for file; do {DPACK} slice --gpu {GPU} --vendor -f -o {SLICED}/"${{file##*/}}" "$file" || exit; done'
)
_PEER = f'cat "$@" > /dev/null && cp {SLICED}/* {COPIED}'


def groups(files: Sequence[Path]) -> list[list[Tool]]:
    """Two: a run of dpack for each file, and all in one process. Each with the two peers."""
    names = tuple(map(str, files))
    meant = "<= 1.5 x cat + cp, < 300 MB"
    gigabytes = sum(path.stat().st_size for path in files) / 1e9
    what = f"{len(files)} files, {gigabytes:.2f} GB, for {GPU}"
    for folder in (SLICED, COPIED):
        folder.mkdir(parents=True, exist_ok=True)
    loop = Tool(f"dpack slice FILE ({what})", (_shell(_LOOP, names),), meant, writes=SLICED)
    here = (sys.executable, __file__, str(SLICED), *names)
    single = Tool(f"packager.cuda, one process ({what})", (here,), meant, writes=SLICED)
    peers = [
        Tool("cat FILES > /dev/null, cp SLICED", (_shell(_PEER, names),), writes=COPIED),
        # dpack slice waits until the file is on the disk; cp leaves that to the kernel.
        Tool("the same, and sync", (_shell(f"{_PEER} && sync {COPIED}/*", names),), writes=COPIED),
    ]
    return [[loop, *peers], [single, *peers]]


def _shell(script: str, arguments: tuple[str, ...]) -> tuple[str, ...]:
    return ("sh", "-c", script, "sh", *arguments)


def clean() -> None:
    """Remove what the tools wrote."""
    for folder in (SLICED, COPIED):
        shutil.rmtree(folder, ignore_errors=True)


def main(target: Path, files: Sequence[Path]) -> None:
    """Slice ``files`` for GPU into the directory ``target``, by the rules of a bundle's plan."""
    from packager.arch import Gpu  # noqa: PLC0415 - the other half of the module measures, and needs none of it
    from packager.cuda.cut import plan_cut, write  # noqa: PLC0415
    from packager.cuda.scan import read_gpu_code  # noqa: PLC0415
    from packager.cuda.select import keep  # noqa: PLC0415
    from packager.gpu import Slicer  # noqa: PLC0415

    slicer = Slicer((Gpu.of(GPU),), "vendor")
    for path in files:
        code = read_gpu_code(path)
        cut = plan_cut(code, keep(code, slicer.gpus, slicer.policy(path.name)))
        write(path, target / path.name, cut)


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(Path, sys.argv[2:])))
