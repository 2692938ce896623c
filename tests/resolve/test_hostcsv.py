"""The container runtime's lists of what a Jetson supplies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from packager.errors import EXIT_USAGE, DpackError
from packager.resolve.hostcsv import HostFiles, read_host_csv

DRIVERS = """\
lib, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1
sym, /usr/lib/aarch64-linux-gnu/libcuda.so
lib, /usr/lib/aarch64-linux-gnu/nvidia/libnvcudla.so
lib, /etc/vulkan/icd.d/nvidia_icd.json
lib, /usr/lib/aarch64-linux-gnu/nvidia/libnvcudla.so
dir, /lib/firmware/tegra23x
"""

DEVICES = "dev, /dev/nvmap\n   dev   ,   /dev/nvhost-ctrl  \n\n"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "drivers.csv").write_text(DRIVERS, encoding="utf-8")
    (tmp_path / "devices.CSV").write_text(DEVICES, encoding="utf-8")
    (tmp_path / "notes.txt").write_text("lib, /nothing\n", encoding="utf-8")
    (tmp_path / ".csv").write_text("lib, /nothing\n", encoding="utf-8")
    (tmp_path / "old.csv").mkdir()
    return tmp_path


def test_lists_of_a_directory(directory: Path) -> None:
    assert read_host_csv(directory) == HostFiles(
        files=(
            "/etc/vulkan/icd.d/nvidia_icd.json",
            "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1",
            "/usr/lib/aarch64-linux-gnu/nvidia/libnvcudla.so",
        ),
        links=("/usr/lib/aarch64-linux-gnu/libcuda.so",),
        lists=(directory / "devices.CSV", directory / "drivers.csv"),
        skipped=(),
    )


@pytest.mark.parametrize(
    ("soname", "path"),
    [
        ("libcuda.so.1", "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"),
        ("libcuda.so.1.1", "/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1"),
        ("libcuda.so", "/usr/lib/aarch64-linux-gnu/libcuda.so"),
        ("libnvcudla.so", "/usr/lib/aarch64-linux-gnu/nvidia/libnvcudla.so"),
        ("libnvcudla.so.1", None),
        ("libcuda.so.11", None),
        ("libcud", None),
        ("nvidia_icd.json", "/etc/vulkan/icd.d/nvidia_icd.json"),
    ],
)
def test_what_the_lists_supply(soname: str, path: str | None, directory: Path) -> None:
    assert read_host_csv(directory).supplies(soname) == path


def test_longer_name_counts_for_a_versioned_soname_only(tmp_path: Path) -> None:
    (tmp_path / "l4t.csv").write_text("lib, /usr/lib/libcuda.so.1.1\n", encoding="utf-8")
    files = read_host_csv(tmp_path)
    assert files.supplies("libcuda.so.1") == "/usr/lib/libcuda.so.1.1"
    assert files.supplies("libcuda.so") is None


def test_lines_that_the_runtime_passes_over_are_told(tmp_path: Path) -> None:
    lines = "# Jetson\ndir\nlbi, /usr/lib/libx.so\nlib,\n\nlib, /usr/lib/a,b.so\r\n"
    (tmp_path / "l4t.csv").write_text(lines, encoding="utf-8")
    files = read_host_csv(tmp_path)
    assert files.files == ("/usr/lib/a,b.so",)
    assert files.skipped == (
        "l4t.csv:1: # Jetson",
        "l4t.csv:2: dir",
        "l4t.csv:3: lbi, /usr/lib/libx.so",
        "l4t.csv:4: lib,",
    )


def missing(directory: Path) -> Path:
    return directory / "nowhere"


def empty(directory: Path) -> Path:
    (directory / "readme.txt").write_text("no list", encoding="utf-8")
    return directory


def binary(directory: Path) -> Path:
    (directory / "drivers.csv").write_bytes(b"\xff\xfe\0")
    return directory


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (missing, "cannot read the lists in {}/nowhere: No such file or directory"),
        (empty, "cannot use {} as the device's lists: it holds no file NAME.csv"),
        (binary, "cannot read {}/drivers.csv: not text"),
    ],
)
def test_directory_that_cannot_be_used(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(DpackError) as caught:
        read_host_csv(make(tmp_path))
    assert str(caught.value) == message.format(tmp_path)
    assert caught.value.exit == EXIT_USAGE
    assert "from the device" in caught.value.next
