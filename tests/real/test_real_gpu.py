"""The GPU code of NVIDIA's own libraries, member by member as NVIDIA's own cuobjdump lists it.

cuobjdump reads .nv_fatbin alone, so the containers of every other section are put into a .nv_fatbin for it; and
that of CUDA 13 no longer reads members for sm_35 and sm_37, so CUDA 11's libraries are shown to it without those.
"""

from __future__ import annotations

import platform
import re
import struct
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from builders.fatbin import shared_object
from builders.oracle import missing

from packager.arch import Gpu, Kind
from packager.cuda.code import Container, GpuCode, Member
from packager.cuda.compression import decompressed
from packager.cuda.scan import read_gpu_code
from packager.cuda.select import Policy, keep, runnable
from packager.errors import DpackError
from packager.source import Distribution, fetch, library_directories

pytestmark = pytest.mark.real

# One library for each version of CUDA and each machine, small where there is a choice; cuFFT for its 24 453
# containers in .ldata, with LTO-IR.
LIBRARIES = {
    "cu11": ("x86_64", "nvidia-curand-cu11==10.3.0.86"),
    "cu11-aarch64": ("aarch64", "nvidia-curand-cu11==10.3.0.86"),
    "cu12": ("x86_64", "nvidia-cufft-cu12==11.4.1.4"),
    "cu12-aarch64": ("aarch64", "nvidia-curand-cu12==10.3.10.19"),
    "cu13": ("x86_64", "nvidia-curand==10.4.5.25"),
    "cu13-aarch64": ("aarch64", "nvidia-curand==10.4.5.25"),
}
_CUOBJDUMP = "nvidia-cuda-cuobjdump==13.5.37"
_READABLE = 50  # the lowest SM that this cuobjdump reads
_KINDS = {Kind.CUBIN: "elf", Kind.PTX: "ptx", Kind.LTO: "nvvm"}

Row = tuple[str, str, bool]
"""Kind and architecture as cuobjdump prints them, and whether it is compressed."""


def _fetched(requirement: str, machine: str) -> tuple[Distribution, ...]:
    try:
        return fetch((requirement,), machine=machine)
    except DpackError as error:
        missing(f"{requirement} cannot be had: {error}")


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    """NVIDIA's cuobjdump, from its wheel."""
    (wheel,) = _fetched(_CUOBJDUMP, platform.machine())
    (program,) = wheel.root.glob("nvidia/*/bin/cuobjdump")
    return program


def _libraries(distributions: Sequence[Distribution]) -> list[Path]:
    folders = [folder for each in distributions for folder in library_directories(each)]
    return sorted(path for folder in folders for path in folder.glob("lib*.so*"))


def _listed(program: Path, path: Path) -> list[Row]:
    """What cuobjdump lists, in its order."""
    done = subprocess.run([program, path], capture_output=True, text=True, check=False)
    if "does not contain device code" in done.stderr:
        return []
    assert done.returncode == 0, done.stderr
    blocks = re.split(r"^Fatbin (\w+) code:\n=+\n", done.stdout, flags=re.MULTILINE)[1:]
    return [
        (kind, re.match(r"arch = (\S+)\n", text)[1], "\ncompressed\n" in text)
        for kind, text in zip(blocks[::2], blocks[1::2], strict=True)
    ]


def _row(member: Member) -> Row:
    return _KINDS[member.kind], str(member.arch), bool(member.compressed)


def _readable(container: Container) -> tuple[Member, ...]:
    return tuple(member for member in container.members if member.arch.number >= _READABLE)


def _repacked(path: Path, containers: Sequence[Container]) -> bytes:
    """The containers one after the other, without the members that the peer cannot read."""
    made = []
    with path.open("rb") as file:
        for container in containers:
            body = b""
            for member in _readable(container):
                file.seek(member.offset)
                body += file.read(member.size)
            made.append(struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body)
    return b"".join(made)


def _compare(code: GpuCode, path: Path, program: Path, directory: Path) -> None:
    """Every member of the file against cuobjdump: those of .nv_fatbin where they are, the others moved there."""
    first = [each for each in code.containers if each.section == ".nv_fatbin"]
    direct = all(len(_readable(each)) == len(each.members) for each in first)
    if direct:
        assert [_row(member) for each in first for member in each.members] == _listed(program, path)
    rest = [each for each in code.containers if each not in first or not direct]
    if rest:
        moved = shared_object(directory, {".nv_fatbin": [_repacked(path, rest)]})
        assert [_row(member) for each in rest for member in _readable(each)] == _listed(program, moved)


@pytest.mark.parametrize("name", LIBRARIES)
def test_cuobjdump_lists_the_same_members(name, cuobjdump, tmp_path):
    machine, requirement = LIBRARIES[name]
    paths = _libraries(_fetched(requirement, machine))
    codes = {path: read_gpu_code(path) for path in paths}
    assert sum(len(code.members) for code in codes.values()) >= 80
    for path, code in codes.items():
        assert code.machine.name == machine
        _compare(code, path, cuobjdump, tmp_path)


def test_cuobjdump_lists_the_same_members_of_a_whole_set(library_set, cuobjdump, tmp_path):
    found: Counter[str] = Counter()
    for path in _libraries(library_set.fetch()):
        code = read_gpu_code(path)
        _compare(code, path, cuobjdump, tmp_path)
        found.update(member.arch.suffix for member in code.members)
        found.update(container.section for container in code.containers)
    assert found["a"] > 1000
    assert found["f"] > 1000
    assert found[".cask_resource"] > 200


@pytest.fixture(scope="session")
def cublaslt(cuda12_libs) -> tuple[Path, GpuCode]:
    path = cuda12_libs["libcublasLt.so.12"]
    return path, read_gpu_code(path)


def test_cublaslt_has_cubins_outside_containers(cublaslt):
    """399 frames in .ldata, 87.5 MB, and six in .data: bytes by SM, as first measured by decompressing each."""
    _, code = cublaslt
    assert Counter(piece.section for piece in code.loose) == {".ldata": 399, ".data": 6}
    sizes: Counter[str] = Counter()
    for piece in code.loose:
        if piece.section == ".ldata":
            sizes[str(piece.arch)] += piece.size
    assert sizes == {
        "sm_70": 2_305_069,
        "sm_75": 1_992_111,
        "sm_80": 18_222_851,
        "sm_86": 119_393,
        "sm_90": 19_313_061,
        "sm_100": 23_449_038,
        "sm_120": 22_079_268,
    }


def test_cuobjdump_sees_the_same_sm_in_loose_cubins(cublaslt, cuobjdump, tmp_path):
    """The smallest of each SM that has kernels: one without has nothing that cuobjdump would show."""
    path, code = cublaslt
    seen = set()
    for piece in sorted(code.loose, key=lambda each: each.size):
        if piece.arch in seen:
            continue
        with path.open("rb") as file:
            file.seek(piece.offset)
            content = decompressed(file.read(piece.size), piece.compressed, piece.uncompressed_size)
        assert len(content) == piece.uncompressed_size
        image = tmp_path / "loose.cubin"
        image.write_bytes(content)
        told = subprocess.run([cuobjdump, "-elf", image], capture_output=True, text=True, check=False)
        if header := re.search(r"\bsm=(\d+)", told.stdout):
            assert int(header[1]) == piece.arch.number
            seen.add(piece.arch)
        else:
            assert "does not contain device code" in told.stderr
    assert seen == {piece.arch for piece in code.loose}


def test_every_member_decompresses_to_what_its_header_says(cuda12_libs):
    path = cuda12_libs["libcublas.so.12"]
    code = read_gpu_code(path)
    assert {member.compressed for member in code.members} == {"lz4", "zstd"}
    with path.open("rb") as file:
        for member in code.members:
            file.seek(member.payload)
            content = decompressed(file.read(member.stored_size), member.compressed, member.uncompressed_size)
            assert len(content) == member.uncompressed_size
            assert content.startswith(b"\x7fELF") is (member.kind is Kind.CUBIN)


# MB that are left of each file for one GPU, by the rule for its library (facts measured with another parser).
LEFT = {
    "libcudnn_adv.so.9": {"sm_86": 40.3, "sm_90": 42.8},
    "libcudnn_engines_precompiled.so.9": {"sm_86": 113.9, "sm_90": 121.4},
    "libcudnn_ops.so.9": {"sm_86": 15.3, "sm_90": 16.5},
    "libcublas.so.12": {"sm_86": 25.4, "sm_90": 19.0},
    "libcublasLt.so.12": {"sm_86": 330.9, "sm_90": 403.6},
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_for_one_gpu(name, cuda12_libs):
    code = read_gpu_code(cuda12_libs[name])
    policy = Policy(prior_minors=name.startswith("libcublas"))
    left = {gpu: code.size - keep(code, [Gpu.of(gpu)], policy).dropped_size for gpu in LEFT[name]}
    assert {gpu: round(size / 10**6, 1) for gpu, size in left.items()} == LEFT[name]


def test_a_library_reaches_the_gpus_that_it_was_built_for(cuda12_libs):
    names = [name for name in LEFT if name in cuda12_libs]
    for path in (cuda12_libs[name] for name in names):
        code = read_gpu_code(path)
        assert all(
            runnable(code, Gpu.of(gpu)) for gpu in ("6.1", "7.5", "8.6", "9.0", "10.3", "12.1", "13.0")
        )
        assert not any(runnable(code, Gpu.of(gpu)) for gpu in ("5.3", "7.2", "8.7", "11.0"))
