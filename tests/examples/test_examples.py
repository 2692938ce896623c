"""The example programs are built for real. Where they need a GPU they run on a reference implementation of the
CUDA calls they make (reference_cuda.cpp, reference_cudnn_graph.cpp), so these tests show that the programs learn,
not that CUDA works. What needs no GPU is asked of cuDNN itself (planned_only.cpp)."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.libraries import SETS, chosen_sets
from click.testing import CliRunner

from packager.cli.slice import slice as dpack_slice
from packager.resolve.elf import ElfFile, read_elf
from packager.resolve.symbols import symbols
from packager.source import library_directories

EXAMPLES = Path(__file__).parents[2] / "examples"
REFERENCE = tuple(map(Path(__file__).with_name, ("reference_cuda.cpp", "reference_cudnn_graph.cpp")))
PLANNED_ONLY = Path(__file__).with_name("planned_only.cpp")
GPU_PROGRAMS = ("mnist", "mnist-graph", "rnn")
JIT_LIBRARIES = ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9")

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
    flags = ["-std=c++17", "-O3", "-ffast-math", "-fPIC", "-Wall", "-Wextra", "-Werror"]
    headers = ["-isystem", str(cuda_sdk / "include"), "-isystem", str(cuda_sdk / "include" / "cccl")]
    compiled = [folder / f"{source.stem}.o" for source in REFERENCE]
    for source, made in zip(REFERENCE, compiled, strict=True):
        subprocess.run(["g++", *flags, *headers, "-c", source, "-o", made], check=True)
    for stem in ("cudnn", "cublas", "cudart"):
        (library,) = (cuda_sdk / "lib").glob(f"lib{stem}.so.[0-9]*")
        named = ["-shared", f"-Wl,-soname,{library.name}", "-Wl,--default-symver"]
        subprocess.run(["g++", *named, "-o", folder / library.name, *compiled], check=True)
    yield {"LD_LIBRARY_PATH": str(folder)}
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def planned_only(cuda_sdk: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What takes the driver's place where cuDNN shall plan and not run."""
    made = tmp_path_factory.mktemp("planned-only") / "libcuda.so.1"
    flags = ["-std=c++17", "-fPIC", "-Wall", "-Wextra", "-Werror", "-isystem", str(cuda_sdk / "include")]
    command = ["g++", *flags, "-shared", f"-Wl,-soname,{made.name}", "-o", made, PLANNED_ONLY, "-ldl"]
    subprocess.run(command, check=True)
    return made


def imports(program: Path, prefix: str) -> set[str]:
    with ElfFile(program) as file:
        return {s.name for s in symbols(file) if not s.defined and s.name.startswith(prefix)}


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
    @pytest.mark.parametrize(("program", "epochs"), [("mnist", "4"), ("mnist-graph", "4"), ("rnn", "10")])
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

    @pytest.mark.parametrize(
        ("program", "call", "where"),
        [
            ("mnist", "cudnnSoftmaxForward", "common/network.cpp"),
            ("mnist-graph", "cudnnBackendExecute", "mnist/graph.cpp"),
        ],
    )
    def test_a_failing_call_is_named(self, gpu_programs, reference, program, call, where):
        result = run(gpu_programs[program], REFERENCE_FAILS=call, **reference)
        assert result.returncode == 1
        why = rf"{call} failed: CUDNN_STATUS_EXECUTION_FAILED \({where}:\d+\)"
        assert re.fullmatch(rf"{program}: {why}\n", result.stderr)

    @pytest.mark.parametrize(
        ("program", "has", "lacks"),
        [
            ("mnist", "cudnnConvolutionForward", "cudnnRNN"),
            ("mnist-graph", "cudnnBackendExecute", "cudnnConvolution"),
            ("rnn", "cudnnRNNForward", "cudnnConvolution"),
        ],
    )
    def test_imports_tell_the_models_apart(self, gpu_programs, program, has, lacks):
        """dpack holds a program's imports against its --model, so neither may import the other's symbols."""
        assert has in imports(gpu_programs[program], has)
        assert not imports(gpu_programs[program], lacks)

    def test_the_graph_program_needs_cudnns_graph_library_alone(self, gpu_programs, cuda_sdk):
        found = imports(gpu_programs["mnist-graph"], "cu")
        assert {name for name in found if not name.startswith("cuda")} == {
            "cudnnBackendCreateDescriptor",
            "cudnnBackendDestroyDescriptor",
            "cudnnBackendExecute",
            "cudnnBackendFinalize",
            "cudnnBackendGetAttribute",
            "cudnnBackendSetAttribute",
            "cudnnCreate",
            "cudnnDestroy",
            "cudnnGetErrorString",
            "cudnnGetVersion",
        }
        with ElfFile(cuda_sdk / "lib" / "libcudnn_graph.so.9") as graph:
            exported = {symbol.name for symbol in symbols(graph) if symbol.defined}
        assert {name for name in found if name.startswith("cudnn")} <= exported
        needed = {name.split(".so")[0] for name in read_elf(gpu_programs["mnist-graph"]).needed}
        assert {"libcudnn", "libcudart"} <= needed
        assert "libcublas" not in needed

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
class TestPlansWithoutPrecompiledKernels:
    """cuDNN itself plans each graph, and compiles it for a GPU that is not there, with the three libraries alone
    that its JIT configuration needs. Nothing is executed, so the program learns nothing."""

    @pytest.fixture
    def plan(
        self, gpu_programs: dict[str, Path], cuda_sdk: Path, planned_only: Path, tmp_path: Path
    ) -> Callable[..., str]:
        """What the program says when it plans with the cuDNN in a directory."""

        def planned(cudnn: Path, sm: str, configuration: str) -> str:
            compiler = [
                path for stem in ("cudart", "nvrtc") for path in (cuda_sdk / "lib").glob(f"lib{stem}*")
            ]
            for library in (*(cudnn / name for name in JIT_LIBRARIES), *compiler):
                (tmp_path / library.name).symlink_to(library.resolve())
            reach = {"LD_PRELOAD": str(planned_only), "LD_LIBRARY_PATH": str(tmp_path)}
            environment = {**reach, "PLANNED_SM": sm, "CUDNN_LIB_CONFIG": configuration}
            result = run(gpu_programs["mnist-graph"], "--epochs", "0", **environment)
            assert result.returncode == 1
            return result.stderr

        return planned

    def test_of_the_full_distribution(self, plan, cuda_sdk):
        assert "did not learn" in plan(cuda_sdk / "lib", "86", "GRAPH_JIT_ONLY")

    @pytest.mark.parametrize(("sm", "outcome"), [("90", "did not learn"), ("75", "cuDNN has no engine")])
    def test_of_the_jit_distribution(self, plan, sm, outcome):
        fetched = SETS[0].fetch("nvidia-cudnn-jit-cu12==9.27.0.42")
        (cudnn,) = (path for each in fetched if "jit" in each.name for path in library_directories(each))
        assert sorted(path.name for path in cudnn.iterdir()) == sorted(JIT_LIBRARIES)
        assert outcome in plan(cudnn, sm, "JIT")


@pytest.mark.real
class TestPlansWithSlicedLibraries:
    """cuDNN plans the same with slices as with NVIDIA's own files: the slices are loaded and their host code runs.

    What the heuristics choose is compared, precompiled engines among it, and the kernels that the others compile;
    precompiled kernels are not loaded to plan.
    """

    def test_engines_knobs_and_kernels_are_the_same(self, gpu_programs, cuda_sdk, planned_only, tmp_path):
        def plans(*folders: Path) -> list[dict[str, Any]]:
            reach = {"LD_PRELOAD": str(planned_only), "LD_LIBRARY_PATH": ":".join(map(str, folders))}
            result = run(gpu_programs["mnist-graph"], "--epochs", "0", **reach, PLANNED_SM="86")
            assert "did not learn" in result.stderr
            made = [json.loads(line[5:]) for line in result.stdout.splitlines() if line.startswith("plan {")]
            for plan in made:
                for kernel in plan["engine"].get("payload", {}).get("kernels", ()):
                    del kernel["kernelParams"]["rawData"]  # which has bytes that differ from run to run
            return made

        whole, small = cuda_sdk / "lib", tmp_path / "small"
        named = ("libcudnn*.so.9", "libcublas*.so.12")
        files = [str(path.resolve()) for pattern in named for path in whole.glob(pattern)]
        sliced = CliRunner().invoke(dpack_slice, [*files, "--gpu", "sm_86", "--vendor", "-o", str(small)])
        assert sliced.exit_code == 0, sliced.output
        assert (small / "libcudnn_ops.so.9").stat().st_size < (whole / "libcudnn_ops.so.9").stat().st_size / 4

        made = plans(small, whole)
        assert made == plans(whole)
        compiled = ["payload" in plan["engine"] for plan in made]
        assert True in compiled
        assert False in compiled
        shutil.rmtree(small)


@pytest.mark.real
@pytest.mark.parametrize("library_set", chosen_sets()[1:], ids=lambda each: each.name)
def test_the_gpu_programs_build_against_every_set(library_set, peer, tmp_path):
    compiler = peer("g++" if library_set.machine == "x86_64" else f"{library_set.machine}-linux-gnu-g++")
    sdk = library_set.sdk(tmp_path / "sdk")
    for path in build(GPU_PROGRAMS, tmp_path / "built", f"CUDA={sdk}", f"CXX={compiler}").values():
        elf = read_elf(path)
        assert elf.machine.name == library_set.machine
        assert {"libcudnn.so.9", f"libcudart.so.{library_set.cuda}"} <= set(elf.needed)
        assert (f"libcublas.so.{library_set.cuda}" in elf.needed) is (path.name != "mnist-graph")
