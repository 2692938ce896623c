"""The command line as users call it: the ``dpack`` program in a process of its own, on small real ELF files.

The fixtures are for the conftest.py of each folder that uses them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from builders import fake_cuda
from packager.emit import EPOCH

DPACK = Path(sys.executable).with_name("dpack")
LINKED = ("libcudnn.so.9", "libcublas.so.12", "libcudart.so.12")
CALLS = ("cudnnConvolutionForward", "cublasCreate_v2", "cudaMalloc")


@dataclass(frozen=True, slots=True)
class Result:
    """What one command said. ``code`` is its exit status."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its stdout as one JSON document."""
        return json.loads(self.out)

    def done(self) -> Result:
        """This result, of a command that must have succeeded."""
        assert self.code == 0, self.err
        assert "Traceback" not in self.err
        return self

    def refused(self, code: int, *words: str) -> Result:
        """This result, of a command that failed as promised: a message with these words, and a next step."""
        assert "Traceback" not in self.err
        assert self.code == code, self.err
        assert self.err.splitlines()[-1].startswith("  next: "), self.err
        assert any(line.startswith("dpack: ") for line in self.err.splitlines()), self.err
        missing = [word for word in words if word not in self.err]
        assert not missing, f"{missing} not in:\n{self.err}"
        return self


@dataclass(frozen=True, slots=True)
class Dpack:
    """Runs dpack in ``cwd`` with an environment that holds nothing of whoever runs the tests."""

    cwd: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __call__(self, *arguments: str | Path, code: int | None = None, **environment: str) -> Result:
        """Run it; with ``code``, the exit status must be that."""
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.cwd,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        result = Result(done.returncode, done.stdout, done.stderr)
        assert code is None or code == result.code, result.err
        return result

    def command(self, *arguments: str | Path) -> list[str]:
        """The command with its arguments, for a test that starts it itself."""
        return [str(DPACK), *map(str, arguments)]

    @property
    def written(self) -> set[str]:
        """The names in the working directory, hidden ones included."""
        return {path.name for path in self.cwd.iterdir()}


@pytest.fixture(autouse=True)
def compiler() -> None:
    """The stand-ins are compiled: without a compiler there is nothing to test on."""
    if shutil.which("gcc") is None:
        (pytest.fail if os.environ.get("DPACK_REQUIRE_PEERS") == "1" else pytest.skip)("gcc is not installed")


@pytest.fixture
def dpack(tmp_path: Path) -> Iterator[Dpack]:
    """dpack in an empty directory, with an empty cache, no index, and a scratch directory that it leaves empty."""
    cwd, scratch = tmp_path / "cwd", tmp_path / "scratch"
    cwd.mkdir()
    scratch.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(scratch),
        "DPACK_CACHE": str(tmp_path / "cache"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "0",
        "SOURCE_DATE_EPOCH": str(EPOCH),
    }
    yield Dpack(cwd, environment)
    assert not list(scratch.iterdir()), "something was left in the scratch directory"


@pytest.fixture(scope="session")
def cuda(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with stand-ins for cuDNN 9 and CUDA 12.9."""
    return fake_cuda.compile_libraries(
        (*fake_cuda.CUDNN, *fake_cuda.CUDA), tmp_path_factory.mktemp("cuda") / "lib"
    )


@pytest.fixture(scope="session")
def cnn(cuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that links cuDNN, cuBLAS and the CUDA runtime, and imports a convolution."""
    return fake_cuda.compile_program(tmp_path_factory.mktemp("cnn") / "mnist", CALLS, cuda, LINKED)


@pytest.fixture(scope="session")
def rnn(cuda: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that imports a recurrent network of cuDNN."""
    return fake_cuda.compile_program(
        tmp_path_factory.mktemp("rnn") / "lstm", ("cudnnRNNForward",), cuda, LINKED
    )


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that needs the C library alone."""
    return fake_cuda.compile_program(tmp_path_factory.mktemp("plain") / "hello", (), None, ())
