"""Time and memory of dpack beside the programs that do part of its work, on the real CUDA 12.9 libraries.

    make bench
    .venv/bin/python tests/bench/bench.py --runs 9 --output build/bench.md

Every figure is of a whole process, as a user starts it. The commands of a group run in turn (A B C A B C …), so
that what else the machine does hits all of them; wall and CPU time are medians, and a ratio is the median of the
ratios within each round. "meant" is what the project aims at. Nothing fails because it is slow.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

REQUIREMENTS = (
    "nvidia-cudnn-cu12==9.10.2.21",
    "nvidia-cublas-cu12==12.9.1.4",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
)
# What a small CNN program imports of the three libraries that it links with; it is never run.
PROGRAM = """
int cudnnCreate(void *), cudnnConvolutionForward(void), cublasCreate_v2(void *), cudaMalloc(void **, unsigned long);
int main(void) { return cudnnCreate(0) + cudnnConvolutionForward() + cublasCreate_v2(0) + cudaMalloc(0, 0); }
"""
BIN = Path(sys.executable).parent
DPACK = str(BIN / "dpack")
WORK = Path("build/bench")


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing to measure: a pipeline of commands, each fed by the one before, with one environment."""

    name: str
    pipeline: tuple[tuple[str, ...], ...]
    meant: str = ""
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU (user + system) seconds, and the peak of resident memory in bytes, children added up."""

    wall: float
    cpu: float
    memory: int


class FailedError(Exception):
    """A command that did not end well; its words are the reason."""


def measure(tool: Tool) -> Cost:
    """Run the pipeline once and wait for each of its processes.

    FailedError where one does not end with 0, FileNotFoundError where one is not installed.
    """
    for command in tool.pipeline:
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"{command[0]} is not installed")
    environment = {**os.environ, **tool.environment}
    # The environment that dpack is developed in may forbid .pyc files; a user's has them.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    processes: list[subprocess.Popen[bytes]] = []
    log = WORK / "stderr.txt"
    with log.open("wb") as errors:
        start = time.perf_counter()
        for number, command in enumerate(tool.pipeline):
            last = number == len(tool.pipeline) - 1
            source = processes[-1].stdout if processes else subprocess.DEVNULL
            target = subprocess.DEVNULL if last else subprocess.PIPE
            processes.append(
                subprocess.Popen(command, stdin=source, stdout=target, stderr=errors, env=environment)
            )
            if source is not None and not isinstance(source, int):
                source.close()
        usages = [_reap(process) for process in processes]
        wall = time.perf_counter() - start
    if any(process.returncode for process in processes):
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
        raise FailedError(words[-1])
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    return Cost(wall, cpu, sum(usage.ru_maxrss for usage in usages) * 1024)


def _reap(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def compare(tools: Sequence[Tool], runs: int) -> tuple[dict[str, list[Cost]], list[str]]:
    """The costs of each tool by name, and a sentence for each that cannot run here.

    One round before the first that counts warms the page cache and lets Python write its .pyc files.
    """
    able, notes = [], []
    for tool in tools:
        try:
            measure(tool)
        except (FailedError, FileNotFoundError) as error:
            if tool is tools[0]:
                raise
            notes.append(f"Left out: {tool.name} ({error})")
        else:
            able.append(tool)
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in able}
    for _ in range(runs):
        for tool in able:
            costs[tool.name].append(measure(tool))
    return costs, notes


def rows(tools: Sequence[Tool], costs: dict[str, list[Cost]], memory_floor: int) -> list[list[str]]:
    """A table row for each tool; the first is dpack, and the others say how it compares with them."""
    ours = costs[tools[0].name]
    table = []
    for tool in tools:
        if tool.name not in costs:
            continue
        theirs = costs[tool.name]
        memory = max(cost.memory for cost in theirs)
        # A child counts the memory of the process that started it, until it is another program.
        floor = memory_floor * len(tool.pipeline)
        peak = f"{memory / 1e6:.0f}" if memory > 1.1 * floor else f"< {1.1 * floor / 1e6:.0f}"
        ratio = ""
        if theirs is not ours:
            wall = statistics.median(a.wall / b.wall for a, b in zip(ours, theirs, strict=True))
            cpu = statistics.median(a.cpu / max(b.cpu, 1e-3) for a, b in zip(ours, theirs, strict=True))
            ratio = f"{wall:.2f} wall, {cpu:.2f} CPU"
        wall_text = f"{statistics.median(cost.wall for cost in theirs):.3f}"
        cpu_text = f"{statistics.median(cost.cpu for cost in theirs):.3f}"
        table.append([tool.name, wall_text, cpu_text, peak, ratio, tool.meant])
    return table


def libraries() -> tuple[Path, list[Path]]:
    """The tiny program and the directories of the real libraries that it needs, fetched where not cached."""
    sdk = WORK / "cuda12"
    subprocess.run([DPACK, "fetch", "--sdk", str(sdk), *REQUIREMENTS], check=True, stdout=subprocess.DEVNULL)
    source, program = WORK / "cnn.c", WORK / "cnn"
    source.write_text(PROGRAM, encoding="utf-8")
    link = [f"-L{sdk}/lib", f"-Wl,-rpath-link,{sdk}/lib", "-lcudnn", "-lcublas", "-lcudart"]
    subprocess.run(["cc", "-o", str(program), str(source), *link], check=True)
    return program, sorted({path.resolve().parent for path in (sdk / "lib").glob("*.so.*")})


def groups(program: Path, directories: Sequence[Path]) -> list[list[Tool]]:
    """What is measured: start-up, plan and bundle, each with what it is compared to."""
    request = (str(program), "--model", "cnn", *(f"--library-path={path}" for path in directories))
    kept = _kept(request)
    ours, theirs = str(WORK / "dpack.tar.zst"), str(WORK / "tar.tar.zst")
    # ld.so's search, for the peers; and Python scripts among them run on our Python, which has what they import.
    where = {
        "LD_LIBRARY_PATH": ":".join(str(path) for path in directories),
        "PATH": f"{BIN}:{os.environ.get('PATH', os.defpath)}",
    }
    packed = f"{len(kept)} files, {sum(Path(path).stat().st_size for path in kept) / 1e9:.2f} GB"
    return [
        [
            Tool("dpack --help", ((DPACK, "--help"),), "< 0.15 s"),
            Tool("python -c pass", ((sys.executable, "-c", "pass"),)),
        ],
        [
            Tool("dpack plan --model cnn", ((DPACK, "plan", *request),), "< 0.4 s, < 100 MB"),
            *(Tool(peer, ((peer, str(program)),), "", where) for peer in ("ldd", "libtree", "lddtree")),
        ],
        [
            Tool(
                f"dpack bundle -o X.tar.zst ({packed})",
                ((DPACK, "bundle", *request, "--force", "--output", ours),),
                "<= 1.0 x tar + zstd, < 300 MB",
            ),
            Tool(
                "tar -cf - FILES, zstd -T0 -3",
                (("tar", "-chPf", "-", *kept), ("zstd", "-q", "-f", "-T0", "-3", "-o", theirs)),
            ),
        ],
    ]


def _kept(request: Sequence[str]) -> list[str]:
    """The files that the bundle will hold."""
    answer = subprocess.run([DPACK, "plan", *request, "--json"], check=True, capture_output=True, text=True)
    return [d["path"] for d in json.loads(answer.stdout)["decisions"] if d["action"] == "keep"]


def heading(runs: int) -> list[str]:
    """Where and when the figures were taken: they mean little elsewhere."""
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{platform.machine()}, {os.cpu_count()} processors (load {load} at the end)"
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    how = f"Medians; runs: {runs} of each, taken in turn, with a warm page cache."
    memory = "Memory is the highest peak, of a pipeline the sum; what Python itself holds hides less."
    return ["# Benchmark", "", f"{time.strftime('%Y-%m-%d')}, {machine}, {system}. {how} {memory}", ""]


def as_markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """The rows as a Markdown table, padded so that it reads as text too."""
    titles = ["command", "wall s", "CPU s", "memory MB", "dpack / it", "meant"]
    widths = [max(len(row[i]) for row in [titles, *table]) for i in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(titles), line(["-" * width for width in widths]), *(line(row) for row in table)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of each command (default 5)")
    parser.add_argument("--output", type=Path, default=Path("build/bench.md"), metavar="FILE")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs takes a number from 1 up")
    WORK.mkdir(parents=True, exist_ok=True)
    memory_floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    table: list[list[str]] = []
    notes: list[str] = []
    try:
        for tools in groups(*libraries()):
            sys.stderr.write(f"measuring {', '.join(tool.name for tool in tools)}\n")
            costs, said = compare(tools, options.runs)
            table += rows(tools, costs, memory_floor)
            notes += said
    except (FailedError, FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"bench: {error}\n")
        return 1
    archives = sorted(WORK.glob("*.tar.zst"))
    sizes = [f"{path.name}: {path.stat().st_size / 1e6:.1f} MB" for path in archives]
    for path in archives:
        path.unlink()
    text = "\n".join(
        [*heading(options.runs), *as_markdown(table), "", "Written: " + ", ".join(sizes) + ".", *notes, ""]
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
