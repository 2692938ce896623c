"""The real dynamic loader and the peers, asked about the same files: what tests compare dpack's answers with."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from packager.recipes import Recipes
from packager.resolve.closure import Closure, Source
from packager.resolve.elf import read_elf
from packager.resolve.machine import Machine, machine_named
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve

NO_RECIPES = Recipes((), (), (), (), ())
_GLIBC = re.compile(r"/ld(?:-linux|64)")
_CLONE_NEWUSER = 0x10000000
_FOUND = re.compile(r"^\t(?P<name>.+?) => (?P<path>.+?)(?: \(0x[0-9a-f]+\))?$")
_SAME = re.compile(r"^\t(?P<path>/.+?) \(0x[0-9a-f]+\)$")


@dataclass(frozen=True, slots=True)
class RealLoader:
    """This machine's own dynamic loader, and what it says about the CPU that it runs on."""

    path: str
    machine: Machine
    hwcaps: tuple[str, ...]
    platform: str


def require(tool: str) -> str:
    """The path of a tool that the comparison needs; without it the test is skipped, or fails where all must run."""
    found = shutil.which(tool, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        missing(f"{tool} is not installed")
    return found


def missing(why: str) -> NoReturn:
    """Skip the test, or fail where DPACK_REQUIRE_PEERS says that every comparison must run."""
    if os.environ.get("DPACK_REQUIRE_PEERS") == "1":
        pytest.fail(why)
    pytest.skip(why)


@cache
def real_loader() -> RealLoader:
    """The loader that started a shell of this machine; the test is skipped where it is not glibc's."""
    interp = read_elf("/bin/sh").interp
    machine = machine_named(platform.machine())
    if interp is None or machine is None or not _GLIBC.search(interp):
        missing("no dynamic loader of glibc on this machine")
    told = subprocess.run([interp, "--list-diagnostics"], capture_output=True, text=True, check=True).stdout
    values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', told, re.MULTILINE))
    levels = [level for level in values["dl_hwcaps_subdirs"].split(":") if level]
    active = int(values["dl_hwcaps_subdirs_active"], 16)
    mine = tuple(level for bit, level in enumerate(levels) if active >> bit & 1)
    return RealLoader(interp, machine, mine, values.get("dl_platform", ""))


def in_root(root: Path) -> Callable[[], None]:
    """A ``preexec_fn`` that makes ``root`` the root directory, in a user namespace where we are not root."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        if os.geteuid() and libc.unshare(_CLONE_NEWUSER):
            raise OSError(ctypes.get_errno(), "unshare")
        os.chroot(root)
        os.chdir("/")

    return enter


def trace(
    command: Sequence[str],
    *,
    library_path: Sequence[str] = (),
    root: Path | None = None,
    cwd: Path | None = None,
    environment: Mapping[str, str] = {},
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` so that the loader maps everything, tells it, and does not start the program."""
    told = {"LD_TRACE_LOADED_OBJECTS": "1", "PATH": os.environ.get("PATH", ""), **environment}
    if library_path:
        told["LD_LIBRARY_PATH"] = ":".join(library_path)
    try:
        return subprocess.run(
            command,
            capture_output=True,
            env=told,
            text=True,
            errors="surrogateescape",
            check=False,
            cwd=cwd,
            preexec_fn=None if root is None else in_root(root),
        )
    except (PermissionError, subprocess.SubprocessError) as error:
        missing(f"cannot change the root directory ({error})")


def traced(output: str, loader: str) -> dict[str, str]:
    """What a trace says: name to path, "" for what was not found; without the vDSO and the loader itself."""
    answer = {}
    for line in output.splitlines():
        if hit := _FOUND.match(line):
            answer[hit["name"]] = "" if hit["path"] == "not found" else hit["path"]
        elif hit := _SAME.match(line):
            answer[hit["path"]] = hit["path"]
    own = os.path.realpath(loader)
    return {name: path for name, path in answer.items() if os.path.realpath(path or "/") != own}


def native(loader: Loader, hwcaps: Sequence[str] | None = None) -> Loader:
    """``loader`` for the CPU of this machine, so that it can be compared with the real one."""
    real = real_loader()
    return replace(loader, platform=real.platform, hwcaps=tuple(real.hwcaps if hwcaps is None else hwcaps))


def walked(closure: Closure) -> dict[str, str]:
    """What our walk says, in the form of :func:`traced`: the first name that asked for each object."""
    answer: dict[str, str] = {}
    seen = {closure.program.path}
    for edge in closure.edges:
        if edge.evidence.source is Source.DYNAMIC and edge.target not in seen:
            answer[edge.name] = edge.target
            seen |= {edge.target} - {""}
    return answer


def ours(
    program: str,
    *,
    root: Path | str = "/",
    library_path: Sequence[str] = (),
    hwcaps: Sequence[str] | None = None,
) -> Closure:
    """Our closure of ``program`` over DT_NEEDED alone, for this machine's CPU."""
    sysroot = Sysroot.at(root)
    elf = read_elf(sysroot.host(program) or program, program)
    return resolve(program, native(Loader.of(elf, sysroot, library_path), hwcaps), NO_RECIPES)


def libtree(program: Path, library_path: Sequence[str] = ()) -> tuple[frozenset[str], frozenset[str]]:
    """libtree's answer: the real paths of what it found, and the names of what it did not."""
    environment = {"LD_LIBRARY_PATH": ":".join(library_path)} if library_path else {}
    command = [require("libtree"), "-vvv", "-p", str(program)]
    told = _told(command, environment)
    rows = [re.sub(r"^[│├└─\s ]+", "", line) for line in told.splitlines()[1:]]
    found = [re.sub(r" \[.*\]$", "", row) for row in rows if row.startswith("/")]
    lost = [hit[1] for row in rows if (hit := re.match(r"(\S+) not found$", row))]
    return frozenset(map(os.path.realpath, found)), frozenset(lost)


def _told(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """A peer's output; nothing when it does not end (lddtree, on objects that need each other)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=3
        )
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def lddtree(
    program: str, library_path: Sequence[str] = (), root: Path | None = None
) -> tuple[frozenset[str], frozenset[str]]:
    """lddtree's answer, in the form of :func:`libtree`. It is a Python script, which our own Python runs."""
    environment = {"LD_LIBRARY_PATH": ":".join(library_path)} if library_path else {}
    place = [] if root is None else ["-R", str(root)]
    command = [sys.executable, require("lddtree"), *place, program]
    told = _told(command, environment)
    rows = [hit for line in told.splitlines()[1:] if (hit := re.match(r"\s+(\S+) => (\S+)", line))]
    found = frozenset(os.path.realpath(hit[2]) for hit in rows if hit[2].startswith("/"))
    return found, frozenset(hit[1] for hit in rows if not hit[2].startswith("/"))
