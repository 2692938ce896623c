"""The real libraries, set by set: a program that links them, its plan, and its bundle as users unpack it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from builders.elf import AARCH64, Tiny
from builders.libraries import chosen_sets

from packager.analysis import Analysis, analyse
from packager.request import Request, Supply
from packager.source import Distribution, default_cache, library_directories

DPACK = Path(sys.executable).with_name("dpack")

_HOST_LIBRARIES = (
    "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1",
    "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1",
)  # fmt: skip
_LOADERS = {"x86_64": "lib64/ld-linux-x86-64.so.2", "aarch64": "lib/ld-linux-aarch64.so.1"}
_COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}

_SOURCE = """\
#include <stdio.h>
unsigned long cudnnGetVersion(void);
int cudnnOpsVersionCheck(void), {check}(void), {work}(), cublasCreate_v2(), cudaMalloc();
int main(int count, char **arguments) {{
    if (count > 1) return {work}() + cublasCreate_v2() + cudaMalloc();
    printf("%lu %d %d\\n", cudnnGetVersion(), cudnnOpsVersionCheck(), {check}());
    return 0;
}}
"""
_CALLS = {
    "cnn": {"check": "cudnnCnnVersionCheck", "work": "cudnnConvolutionForward"},
    "rnn": {"check": "cudnnAdvVersionCheck", "work": "cudnnRNNForward"},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that asks for ``library_set`` on every set that was chosen."""
    if "library_set" not in metafunc.fixturenames:
        return
    rows = [pytest.param(each, id=each.name, marks=pytest.mark.real) for each in chosen_sets()]
    metafunc.parametrize("library_set", rows, indirect=True, scope="session")


@dataclass(frozen=True, slots=True)
class Case:
    """One set of libraries on this machine, with a directory to work in.

    ``libraries`` are the set's shared objects by name; ``sysroot`` holds the C and C++ libraries of the target
    and nothing else, so that whatever CUDA this machine has stays out of it.
    """

    name: str
    machine: str
    cuda: int
    requirements: tuple[str, ...]
    distributions: tuple[Distribution, ...]
    directory: Path
    sysroot: Path
    compiler: str

    @property
    def libraries(self) -> dict[str, Path]:
        """The set's shared objects by name."""
        folders = [folder for each in self.distributions for folder in library_directories(each)]
        return {path.name: path for folder in folders for path in sorted(folder.glob("lib*.so*"))}

    def version(self, part: str) -> tuple[int, ...]:
        """The version of the distribution whose name holds ``part``."""
        found = next(each for each in self.distributions if part in each.name)
        return tuple(map(int, found.version.split(".")))

    def program(self, model: str) -> Path:
        """A program that links cuDNN, cuBLAS and the CUDA runtime, and calls what the model is about."""
        path = self.directory / model / "mnist"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            names = ("libcudnn.so.9", f"libcublas.so.{self.cuda}", f"libcudart.so.{self.cuda}")
            links = [str(self.libraries[name]) for name in names]
            flags = ["-g", "-w", "-Wl,--allow-shlib-undefined", "-Wl,--no-as-needed"]
            command = [self.compiler, *flags, "-x", "c", "-", "-x", "none", *links, "-o", str(path)]
            subprocess.run(command, input=_SOURCE.format(**_CALLS[model]), text=True, check=True)
        return path

    def analysis(self, model: str, **changes: Any) -> Analysis:
        """The analysis for this model, the pinned wheels taken from the cache."""
        request: dict[str, Any] = {
            "program": self.program(model),
            "models": (model,),
            "root": self.sysroot,
            "supply": Supply(self.requirements, offline=True),
        }
        return analyse(Request(**(request | changes)))

    def options(self) -> list[str]:
        """The same request on the command line, without the program."""
        pins = [word for each in self.requirements for word in ("--require", each)]
        return ["--model", "cnn", "--root", str(self.sysroot), "--offline", *pins]


@pytest.fixture(scope="session")
def library_set(request: pytest.FixtureRequest) -> Any:
    """One of the sets that DPACK_SETS chooses."""
    return request.param


@pytest.fixture(scope="session")
def case(
    library_set: Any, peer: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Case]:
    """The set, fetched, with a sysroot and a directory that is removed at the end: bundles are gigabytes."""
    directory = tmp_path_factory.mktemp(library_set.name)
    compiler = peer(_COMPILERS[library_set.machine])
    sysroot = _sysroot(directory / "sysroot", library_set.machine, compiler)
    yield Case(
        library_set.name,
        library_set.machine,
        library_set.cuda,
        library_set.requirements,
        library_set.fetch(),
        directory,
        sysroot,
        compiler,
    )
    shutil.rmtree(directory)


def _sysroot(root: Path, machine: str, compiler: str) -> Path:
    """The C and C++ libraries that ``compiler`` links with, laid out as Debian does."""
    libraries = root / f"usr/lib/{machine}-linux-gnu"
    libraries.mkdir(parents=True)
    loader = root / _LOADERS[machine]
    loader.parent.mkdir()
    for name, place in [(loader.name, loader), *((name, libraries / name) for name in _HOST_LIBRARIES)]:
        found = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        if "/" in found:
            shutil.copyfile(os.path.realpath(found), place)
        else:  # a cross compiler comes without zlib
            assert (machine, name) == ("aarch64", "libz.so.1"), name
            Tiny(machine=AARCH64, soname=name).write(place)
    return root


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A bundle made by the ``dpack`` program: the archive, what tar made of it, and what --json said."""

    archive: Path
    directory: Path
    manifest: dict[str, Any]


@pytest.fixture(scope="session")
def unpacked(case: Case, peer: Callable[[str], str]) -> Iterator[Unpacked]:
    """The CNN's bundle, made with an empty environment and unpacked with tar and zstd."""
    import json  # noqa: PLC0415 - only here

    work = case.directory / "work"
    work.mkdir()
    done = subprocess.run(
        [DPACK, "bundle", case.program("cnn"), *case.options(), "--json"],
        cwd=work,
        env={"DPACK_CACHE": str(default_cache())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    archive = work / "mnist.tar.zst"
    with subprocess.Popen([peer("zstd"), "-dc", archive], stdout=subprocess.PIPE) as zstd:
        subprocess.run([peer("tar"), "-xf", "-", "-C", case.directory], stdin=zstd.stdout, check=True)
    assert zstd.returncode == 0
    yield Unpacked(archive, case.directory / "mnist", json.loads(done.stdout))
    shutil.rmtree(case.directory / "mnist")
    shutil.rmtree(work)
