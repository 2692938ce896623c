"""Tiny programs in a tiny file system, planned for a destination."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.elf import X86_64, Tiny
from click.testing import CliRunner

from packager.analysis import analyse
from packager.cli import dpack
from packager.errors import DpackError
from packager.plan import Action, Plan
from packager.request import Aim, Request, Slicing

_PLACES = {
    X86_64: ("/lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu"),
    183: ("/lib/ld-linux-aarch64.so.1", "usr/lib/aarch64-linux-gnu"),
}

Versions = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True, slots=True)
class Device:
    """A directory with a program ``app`` and the file system ``root`` that it is resolved in."""

    directory: Path
    machine: int = X86_64

    @property
    def root(self) -> Path:
        """The file system."""
        return self.directory / "root"

    @property
    def interp(self) -> str:
        """Where the program looks for its loader."""
        return _PLACES[self.machine][0]

    @property
    def libraries(self) -> Path:
        """Where the root has its libraries."""
        return self.root / _PLACES[self.machine][1]

    def library(self, soname: str, **fields: Any) -> Path:
        """Put a library into the root."""
        return Tiny(soname=soname, machine=self.machine, **fields).write(self.libraries / soname)

    def program(self, *needed: str, versions: Versions = (), **fields: Any) -> Path:
        """Put the program beside the root, and its loader and C library into it."""
        loader = Tiny(soname=Path(self.interp).name, machine=self.machine)
        loader.write(self.root / self.interp.lstrip("/"))
        self.library("libc.so.6", needed=(Path(self.interp).name,))
        program = Tiny(
            interp=self.interp,
            machine=self.machine,
            needed=(*needed, "libc.so.6"),
            versions=versions,
            **fields,
        )
        return program.write(self.directory / "app")

    def plan(self, slicing: Slicing | None = None, **aim: Any) -> Plan:
        """The plan for it, with nothing fetched."""
        request = Request(
            self.directory / "app", root=self.root, aim=Aim(**aim), slicing=slicing or Slicing()
        )
        analysis = analyse(request)
        if analysis.ground.gathered is not None:
            analysis.ground.gathered.cleanup()
        return analysis.plan


@dataclass(frozen=True, slots=True)
class Said:
    """What a command printed, and the failure that it ended with."""

    out: str
    error: DpackError | None

    @property
    def message(self) -> str:
        """The failure as it is printed."""
        assert self.error is not None, self.out
        return "\n".join(self.error.lines())


def said(*arguments: str | Path) -> Said:
    """Run dpack in this process."""
    done = CliRunner().invoke(dpack, [str(each) for each in arguments])
    if done.exception is not None and not isinstance(done.exception, DpackError):
        raise done.exception
    return Said(done.stdout, done.exception)


def fates(plan: Plan) -> dict[str, Action]:
    """What becomes of each library, by name."""
    return {d.name: d.action for d in plan.decisions[1:]}
