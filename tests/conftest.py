"""What the tests share: peers to compare with, and the real libraries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from builders.libraries import SETS
from builders.oracle import require

from packager.source import library_directories

WHOLE = (
    *("cli/", "examples/", "gpu/", "image/", "oci_base/", "real/", "registry/", "targets/"),
    *("cuda/test_cut.py", "emit/test_determinism.py", "resolve/test_agreement.py", "resolve/test_rules.py"),
    *("oci/test_oci_output.py", "oci/test_oci_peers.py", "source/test_download.py"),
)
"""Folders and files whose tests run whole programs: dpack, compilers, peers, servers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark these, so that `make unit` is done before the next save."""
    here = Path(__file__).parent
    for item in items:
        if item.path.relative_to(here).as_posix().startswith(WHOLE):
            item.add_marker("whole")


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
