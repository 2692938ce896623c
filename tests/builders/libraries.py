"""NVIDIA's real libraries, in sets that belong together; downloaded once, into dpack's own cache."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from builders.oracle import missing
from packager.errors import DpackError
from packager.source import Distribution, fetch, sdk


@dataclass(frozen=True, slots=True)
class LibrarySet:
    """One set: the machine and the CUDA version it is for, its wheels, and those with headers alone."""

    name: str
    machine: str
    cuda: int
    requirements: tuple[str, ...]
    headers: tuple[str, ...]

    def fetch(self, *more: str) -> tuple[Distribution, ...]:
        """Its wheels, and those of ``more``."""
        try:
            return fetch((*self.requirements, *more), machine=self.machine)
        except DpackError as error:
            missing(f"the libraries of {self.name} cannot be had: {error}")

    def sdk(self, directory: Path) -> Path:
        """``directory`` with include/ and lib/ of the set, as a compiler wants them."""
        return sdk(self.fetch(*self.headers), directory)


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
_HEADERS_13 = ("nvidia-cuda-crt==13.5.37", "nvidia-cuda-cccl==13.3.5.0.6")

SETS = (
    LibrarySet("cu12", "x86_64", 12, ("nvidia-cudnn-cu12==9.10.2.21", *_CUDA_12), _HEADERS_12),
    LibrarySet("cu12-new", "x86_64", 12, (f"nvidia-cudnn-cu12=={_CUDNN}", *_CUDA_12), _HEADERS_12),
    LibrarySet("cu13-new", "x86_64", 13, (f"nvidia-cudnn-cu13=={_CUDNN}", *_CUDA_13), _HEADERS_13),
    LibrarySet("cu13-aarch64", "aarch64", 13, (f"nvidia-cudnn-cu13=={_CUDNN}", *_CUDA_13), _HEADERS_13),
)


def chosen_sets() -> tuple[LibrarySet, ...]:
    """The sets that DPACK_SETS names; the first alone by default, since each is gigabytes."""
    named = os.environ.get("DPACK_SETS", "cu12").split(",")
    return tuple(s for s in SETS if s.name in named or "all" in named)
