"""What the tests share: the real libraries, downloaded once into dpack's own cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from packager.errors import DpackError
from packager.source import Distribution, fetch, library_directories, sdk

REQUIRED = os.environ.get("DPACK_REQUIRE_PEERS") == "1"


def absent(why: str) -> None:
    """Skip for what this machine lacks; where everything is required (CI), fail."""
    if REQUIRED:
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture(scope="session")
def peer() -> Callable[[str], str]:
    """The path of another program that does part of dpack's work, to compare with."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            absent(f"{name} is not installed")
        return str(path)

    return find


@dataclass(frozen=True)
class LibrarySet:
    """One set of real libraries: what it is made of, and for which machine."""

    name: str
    machine: str
    cuda: int
    requirements: tuple[str, ...]

    def fetch(self, *more: str) -> tuple[Distribution, ...]:
        """Its wheels, and those of ``more`` (headers that nothing loads)."""
        try:
            return fetch((*self.requirements, *more), machine=self.machine)
        except DpackError as error:
            absent(f"the libraries of {self.name} cannot be had: {error}")
            raise


_CUDNN = "9.28.0.42"
_CUDA_12 = (
    "nvidia-cublas-cu12==12.9.1.4",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
)
_HEADERS_12 = ("nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-cccl-cu12==12.9.27")
_CUDA_13 = (
    "nvidia-cublas==13.10.0.20",
    "nvidia-cuda-runtime==13.5.37",
    "nvidia-cuda-nvrtc==13.5.37",
)
SETS = (
    LibrarySet("cu12", "x86_64", 12, ("nvidia-cudnn-cu12==9.10.2.21", *_CUDA_12)),
    LibrarySet("cu12-new", "x86_64", 12, (f"nvidia-cudnn-cu12=={_CUDNN}", *_CUDA_12)),
    LibrarySet("cu13-new", "x86_64", 13, (f"nvidia-cudnn-cu13=={_CUDNN}", *_CUDA_13)),
    LibrarySet("cu13-aarch64", "aarch64", 13, (f"nvidia-cudnn-cu13=={_CUDNN}", *_CUDA_13)),
)


def chosen_sets() -> tuple[LibrarySet, ...]:
    """The sets that DPACK_SETS names; the first alone by default, since each is gigabytes."""
    named = os.environ.get("DPACK_SETS", "cu12").split(",")
    return tuple(s for s in SETS if s.name in named or "all" in named)


@pytest.fixture(scope="session")
def cuda12() -> tuple[Distribution, ...]:
    """cuDNN 9.10.2.21 and the CUDA 12.9 libraries for x86_64."""
    return SETS[0].fetch()


@pytest.fixture(scope="session")
def cuda12_libs(cuda12: tuple[Distribution, ...]) -> dict[str, Path]:
    """The libraries of that set by file name."""
    folders = [folder for each in cuda12 for folder in library_directories(each)]
    return {path.name: path for folder in folders for path in sorted(folder.iterdir())}


@pytest.fixture(scope="session")
def cuda_sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with include/ and lib/ of that set, as a compiler wants them."""
    return sdk(SETS[0].fetch(*_HEADERS_12), tmp_path_factory.mktemp("sdk") / "cuda12")
