"""The example programs are built for real. Where they need a GPU they run on a reference implementation of the
CUDA calls they make (reference_cuda.cpp), so these tests show that the programs learn, not that CUDA works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.libraries import chosen_sets

from packager.resolve.elf import read_elf

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = Path(__file__).with_name("reference_cuda.cpp")
GPU_PROGRAMS = ("mnist", "rnn")

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="g++ and make build the examples"
)
pytestmark = needs_compiler


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    command = ["make", "--no-print-directory", "-C", str(EXAMPLES), "CXX=g++", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def build(programs: tuple[str, ...], folder: Path, *arguments: str) -> dict[str, Path]:
    strict = "CXXFLAGS=-O2 -g -Wall -Wextra -Werror"
    made = make("-j2", *programs, f"BUILD={folder}", strict, *arguments)
    assert made.returncode == 0, made.stderr
    return {program: folder / program for program in programs}


def run(program: Path, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *flags], capture_output=True, text=True, check=False, env={"LC_ALL": "C", **environment}
    )


def losses(output: str) -> list[float]:
    return [
        float(loss) for loss in re.findall(r"^epoch +\d+  loss (\S+)  \d+ samples/s$", output, re.MULTILINE)
    ]


def accuracy(output: str) -> float:
    match = re.search(r"^accuracy +(\S+) \(\d+ of 256 test images\)$", output, re.MULTILINE)
    assert match, output
    return float(match.group(1))


@pytest.fixture(scope="session")
def cpu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(("cpu",), tmp_path_factory.mktemp("cpu"))["cpu"]


@pytest.fixture(scope="session")
def gpu_programs(cuda_sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The programs, built against NVIDIA's own headers and libraries."""
    return build(GPU_PROGRAMS, tmp_path_factory.mktemp("gpu"), f"CUDA={cuda_sdk}")


@pytest.fixture(scope="session")
def reference(cuda_sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An environment in which the loader finds the reference implementation under each library's soname.

    --default-symver gives symbols the version names that NVIDIA's libraries have: their own soname.
    """
    folder = tmp_path_factory.mktemp("reference")
    compiled = folder / "reference.o"
    flags = ["-std=c++17", "-O3", "-ffast-math", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    headers = ["-isystem", str(cuda_sdk / "include"), "-isystem", str(cuda_sdk / "include" / "cccl")]
    subprocess.run(["g++", *flags, *headers, "-c", REFERENCE, "-o", compiled], check=True)
    for stem in ("cudnn", "cublas", "cudart"):
        (library,) = (cuda_sdk / "lib").glob(f"lib{stem}.so.[0-9]*")
        named = ["-shared", f"-Wl,-soname,{library.name}", "-Wl,--default-symver"]
        subprocess.run(["g++", *named, "-o", folder / library.name, compiled], check=True)
    yield {"LD_LIBRARY_PATH": str(folder)}
    shutil.rmtree(folder)


def test_cpu_learns(cpu):
    result = run(cpu)
    assert result.returncode == 0, result.stderr
    assert accuracy(result.stdout) > 0.95
    assert losses(result.stdout)[-1] < losses(result.stdout)[0] / 10
    assert re.search(r"^classification +\d+ samples/s$", result.stdout, re.MULTILINE)


def test_same_seed_same_losses_and_another_seed_other_losses(cpu):
    first, again, other = (
        losses(run(cpu, "--epochs", "2", "--seed", seed).stdout) for seed in ("7", "7", "8")
    )
    assert first == again != other


@pytest.mark.parametrize("epochs", ["0", "1"])
def test_too_few_epochs_fail(cpu, epochs):
    result = run(cpu, "--epochs", epochs)
    assert result.returncode == 1
    assert "did not learn: test accuracy" in result.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--epoch", "3"], "unknown argument '--epoch'"),
        (["3"], "unknown argument '3'"),
        (["--epochs"], "--epochs needs a number"),
        (["--epochs", "-1"], "--epochs takes a whole number from 0 to 10000, not '-1'"),
        (["--epochs", "3x"], "--epochs takes a whole number from 0 to 10000, not '3x'"),
        (["--batch", "0"], "--batch takes a whole number from 1 to 512, not '0'"),
        (["--batch", "513"], "--batch takes a whole number from 1 to 512, not '513'"),
        (["--seed", ""], "--seed takes a whole number from 0 to 4294967295, not ''"),
    ],
)
def test_wrong_usage(cpu, flags, message):
    result = run(cpu, *flags)
    assert result.returncode == 2
    assert result.stderr.startswith(f"cpu: {message}\n")
    assert not result.stdout


def test_help_names_flags_and_exit_codes(cpu):
    result = run(cpu, "--help")
    assert result.returncode == 0
    assert all(text in result.stdout for text in ("--epochs", "--batch", "--seed", "3 no CUDA device"))


def test_a_batch_that_does_not_divide_the_images(cpu):
    result = run(cpu, "--batch", "37")
    assert result.returncode == 0, result.stderr


def test_make_says_which_libraries_are_missing(tmp_path):
    made = make("mnist", f"CUDA={tmp_path}", f"BUILD={tmp_path}")
    assert made.returncode != 0
    assert f"no libcudnn.so.* libcublas.so.* libcudart.so.* in {tmp_path}/lib" in made.stderr


@pytest.mark.real
class TestGpuPrograms:
    @pytest.mark.parametrize(("program", "epochs"), [("mnist", "4"), ("rnn", "10")])
    def test_it_learns(self, gpu_programs, reference, program, epochs):
        result = run(gpu_programs[program], "--epochs", epochs, **reference)
        assert result.returncode == 0, result.stderr
        assert accuracy(result.stdout) > 0.93
        assert losses(result.stdout)[-1] < losses(result.stdout)[0] / 5
        assert re.search(r"^cuDNN +9\.\d+\.\d+$", result.stdout, re.MULTILINE)

    @pytest.mark.parametrize("program", GPU_PROGRAMS)
    def test_untrained_it_fails(self, gpu_programs, reference, program):
        result = run(gpu_programs[program], "--epochs", "0", **reference)
        assert result.returncode == 1
        assert "did not learn" in result.stderr

    @pytest.mark.parametrize("program", GPU_PROGRAMS)
    def test_wrong_flag(self, gpu_programs, reference, program):
        assert run(gpu_programs[program], "--gpu", "1", **reference).returncode == 2

    @pytest.mark.parametrize("program", GPU_PROGRAMS)
    def test_no_device(self, gpu_programs, reference, program):
        result = run(gpu_programs[program], REFERENCE_DEVICES="0", **reference)
        assert result.returncode == 3
        assert result.stderr == f"{program}: no CUDA device: no CUDA-capable device is detected\n"

    def test_a_failing_call_is_named(self, gpu_programs, reference):
        result = run(gpu_programs["mnist"], REFERENCE_FAILS="cudnnSoftmaxForward", **reference)
        assert result.returncode == 1
        assert re.fullmatch(
            r"mnist: cudnnSoftmaxForward failed: CUDNN_STATUS_EXECUTION_FAILED \(common/network.cpp:\d+\)\n",
            result.stderr,
        )

    @pytest.mark.parametrize(
        ("program", "has", "lacks"),
        [("mnist", "cudnnConvolutionForward", "cudnnRNN"), ("rnn", "cudnnRNNForward", "cudnnConvolution")],
    )
    def test_imports_tell_the_models_apart(self, gpu_programs, program, has, lacks):
        """dpack holds a program's imports against its --model, so neither may import the other's symbols."""
        symbols = gpu_programs[program].read_bytes()
        assert has.encode() + b"\0" in symbols
        assert lacks.encode() not in symbols

    @pytest.mark.parametrize("program", GPU_PROGRAMS)
    def test_no_search_path_is_left_in_it(self, gpu_programs, cuda_sdk, program):
        dynamic = subprocess.run(
            ["readelf", "-dW", gpu_programs[program]], capture_output=True, text=True, check=True
        ).stdout
        assert "RPATH" not in dynamic
        assert "RUNPATH" not in dynamic
        assert str(cuda_sdk) not in dynamic
        assert "[libcudnn.so.9]" in dynamic


@pytest.mark.real
@pytest.mark.parametrize("library_set", chosen_sets()[1:], ids=lambda each: each.name)
def test_the_gpu_programs_build_against_every_set(library_set, peer, tmp_path):
    compiler = peer("g++" if library_set.machine == "x86_64" else f"{library_set.machine}-linux-gnu-g++")
    sdk = library_set.sdk(tmp_path / "sdk")
    for path in build(GPU_PROGRAMS, tmp_path / "built", f"CUDA={sdk}", f"CXX={compiler}").values():
        elf = read_elf(path)
        assert elf.machine.name == library_set.machine
        assert {"libcudnn.so.9", f"libcublas.so.{library_set.cuda}"} <= set(elf.needed)
