from __future__ import annotations

from pathlib import Path

import pytest

from packager.errors import DpackError
from packager.source import Distribution, library_directories, sdk


def unpacked(root, name, **files):
    """A distribution that holds those files: {path: content}."""
    for path, content in files.items():
        (root / name / path).parent.mkdir(parents=True, exist_ok=True)
        (root / name / path).write_text(content)
    return Distribution(name, "1.0", "any", "0" * 64, root / name, 1)


@pytest.fixture
def cuda12(tmp_path):
    runtime = {
        "nvidia/cuda_runtime/include/cuda.h": "cuda",
        "nvidia/cuda_runtime/include/crt/host.h": "host",
        "nvidia/cuda_runtime/include/__init__.py": "",
        "nvidia/cuda_runtime/lib/libcudart.so.12": "cudart",
        "nvidia/__init__.py": "",
    }
    compiler = {
        "nvidia/cuda_nvcc/include/crt/device.h": "device",
        "nvidia/cuda_nvcc/include/crt/host.h": "host",
        "nvidia/cuda_nvcc/bin/ptxas": "ptxas",
    }
    return [unpacked(tmp_path, "runtime", **runtime), unpacked(tmp_path, "nvcc", **compiler)]


def tree(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def test_cuda_12_directories_merge(cuda12, tmp_path):
    root = sdk(cuda12, tmp_path / "sdk")
    assert tree(root) == [
        "dpack-sdk.json",
        "include/crt/device.h",
        "include/crt/host.h",
        "include/cuda.h",
        "lib/libcudart.so",
        "lib/libcudart.so.12",
    ]
    assert (root / "include/crt/device.h").is_symlink()
    assert str((root / "lib/libcudart.so").readlink()) == "libcudart.so.12"
    assert (root / "lib/libcudart.so").read_text() == "cudart"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_cuda_13_has_one_directory(tmp_path):
    blas = {"nvidia/cu13/include/cublas.h": "blas", "nvidia/cu13/lib/libcublas.so.13": "blas"}
    dnn = {"nvidia/cudnn/lib/libcudnn.so.9": "9", "nvidia/cudnn/lib/libcudnn.so.10": "10"}
    root = sdk([unpacked(tmp_path, "blas", **blas), unpacked(tmp_path, "dnn", **dnn)], tmp_path / "sdk")
    assert tree(root / "lib") == [
        "libcublas.so",
        "libcublas.so.13",
        "libcudnn.so",
        "libcudnn.so.10",
        "libcudnn.so.9",
    ]
    assert str((root / "lib/libcudnn.so").readlink()) == "libcudnn.so.10"


def test_a_second_run_updates(cuda12, tmp_path):
    sdk(cuda12, tmp_path / "sdk")
    sdk(cuda12[1:], tmp_path / "sdk")
    assert tree(tmp_path / "sdk") == ["dpack-sdk.json", "include/crt/device.h", "include/crt/host.h"]


@pytest.mark.parametrize("last", [1, 2], ids=["before the old one moves", "between the two renames"])
def test_an_interrupt_brings_the_old_one_back(cuda12, tmp_path, monkeypatch, last):
    sdk(cuda12, tmp_path / "sdk")
    before, entries, rename, calls = tree(tmp_path / "sdk"), sorted(tmp_path.iterdir()), Path.rename, []

    def interrupted(path, target):
        calls.append(path)
        if len(calls) == last:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sdk(cuda12[1:], tmp_path / "sdk")
    assert tree(tmp_path / "sdk") == before
    assert sorted(tmp_path.iterdir()) == entries


def test_a_place_that_cannot_be_written_is_told(cuda12, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (Path("/proc/x"), tmp_path / "file/sdk", tmp_path / ("x" * 300)):
        with pytest.raises(DpackError, match=f"cannot write {place}") as caught:
            sdk(cuda12, place)
        assert caught.value.next


def test_different_files_of_one_name_are_a_conflict(cuda12, tmp_path):
    other = unpacked(tmp_path, "other", **{"nvidia/other/include/cuda.h": "another"})
    sdk(cuda12, tmp_path / "sdk")
    before = tree(tmp_path / "sdk")
    with pytest.raises(
        DpackError, match=r"cannot merge runtime 1\.0 and other 1\.0: each has its own include/cuda\.h"
    ):
        sdk([*cuda12, other], tmp_path / "sdk")
    assert tree(tmp_path / "sdk") == before


@pytest.mark.parametrize("make", ["file", "directory"])
def test_what_dpack_did_not_make_is_left_alone(cuda12, tmp_path, make):
    target = tmp_path / "sdk"
    if make == "file":
        target.write_text("mine")
    else:
        target.mkdir()
        (target / "mine").write_text("mine")
    with pytest.raises(DpackError, match="dpack did not make it"):
        sdk(cuda12, target)
    assert (target if make == "file" else target / "mine").read_text() == "mine"


def test_a_file_among_what_dpack_made_is_left_alone(cuda12, tmp_path):
    mine = sdk(cuda12, tmp_path / "sdk") / "include" / "mine.h"
    mine.write_text("mine")
    with pytest.raises(DpackError, match=r"dpack did not make include/mine\.h"):
        sdk(cuda12, tmp_path / "sdk")
    assert mine.read_text() == "mine"


def test_library_directories_are_those_of_the_shared_objects_in_record(tmp_path):
    listed = [
        "tensorrt_libs/libnvinfer.so.10",
        "nvidia/cu13/lib/libcublas.so.13",
        "nvidia/cu13/lib/libcublasLt.so.13",
        "nvidia/cu13/lib64/libplain.so",
        "nvidia/cu13/include/lib.solver.h",
        "both-1.0.dist-info/RECORD",
    ]
    record = "".join(f"{path},sha256=x,1\n" for path in listed)
    both = unpacked(tmp_path, "both", **{"both-1.0.dist-info/RECORD": record})
    assert library_directories(both) == (
        both.root / "nvidia/cu13/lib",
        both.root / "nvidia/cu13/lib64",
        both.root / "tensorrt_libs",
    )


def test_a_wheel_without_shared_objects_has_no_library_directories(tmp_path):
    headers = unpacked(tmp_path, "headers", **{"headers-1.0.dist-info/RECORD": "nvidia/cu13/include/a.h,,\n"})
    assert library_directories(headers) == ()
