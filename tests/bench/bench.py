"""Time and memory of dpack beside the programs that do part of its work, on the real CUDA 12.9 libraries.

    make bench
    .venv/bin/python tests/bench/bench.py --runs 9 --group plan --group slice

Every figure is of a whole process, as a user starts it. The commands of a group run in turn (A B C A B C …), so
that what else the machine does hits all of them; wall and CPU time are medians, and a ratio is the median of the
ratios within each round. "meant" is what the project aims at. Nothing fails because it is slow.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import images
import slices
from libraries import kept, linked, ten
from measure import BIN, DPACK, WORK, FailedError, Tool, as_markdown, compare, rows

GROUPS = ("start", "plan", "bundle", "image", "slice")
IMAGE_RUNS = 3
"""At most so many of an image: podman takes a minute or two for each."""


def groups(
    chosen: Sequence[str], program: Path, directories: Sequence[Path]
) -> Iterator[tuple[list[Tool], list[str]]]:
    """What is measured, dpack first and then what it is compared to; and sentences on peers that are left out."""
    request = (str(program), "--model", "cnn", *(f"--library-path={path}" for path in directories))
    if "start" in chosen:
        yield _start(), []
    if "plan" in chosen:
        yield _plan(request, program, directories), []
    if "bundle" in chosen:
        yield _bundle(request), []
    if "image" in chosen:
        files = kept((*request, "--base", "scratch"))
        try:
            for compression in ("zstd", "gzip"):
                yield images.tools(request, files, compression)
        finally:
            images.clean()
    if "slice" in chosen:
        try:
            for tools in slices.groups(ten(directories)):
                yield tools, []
        finally:
            slices.clean()


def _start() -> list[Tool]:
    return [
        Tool("dpack --help", ((DPACK, "--help"),), "< 0.15 s"),
        Tool("python -c pass", ((sys.executable, "-c", "pass"),)),
    ]


def _plan(request: Sequence[str], program: Path, directories: Sequence[Path]) -> list[Tool]:
    # ld.so's search, for the peers; and Python scripts among them run on our Python, which has what they import.
    where = {
        "LD_LIBRARY_PATH": ":".join(str(path) for path in directories),
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
    }
    return [
        Tool("dpack plan --model cnn", ((DPACK, "plan", *request),), "< 0.4 s, < 100 MB"),
        *(Tool(peer, ((peer, str(program)),), "", where) for peer in ("ldd", "libtree", "lddtree")),
    ]


def _bundle(request: Sequence[str]) -> list[Tool]:
    files = kept(request)
    ours, theirs = WORK / "dpack.tar.zst", WORK / "tar.tar.zst"
    packed = f"{len(files)} files, {sum(path.stat().st_size for path in files) / 1e9:.2f} GB"
    return [
        Tool(
            f"dpack bundle -o X.tar.zst ({packed})",
            ((DPACK, "bundle", *request, "--force", "--output", str(ours)),),
            "<= 1.0 x tar + zstd, < 300 MB",
            writes=ours,
        ),
        Tool(
            "tar -cf - FILES, zstd -T0 -3",
            (
                ("tar", "-chPf", "-", *map(str, files)),
                ("zstd", "-q", "-f", "-T0", "-3", "-o", str(theirs)),
            ),
            writes=theirs,
        ),
    ]


def heading(runs: int, load: str) -> list[str]:
    """Where and when the figures were taken: they mean little elsewhere."""
    now = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} processors (load {load} before, {now} at the end)"
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    how = (
        f"Medians; runs: {runs} of each (images: {min(runs, IMAGE_RUNS)}), taken in turn, with a warm cache."
    )
    memory = "Memory is the highest peak, of several processes the sum; what Python itself holds hides less."
    return ["# Benchmark", "", f"{time.strftime('%Y-%m-%d')}, {machine}, {system}. {how} {memory}", ""]


def measured(chosen: Sequence[str], runs: int) -> tuple[list[list[str]], list[str]]:
    """The rows of the table and the sentences below it."""
    memory_floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table: list[list[str]] = []
    notes: list[str] = []
    for tools, left_out in groups(chosen, *linked()):
        sys.stderr.write(f"measuring {', '.join(tool.name for tool in tools)}\n")
        costs, said = compare(tools, min(runs, IMAGE_RUNS) if "oci-archive" in tools[0].name else runs)
        table += rows(tools, costs, memory_floor)
        notes += [*left_out, *said]
        for tool in tools:
            if tool.writes and tool.writes.is_file():
                tool.writes.unlink()
    return table, notes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of each command (default 5)")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this one; repeatable")
    parser.add_argument("--output", type=Path, default=Path("build/bench.md"), metavar="FILE")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs takes a number from 1 up")
    WORK.mkdir(parents=True, exist_ok=True)
    load = f"{os.getloadavg()[0]:.1f}"
    try:
        table, notes = measured(options.group or GROUPS, options.runs)
    except (FailedError, FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    text = "\n".join([*heading(options.runs, load), *as_markdown(table), "", *notes, ""])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
