"""What the tests share: peers to compare with, and the real libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders.libraries import SETS
from builders.oracle import require

from packager.source import library_directories


@pytest.fixture(scope="session")
def peer() -> Callable[[str], str]:
    """The path of another program that does part of dpack's work, to compare with."""

    return require


@pytest.fixture(scope="session")
def cuda12_libs() -> dict[str, Path]:
    """The libraries of cuDNN 9.10.2.21 and CUDA 12.9 for x86_64, by file name."""
    folders = [folder for each in SETS[0].fetch() for folder in library_directories(each)]
    return {path.name: path for folder in folders for path in sorted(folder.iterdir())}


@pytest.fixture(scope="session")
def cuda_sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with include/ and lib/ of that set, as a compiler wants them."""
    return SETS[0].sdk(tmp_path_factory.mktemp("sdk") / "cuda12")
