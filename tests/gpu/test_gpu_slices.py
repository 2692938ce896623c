"""What the slice script reads, does and concludes, shown without a GPU: on values, and on stand-ins whose driver is
a few lines of C that look for a kernel of the right SM as the real one does."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import containers
import kernels
import programs
import pytest
import pytorch
import slices as script
from builders.fatbin import container, cubin, member, shared_object
from compare import clear_failure, same_end, same_results, same_speed
from device import Device
from findings import Finding, Report, Step, Verdict
from kernels import Trace, Tracer, same_kernels
from observe import Run
from programs import Stage
from run import Bench
from standins import build_cudnn, compile_c

GOOD = Run(0, "epoch 1  loss 1.5  100 samples/s\ntraining   100 samples/s\n", "", ())
OTHER = Run(0, GOOD.out.replace("1.5", "1.6"), "", ())
BAD = Run(-6, "", "boom\n", ())
NO_IMAGE = "cudnnCreate failed: no kernel image is available for execution on the device (x.cpp:1)"


@pytest.mark.parametrize(
    ("originals", "others", "verdict", "words"),
    [
        ([GOOD, GOOD], [GOOD], Verdict.HELD, "equal to the last digit in 1 runs, as the original's 2"),
        (
            [GOOD, GOOD],
            [GOOD, OTHER],
            Verdict.BROKEN,
            "not those of the original: -epoch 1  loss 1.5  -",
        ),
        ([GOOD, OTHER], [GOOD], Verdict.SEEN, "the original differs from run to run"),
        ([GOOD, OTHER], [BAD], Verdict.BROKEN, "exit code -6, boom"),
        ([GOOD, BAD], [GOOD], Verdict.BROKEN, "the original itself fails: exit code -6, boom"),
    ],
)
def test_results_are_compared_where_the_original_repeats_itself(originals, others, verdict, words):
    found = same_results(originals, others)
    assert (found.verdict, words in found.words) == (verdict, True), found.words


@pytest.mark.parametrize(
    ("original", "other", "may_fail", "verdict"),
    [
        (GOOD, GOOD, False, Verdict.HELD),
        (GOOD, OTHER, False, Verdict.BROKEN),
        (GOOD, BAD, True, Verdict.BROKEN),
        (BAD, BAD, False, Verdict.BROKEN),
        (BAD, BAD, True, Verdict.SEEN),
        (BAD, GOOD, True, Verdict.BROKEN),
    ],
)
def test_ends_are_compared(original, other, may_fail, verdict):
    assert same_end(original, other, "x", may_fail=may_fail).verdict is verdict


def at(*speeds: int) -> list[Run]:
    return [Run(0, f"training   {speed} samples/s\n", "", ()) for speed in speeds]


@pytest.mark.parametrize(
    ("originals", "others", "verdict", "words"),
    [
        (at(100, 102, 101), at(95, 99, 200), Verdict.HELD, "training 0.98 of the original's 101/s"),
        (at(100, 100, 100), at(85, 85, 85), Verdict.BROKEN, "training 0.85 of the original's 100/s"),
        (at(100, 130, 100), at(85, 85, 85), Verdict.HELD, "training 0.85 of the original's 100/s"),
        (at(100), at(300), Verdict.HELD, "training 3.00 of the original's 100/s"),
        ([BAD], at(300), Verdict.SKIPPED, "not every run reports one"),
    ],
)
def test_slower_by_more_than_noise_is_a_broken_promise(originals, others, verdict, words):
    found = same_speed(originals, others)
    assert (found.verdict, found.words) == (verdict, words)


@pytest.mark.parametrize(
    ("wrong", "exact", "verdict"),
    [
        (Run(1, "", NO_IMAGE, ()), True, Verdict.HELD),
        (Run(1, "", "cudnnPoolingForward failed: CUDNN_STATUS_EXECUTION_FAILED\n", ()), False, Verdict.HELD),
        (Run(1, "", "lstm: RuntimeError: CUDNN_STATUS_EXECUTION_FAILED\n", ()), True, Verdict.BROKEN),
        (Run(1, "", "mnist: did not learn: test accuracy 0.1\n", ()), False, Verdict.BROKEN),
        (Run(-11, "", NO_IMAGE, ()), False, Verdict.BROKEN),
        (OTHER, False, Verdict.BROKEN),
        (GOOD, False, Verdict.SEEN),
    ],
)
def test_a_wrong_slice_is_to_fail_with_words(wrong, exact, verdict):
    assert clear_failure(GOOD, wrong, "x", exact=exact).verdict is verdict


@pytest.mark.parametrize(
    ("traces", "verdict", "words"),
    [
        (({"a": 1, "b": 2}, {"b": 2, "a": 1}), Verdict.HELD, "the same 2, as often (CUPTI)"),
        (({"a": 1}, {"a": 2}), Verdict.HELD, "the same 1, not all as often (CUPTI)"),
        (({"a": 1}, {"b": 1}), Verdict.BROKEN, "of the original alone: a; of the slice alone: b"),
        (({"a": 1}, {"b": 1}, {"a": 4}), Verdict.BROKEN, "of the original alone: a; of the slice alone: b"),
        (({"a": 1}, {"b": 1}, {"c": 1}), Verdict.SEEN, "the original itself varies; "),
        (({}, {}), Verdict.BROKEN, "the same 0, as often (CUPTI)"),
    ],
)
def test_kernels_are_compared_by_name(traces, verdict, words):
    found = same_kernels(*map(Trace, traces))
    assert found.verdict is verdict
    assert found.words.startswith(words)


def test_kernels_that_nobody_could_list_are_skipped_with_the_reason():
    assert same_kernels(Trace({"a": 1}), Trace({}, "no")) == Finding.skipped("kernels", "no")


CUPTI = """
#include <stdint.h>
struct call { int site; const char *function; const void *p; void *r; const char *kernel; };
static void (*told)(void *, int, uint32_t, const struct call *);
int cuptiSubscribe(void **who, void (*tell)(void *, int, uint32_t, const struct call *), void *x) {
    *who = &told; told = tell; return STATUS;
}
int cuptiEnableDomain(uint32_t on, void *who, int domain) { return !(on && who == &told && domain == 1); }
void launched(int site, const char *function, const char *kernel) {
    struct call call = {site, function, 0, 0, kernel};
    told(0, 1, 7, &call);
}
"""
TRACED = """
#include <dlfcn.h>
#include <stdlib.h>
int main(int count, char **arguments) {
    int (*begin)(void) = dlsym(dlopen(getenv("CUDA_INJECTION64_PATH"), RTLD_NOW), "InitializeInjection");
    if (begin() != 1 || begin() != 1) return 9;
    void *cupti = dlopen(getenv("DPACK_CUPTI"), RTLD_NOW);
    void (*launched)(int, const char *, const char *) = cupti ? dlsym(cupti, "launched") : 0;
    if (!launched || count > 1) return 0;
    launched(0, "cuLaunchKernelEx", "gemm");
    launched(1, "cuLaunchKernelEx", "gemm");
    launched(0, "cuMemAlloc_v2", "(junk)");
    launched(0, "cuLaunchKernel_ptsz", "relu");
    launched(0, "cuLaunchKernel", "gemm");
    launched(0, "cuLaunchHostFunc", "(junk)");
    launched(0, "cuGraphLaunch", 0);
}
"""


@pytest.fixture(scope="module")
def tracing(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("tracing")
    for name, status in (("cupti", 0), ("refusing", 39)):
        compile_c(CUPTI, f"-DSTATUS={status}", "-shared", "-fPIC", "-o", folder / f"lib{name}.so")
    compile_c(TRACED, "-o", folder / "traced")
    return folder


def injected(folder: Path, cupti: str) -> Tracer:
    site = folder / "site" / "nvidia" / "cu13" / "lib"
    site.mkdir(parents=True, exist_ok=True)
    (site / "libcupti.so.13").write_text("")
    made = kernels.tracer(folder / "made", [folder / "site"])
    assert isinstance(made, Tracer)
    assert made.cupti == (site / "libcupti.so.13").resolve()
    return Tracer(made.injected, folder / cupti)


def test_launches_are_counted_and_other_calls_are_not(tracing):
    trace = injected(tracing, "libcupti.so")(tracing / "traced", {})
    assert trace == Trace({"gemm": 2, "relu": 1, "(a CUDA graph)": 1})


@pytest.mark.parametrize(
    ("cupti", "trouble"),
    [("librefusing.so", "CUPTI refuses with status 39"), ("libabsent.so", "cannot open shared object file")],
)
def test_a_trace_says_why_it_is_none(tracing, cupti, trouble):
    trace = injected(tracing, cupti)(tracing / "traced", {}, ["silent"])
    assert trouble in trace.trouble
    assert not trace.launches


def test_a_driver_that_loads_no_trace_is_told(tracing):
    trace = injected(tracing, "libcupti.so")(Path(shutil.which("true") or ""), {})
    assert trace == Trace({}, "the driver did not load the trace (exit code 0, exit code 0)")


# The part of libcudnn.so.9 that has kernels, and of the driver that chooses one of a container.
DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct wrapper { uint32_t magic, version; const unsigned char *data; void *more; };
extern const struct wrapper wrappers[2] __attribute__((visibility("hidden")));
static int finds(const unsigned char *at, unsigned sm) {
    uint64_t size, payload;
    uint32_t magic, header, number;
    memcpy(&magic, at, 4);
    if (magic != 0xBA55ED50) abort();
    memcpy(&size, at + 8, 8);
    const unsigned char *end = at + 16 + size;
    for (at += 16; at < end; at += header + payload) {
        memcpy(&header, at + 4, 4);
        memcpy(&payload, at + 8, 8);
        memcpy(&number, at + 28, 4);
        if (number == sm) return 1;
    }
    return 0;
}
void cudnnCreate(void) {
    const char *loading = getenv("CUDA_MODULE_LOADING");
    int all = loading && !strcmp(loading, "EAGER");
    printf("modules %d\\n", finds(wrappers[0].data, 90) + (all ? finds(wrappers[1].data, 90) : 0));
    if (finds(wrappers[0].data, 90)) return;
    fflush(stdout);
    fprintf(stderr, "cudnnCreate failed: no kernel image is available for execution on the device\\n");
    exit(1);
}
"""
PROGRAM = """
#include <stdio.h>
#include <unistd.h>
void cudnnCreate(void);
int main(void) {
    cudnnCreate();
    usleep(30000);
    printf("training       1000 samples/s\\n");
}
"""


def code(*names: str) -> bytes:
    return container(
        *(member(name, cubin(name, code=random.Random(name).randbytes(60000))) for name in names)
    )


def kernels_in_assembly(folder: Path) -> Path:
    """Two containers, the second for sm_86 alone, and the table that points at them."""
    lines = ['.section .nv_fatbin,"a",%progbits']
    for number, content in enumerate((code("sm_86", "sm_90"), code("sm_86"))):
        (folder / f"{number}.bin").write_bytes(content)
        lines += [".balign 8", f".Lfatbin{number}:", f'.incbin "{folder / f"{number}.bin"}"']
    lines += ['.section .nvFatBinSegment,"aw",%progbits', ".balign 8", ".globl wrappers", ".hidden wrappers"]
    lines += ["wrappers:", *(f".long 0x466243B1, 1\n.quad .Lfatbin{number}, 0" for number in (0, 1))]
    path = folder / "kernels.s"
    path.write_text("\n".join([*lines, '.section .note.GNU-stack,"",%progbits']) + "\n")
    return path


@pytest.fixture(scope="module")
def stage(tmp_path_factory) -> Stage:
    folder = tmp_path_factory.mktemp("slices")
    libraries = build_cudnn(folder / "lib", DRIVER, kernels_in_assembly(folder))
    compile_c(PROGRAM, libraries / "libcudnn.so.9", "-o", folder / "mnist")
    (folder / "work").mkdir()
    return Stage(Bench(libraries, folder / "work", {}, 2), "sm_90", "sm_86", "no CUPTI here")


def verdicts(findings: object) -> dict[str, Verdict]:
    return {each.what: each.verdict for each in findings}  # type: ignore[attr-defined]


def test_an_example_is_run_whole_and_sliced(stage):
    found = list(programs.examine(stage.bench.libraries.parent / "mnist", "cnn", stage))
    assert verdicts(found) == {
        "size": Verdict.HELD,
        "containers": Verdict.SEEN,
        "results": Verdict.HELD,
        "speed": Verdict.HELD,
        "kernels": Verdict.SKIPPED,
        "CUDA_MODULE_LOADING=LAZY": Verdict.HELD,
        "CUDA_MODULE_LOADING=EAGER": Verdict.HELD,
        "sliced for sm_86": Verdict.HELD,
    }
    words = {each.what: each.words for each in found}
    assert words["containers"] == "1 of 2 have no member, each a header of size 0"
    assert "no kernel image is available" in words["sliced for sm_86"]
    files = next(each.figures["files"] for each in found if each.what == "size")
    assert files["libcudnn.so.9"]["after"] < files["libcudnn.so.9"]["before"] - 100_000


WORK = """
import ctypes, importlib.util, pathlib
torch = pathlib.Path(importlib.util.find_spec("torch").origin).parent
ctypes.CDLL(torch / "lib/libtorch_cuda.so")
import time; time.sleep(0.1)
library = ctypes.CDLL(torch / "lib/../../nvidia/cudnn/lib/libcudnn.so.9")
library.cudnnCreate()
print("product   sha256 1234\\nproduct   1000 samples/s")
"""


@pytest.fixture
def torch_site(stage, tmp_path) -> Path:
    """Packages as pip installs them: a torch with a library of its own, and cuDNN beside it."""
    site = tmp_path / "site"
    for path in ("torch/lib", "torch/sub", "nvidia/cudnn/lib", "numpy"):
        (site / path).mkdir(parents=True)
    (site / "torch/__init__.py").write_text("")
    (site / "torch/sub/some.py").write_text("x = 1\n")
    made = shared_object(tmp_path, {".nv_fatbin": [code("sm_86", "sm_90"), code("sm_86")]})
    shutil.copyfile(made, site / "torch/lib/libtorch_cuda.so")
    shutil.copyfile(stage.bench.libraries / "libcudnn.so.9", site / "nvidia/cudnn/lib/libcudnn.so.9")
    return site


def test_a_copy_of_torch_has_links_to_all_files_but_the_sliced(torch_site, tmp_path):
    copy = tmp_path / "copy"
    pytorch.mirror(torch_site, copy)
    sizes = pytorch.slice_in(copy, torch_site, "sm_90")
    assert sorted(sizes) == ["nvidia/cudnn/lib/libcudnn.so.9", "torch/lib/libtorch_cuda.so"]
    assert all(after < before for before, after in sizes.values())
    assert (copy / "torch/sub/some.py").readlink() == torch_site / "torch/sub/some.py"
    assert not (copy / "torch/lib/libtorch_cuda.so").is_symlink()
    assert not (copy / "numpy").exists()
    assert (torch_site / "torch/lib/libtorch_cuda.so").stat().st_size == sizes["torch/lib/libtorch_cuda.so"][
        0
    ]


def test_torch_is_run_whole_and_sliced(stage, torch_site, tmp_path, monkeypatch):
    work = tmp_path / "work.py"
    work.write_text(WORK)
    # The real start of the original names no path: its Python has torch. This one's has not.
    real = pytorch._start
    monkeypatch.setattr(pytorch, "_start", lambda stage, place, copy: real(stage, place, copy or torch_site))
    place = pytorch.Installed(Path(sys.executable), torch_site)
    found = list(pytorch.examine(stage, place, work))
    assert verdicts(found) == {
        "size": Verdict.HELD,
        "results": Verdict.HELD,
        "what is mapped": Verdict.HELD,
        "speed": Verdict.HELD,
        "kernels": Verdict.SKIPPED,
        "CUDA_MODULE_LOADING=EAGER": Verdict.HELD,
        "sliced for sm_86": Verdict.HELD,
    }
    assert not list(stage.bench.work.glob("torch-*"))


def test_a_library_from_outside_the_copy_is_a_broken_promise(tmp_path):
    sizes = {"nvidia/cudnn/lib/libcudnn.so.9": (2, 1)}
    inside = str(tmp_path / "nvidia/cudnn/lib/libcudnn.so.9")
    assert (
        pytorch._mapped([Run(0, "", "", (inside, "/x/libm.so.6"))], tmp_path, sizes).verdict is Verdict.HELD
    )
    for mapped in ((), (inside, "/usr/lib/libcudnn.so.9")):
        assert pytorch._mapped([Run(0, "", "", mapped)], tmp_path, sizes).verdict is Verdict.BROKEN


def test_no_torch_is_said(stage):
    assert list(pytorch.examine(stage, "no torch")) == [Finding.skipped("torch", "no torch")]


def test_empty_containers_lose_their_headers_in_a_copy_and_nothing_else(tmp_path):
    library = shared_object(tmp_path, {".nv_fatbin": [code("sm_86", "sm_90"), code("sm_86")]})
    assert containers._slice(library, tmp_path / "own/lib.so", "sm_90") == ["packed"]
    (empty,) = containers.empty_containers(tmp_path / "own/lib.so")
    containers.wipe(tmp_path / "own/lib.so", tmp_path / "wiped/lib.so")
    assert containers.empty_containers(tmp_path / "wiped/lib.so") == ()
    before, after = ((tmp_path / name / "lib.so").read_bytes() for name in ("own", "wiped"))
    zeroed = before[: empty.offset] + bytes(16) + before[empty.offset + 16 :]
    assert (after == zeroed, after == before) == (True, False)


def test_without_nvcc_the_step_says_so(stage, monkeypatch):
    monkeypatch.setattr(containers, "compiler", lambda: None)
    assert verdicts(containers.examine(stage)) == {"nvcc": Verdict.SKIPPED}


@pytest.mark.real
def test_nvccs_library_is_cut_in_both_ways(stage):
    nvcc = containers.compiler()
    if nvcc is None:
        # As with the GPU itself: even the machine with every peer need not have it.
        pytest.skip("no nvcc on the path or in a toolkit")
    built = containers.build(nvcc, stage.bench.work / "nvcc", "sm_90", "sm_86")
    for way, library in built.libraries.items():
        cut = library.parent / "own" / library.name
        ways = containers._slice(library, cut, "sm_90")
        assert containers._as_meant(way, ways, cut).verdict is Verdict.HELD


DEVICE = Device("NVIDIA H200", "9.0", "580.1", "13.0")


@pytest.mark.parametrize(
    ("own", "other"), [("sm_90", "sm_86"), ("sm_86", "sm_90"), ("sm_89", "sm_90"), ("sm_120", "sm_86")]
)
def test_the_other_gpu_is_of_another_major(own, other):
    assert script.foreign(own) == other
    assert script.own_sm(DEVICE) == "sm_90"


def test_a_step_that_fails_keeps_what_it_found_and_says_why():
    def look():
        yield Finding.seen("first", "well")
        raise subprocess.CalledProcessError(2, ["make"], stderr="no rule\n")

    step = script.perform("mnist", look, time.monotonic() + 60)
    assert [each.what for each in step.findings] == ["first", "the step itself"]
    assert step.problems[0].endswith("exit status 2.: no rule")


@pytest.mark.parametrize(("left", "whats"), [(-1, ["time"]), (0.2, ["first", "time"])])
def test_past_its_time_nothing_more_is_begun(left, whats):
    def look():
        time.sleep(0.3)
        yield Finding.seen("first", "well")
        yield Finding.seen("second", "well")

    step = script.perform("mnist", look, time.monotonic() + left)
    assert [each.what for each in step.findings] == whats
    assert step.problems == ("mnist: time: none was left for this, or for the rest of it",)


def test_the_report_is_written_for_programs_and_for_people(tmp_path):
    findings = (
        Finding.promise("results", "not\nthose | of", held=False, runs=[1]),
        Finding.skipped("kernels", "no CUPTI"),
    )
    steps = (Step("mnist", 3.2, findings),)
    report = Report(
        DEVICE, "2026-01-02", "6.1", "glibc 2.36", "sm_90", "sm_86", {}, "nvidia-h200-slices", steps
    )
    record, page = report.write(tmp_path / "new")
    values = json.loads(record.read_text())
    assert values["problems"] == ["mnist: results: not\nthose | of"]
    assert values["steps"][0]["findings"][0]["figures"] == {"runs": [1]}
    assert "| results | BROKEN | not those \\| of |" in page.read_text()
    assert "| kernels | skipped | no CUPTI |" in page.read_text()


def test_without_a_gpu_nothing_is_checked_and_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(script.gpu, "find", lambda: "no NVIDIA driver")
    assert script.main([]) == 0
    assert capsys.readouterr().out == (
        "tests/gpu/slices: nothing was checked, since there is no GPU here: no NVIDIA driver\n"
    )


def test_all_steps_are_performed_and_written(stage, monkeypatch, tmp_path):
    built = {"mnist": stage.bench.libraries.parent / "mnist"}
    monkeypatch.setattr(script.gpu, "find", lambda: DEVICE)
    monkeypatch.setattr(script, "build", lambda *_: built)
    monkeypatch.setattr(script, "tracer", lambda *_: "no CUPTI here")
    monkeypatch.setattr(script.pytorch, "installed", lambda: "no torch here")
    options = ["--sdk", str(stage.bench.libraries.parent), "--runs", "1", "--evidence", str(tmp_path / "e")]
    chosen = [word for name in ("mnist", "rnn", "torch") for word in ("--only", name)]
    assert script.main([*options, *chosen, "--work", str(tmp_path / "w")]) == 1
    values = json.loads((tmp_path / "e/nvidia-h200-slices-mnist-rnn-torch.json").read_text())
    assert [step["name"] for step in values["steps"]] == ["mnist", "rnn", "torch"]
    assert values["problems"] == ["rnn: the step itself: KeyError: 'rnn'"]
