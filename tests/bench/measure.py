"""What it costs to run a command: wall and CPU time, memory and bytes written, each of a whole process."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

BIN = Path(sys.executable).parent
DPACK = str(BIN / "dpack")
WORK = Path("build/bench")

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """One thing to measure: a pipeline of commands, each fed by the one before, with one environment.

    ``before`` are commands that make room for a run and are not measured; ``writes`` is the file or directory
    that a run leaves.
    """

    name: str
    pipeline: tuple[Command, ...]
    meant: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    before: tuple[Command, ...] = ()
    writes: Path | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall and CPU (user + system) seconds; the peak of resident memory, of processes together; bytes written."""

    wall: float
    cpu: float
    memory: int
    written: int


class FailedError(Exception):
    """A command that did not end well; its words are the reason."""


def measure(tool: Tool, *, watched: bool = False) -> Cost:
    """Run the pipeline once and wait for each of its processes.

    The kernel tells the greatest memory of one process; where it is ``watched``, those that it starts are added
    to it, as far as they are there at the same time. That takes time of its own.

    FailedError where one does not end with 0, FileNotFoundError where one is not installed.
    """
    for command in (*tool.before, *tool.pipeline):
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(f"{command[0]} is not installed")
    environment = {**os.environ, **tool.environment}
    # The environment that dpack is developed in may forbid .pyc files; a user's has them.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    for command in tool.before:
        subprocess.run(command, check=True, capture_output=True, env=environment)
    log = WORK / "stderr.txt"
    with log.open("wb") as errors:
        start = time.perf_counter()
        processes = _started(tool.pipeline, errors.fileno(), environment)
        watch = Watch([process.pid for process in processes]) if watched else None
        usages = [_reap(process) for process in processes]
        wall = time.perf_counter() - start
        seen = watch.ended() if watch else 0
    if any(process.returncode for process in processes):
        words = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["no message"]
        raise FailedError(words[-1])
    cpu = sum(usage.ru_utime + usage.ru_stime for usage in usages)
    memory = max(seen, sum(usage.ru_maxrss for usage in usages) * 1024)
    return Cost(wall, cpu, memory, size_of(tool.writes) if tool.writes else 0)


class Watch(threading.Thread):
    """Adds up, every few milliseconds, the resident memory of some processes and of all that they start."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self._pids, self._peak, self._end = pids, 0, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._end.wait(0.005):
            self._peak = max(self._peak, sum(map(_memory, self._pids)))

    def ended(self) -> int:
        """Stop, and tell the greatest sum in bytes."""
        self._end.set()
        self.join()
        return self._peak


def _memory(pid: int) -> int:
    """Resident bytes of a process and its children, now (proc(5)); 0 for one that is gone."""
    try:
        resident = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (OSError, IndexError):
        return 0
    return resident * resource.getpagesize() + sum(_memory(int(child)) for child in children)


def _started(
    pipeline: Sequence[Command], errors: int, environment: dict[str, str]
) -> list[subprocess.Popen[bytes]]:
    processes: list[subprocess.Popen[bytes]] = []
    for number, command in enumerate(pipeline):
        last = number == len(pipeline) - 1
        source = processes[-1].stdout if processes else subprocess.DEVNULL
        target = subprocess.DEVNULL if last else subprocess.PIPE
        processes.append(
            subprocess.Popen(command, stdin=source, stdout=target, stderr=errors, env=environment)
        )
        if source is not None and not isinstance(source, int):
            source.close()
    return processes


def _reap(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    # What a process waited for counts as its own: wait4(2) adds the times and takes the greatest memory.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a directory."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.is_file())


def compare(tools: Sequence[Tool], runs: int) -> tuple[dict[str, list[Cost]], list[str]]:
    """The costs of each tool by name, and a sentence for each that cannot run here.

    One round before the first that counts warms the page cache and lets Python write its .pyc files.
    """
    able, notes, memory = [], [], dict[str, int]()
    for tool in tools:
        try:
            memory[tool.name] = measure(tool, watched=True).memory
        except (FailedError, FileNotFoundError) as error:
            if tool is tools[0]:
                raise
            notes.append(f"Left out: {tool.name} ({error})")
        else:
            able.append(tool)
    costs: dict[str, list[Cost]] = {tool.name: [] for tool in able}
    for _ in range(runs):
        for tool in able:
            cost = measure(tool)
            costs[tool.name].append(replace(cost, memory=max(cost.memory, memory[tool.name])))
    return costs, notes


TITLES = ("command", "wall s", "CPU s", "memory MB", "written MB", "dpack / it", "meant")


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
        written = f"{theirs[-1].written / 1e6:.1f}" if theirs[-1].written else ""
        table.append([tool.name, wall_text, cpu_text, peak, written, ratio, tool.meant])
    return table


def as_markdown(table: Sequence[Sequence[str]]) -> list[str]:
    """The rows as a Markdown table, padded so that it reads as text too."""
    widths = [max(len(row[i]) for row in [TITLES, *table]) for i in range(len(TITLES))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return [line(TITLES), line(["-" * width for width in widths]), *(line(row) for row in table)]
