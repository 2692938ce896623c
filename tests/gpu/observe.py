"""Runs a program and watches it: what it prints, how it ends, and which shared objects it maps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_INTERVAL = 0.01
_SPEED = re.compile(r"^(\S+) +(\d+) samples/s", re.MULTILINE)
_PLATFORM = re.compile(r"^(device|torch|CUDA|cuDNN|cuBLAS) {2,}(\S.*)$", re.MULTILINE)
_SHARED_OBJECT = re.compile(r"\.so(\.[0-9]|$)")
_LINK_MAP = re.compile(r"file=(\S+) \[\d+\];\s+generating link map")
_HIDE = 'while [ "$1" != -- ]; do mount -t tmpfs none "$1" || exit 125; shift; done; shift; exec env -i "$@"'


@dataclass(frozen=True, slots=True)
class Run:
    """One run: exit code (negative for a signal), output, the shared objects mapped at any time, sorted, and how
    long it took, in seconds.
    """

    code: int
    out: str
    err: str
    mapped: tuple[str, ...]
    seconds: float = 0.0

    @property
    def words(self) -> str:
        """The last line that it said on stderr, or how it ended where it said nothing."""
        lines = self.err.strip().splitlines()
        return lines[-1] if lines else f"exit code {self.code}"

    @property
    def results(self) -> str:
        """What it printed without what differs from run to run: the speeds."""
        return re.sub(r"\b\d+ samples/s", "- samples/s", self.out)

    @property
    def speeds(self) -> dict[str, float]:
        """Samples per second, by what they are of: "training", "classification"."""
        return {name: float(number) for name, number in _SPEED.findall(self.out)}

    @property
    def platform(self) -> dict[str, str]:
        """What it says that it runs on: device, torch, CUDA, cuDNN, cuBLAS."""
        return dict(_PLATFORM.findall(self.out))


def run(
    program: Path,
    environment: Mapping[str, str],
    *,
    arguments: Sequence[str] = (),
    hidden: Sequence[Path] = (),
    limit: float = 180,
) -> Run:
    """Run ``program`` in exactly this environment, the directories ``hidden`` empty in its eyes.

    The kernel's own list of its mappings is read every 10 ms, so an object that is mapped for less than that
    may be missed; :func:`loaded` asks ld.so, which misses none. Past ``limit`` seconds it is killed.
    """
    command = [str(program), *arguments]
    if hidden:
        command = _behind(hidden, environment, command)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, env=dict(environment), stdout=out, stderr=err)
        mapped: set[str] = set()
        begin = time.monotonic()
        while process.poll() is None:
            mapped |= _mapped(process.pid, program)
            if time.monotonic() > begin + limit:
                process.kill()
                err.write(f"\nkilled after {limit:.0f} s")
            time.sleep(_INTERVAL)
        seconds = time.monotonic() - begin
        out.seek(0)
        err.seek(0)
        return Run(process.returncode, out.read(), err.read(), tuple(sorted(mapped)), seconds)


def loaded(program: Path, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of all objects that ld.so maps in one run of the program, as ld.so itself reports them."""
    with tempfile.TemporaryDirectory() as folder:
        run(program, {**environment, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{folder}/trace"})
        traces = [path.read_text(encoding="utf-8", errors="replace") for path in Path(folder).iterdir()]
    return names_in_trace(traces)


def names_in_trace(traces: Iterable[str]) -> tuple[str, ...]:
    """The file names, sorted, that reports of ``LD_DEBUG=files`` say a link map was made for."""
    return tuple(sorted({name.rpartition("/")[2] for trace in traces for name in _LINK_MAP.findall(trace)}))


def objects_in_maps(maps: str) -> set[str]:
    """The paths of shared objects in the text of /proc/PID/maps (proc_pid_maps(5))."""
    rows = (line.split(maxsplit=5) for line in maps.splitlines())
    paths = {row[5].removesuffix(" (deleted)") for row in rows if len(row) == 6}
    return {path for path in paths if path.startswith("/") and _SHARED_OBJECT.search(path.rpartition("/")[2])}


def _mapped(pid: int, program: Path) -> set[str]:
    """What the process maps now, once it is the program and no longer what starts it."""
    try:
        if Path(f"/proc/{pid}/exe").readlink() != program.resolve():
            return set()
        return objects_in_maps(Path(f"/proc/{pid}/maps").read_text(encoding="utf-8"))
    except OSError:
        return set()


def can_hide() -> bool:
    """True where this user may give a program a view of the file system of its own (mount_namespaces(7))."""
    command = _behind([], {}, ["true"])
    return shutil.which("unshare") is not None and not subprocess.run(command, check=False).returncode


def _behind(hidden: Iterable[Path], environment: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """The command that runs ``command`` with an empty directory mounted over each of ``hidden``."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    settings = [f"{name}={value}" for name, value in environment.items()]
    start = ["unshare", "--mount", *own, "sh", "-c", _HIDE, "sh"]
    return [*start, *map(str, hidden), "--", *settings, *command]
