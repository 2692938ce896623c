"""A mount namespace that holds an unpacked image of another machine, whose programs qemu-user runs.

The image's own loader starts them and finds nothing but the image: qemu and what qemu needs of this machine stand
apart in /host, where no loader of the image looks.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builders.oracle import real_loader, trace, traced
from sandbox import DRIVER

_HOST = "/host"


@dataclass(frozen=True, slots=True)
class Emulated:
    """``root`` is the image's file system; ``asker`` is sandbox.SOURCE, compiled, and stands beside the program.

    ``driver`` stands in for the libcuda.so.1 that the container runtime mounts. ``without`` is a directory of
    the image that is left empty.
    """

    bwrap: str
    qemu: str
    root: Path
    asker: Path
    driver: Path | None = None
    without: str = ""

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the image with an empty environment."""
        words = [self.bwrap, "--unshare-all", "--clearenv", "--tmpfs", "/", "--proc", "/proc"]
        for source, place in self._binds():
            words += ["--ro-bind", str(source), place]
        start = [f"{_HOST}/loader", "--library-path", _HOST, f"{_HOST}/qemu"]
        return subprocess.run([*words, *start, *command], capture_output=True, text=True, check=False)

    def ask(self, words: Sequence[str]) -> dict[str, str]:
        """The answer to each word, a library or LIBRARY:SYMBOL."""
        done = self.run("/app/bin/ask", *words)
        assert done.returncode == 0, done.stderr
        return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)

    def _binds(self) -> list[tuple[Path | str, str]]:
        """What stands where: the image file by file, so that nothing of it is written to."""
        binds: list[tuple[Path | str, str]] = [
            (path, f"/{path.relative_to(self.root)}")
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not (self.without and path.is_relative_to(self.root / self.without))
        ]
        binds.append((self.asker, "/app/bin/ask"))
        if self.driver is not None:
            binds.append((self.driver, f"/usr/lib/aarch64-linux-gnu/{DRIVER}"))
        loader = real_loader().path
        own = traced(trace([self.qemu]).stdout, loader)
        binds += [(os.path.realpath(loader), f"{_HOST}/loader"), (self.qemu, f"{_HOST}/qemu")]
        return binds + [(path, f"{_HOST}/{name}") for name, path in own.items()]
