"""What the GPU script reads and concludes, shown without a GPU: on text, and on stand-ins for cuDNN's libraries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import run as script
from device import Device
from evidence import Evidence, Outcome, Subject
from observe import Run, can_hide, loaded, names_in_trace, objects_in_maps, run
from standins import OPENED, build_cudnn, compile_c

OUTPUT = """mnist: a convolutional network
device         NVIDIA H200, compute capability 9.0
CUDA           runtime 13.0, driver for 13.0
cuDNN          9.19.0
digits         1541 to train, 256 to test
epoch   1  loss 1.234567  1200 samples/s
accuracy       0.9531 (244 of 256 test images)
training       12345 samples/s (median of 5 epochs)
classification 67890 samples/s
"""

MAPS = """\
55d0c0000000-55d0c0001000 r-xp 00000000 fd:00 11 /srv/b/bin/mnist
7f0000000000-7f0000001000 r--p 00000000 fd:00 12 /srv/b/lib/libcudnn.so.9
7f0000001000-7f0000002000 r-xp 00001000 fd:00 12 /srv/b/lib/libcudnn.so.9
7f0000003000-7f0000004000 r-xp 00000000 fd:00 13 /a b/libcuda.so.580.1 (deleted)
7f0000004000-7f0000005000 r--p 00000000 fd:00 15 /etc/ld.so.cache
7f0000005000-7f0000006000 rw-p 00000000 00:00 0
7f0000006000-7f0000007000 rw-s 00000000 00:05 14 /dev/nvidiactl
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]
"""

TRACE = """
      4711:\tfile=libcudnn.so.9 [0];  needed by ./mnist [0]
      4711:\tfile=libcudnn.so.9 [0];  generating link map
      4711:\t  dynamic: 0x00007f  base: 0x00007f   size: 0x1
      4711:\tfile=/opt/x/libcudnn_ops.so.9 [0];  dynamically loaded by libcudnn.so.9 [0]
      4711:\tfile=/opt/x/libcudnn_ops.so.9 [0];  generating link map
"""


def test_mapped_objects_are_the_files_with_so_in_their_names():
    assert objects_in_maps(MAPS) == {"/srv/b/lib/libcudnn.so.9", "/a b/libcuda.so.580.1"}


def test_the_loaders_report_names_what_it_mapped_and_not_what_is_only_needed():
    assert names_in_trace([TRACE, ""]) == ("libcudnn.so.9", "libcudnn_ops.so.9")


def test_results_are_the_output_without_its_speeds():
    seen = Run(0, OUTPUT, "", ())
    faster = Run(0, OUTPUT.replace("12345", "54321").replace("1200", "99"), "", ())
    assert seen.results == faster.results
    assert seen.results != Run(0, OUTPUT.replace("1.234567", "1.234568"), "", ()).results
    assert seen.speeds == {"training": 12345.0, "classification": 67890.0}
    assert seen.platform == {
        "device": "NVIDIA H200, compute capability 9.0",
        "CUDA": "runtime 13.0, driver for 13.0",
        "cuDNN": "9.19.0",
    }


@pytest.mark.parametrize(
    ("code", "err", "words"),
    [(1, "first\nlast\n\n", "last"), (-6, "", "exit code -6"), (3, "no CUDA device\n", "no CUDA device")],
)
def test_last_words(code, err, words):
    assert Run(code, "", err, ()).words == words


def test_a_failed_run_has_no_equal_results_though_both_printed_nothing():
    nothing = Run(3, "", "no CUDA device\n", ())
    assert Outcome.of("as bundled", nothing, nothing) == Outcome(
        "as bundled", 3, equal=False, words="no CUDA device"
    )


DEVICE = Device("NVIDIA H200", "9.0", "580.1", "13.0")
GOOD = Outcome("as bundled", 0, equal=True, words="")
SUBJECT = Subject(
    program="mnist",
    model="cnn",
    platform={"CUDA": "runtime 12.9, driver for 13.0"},
    versions={"nvidia-cudnn-cu12": "9.10.2.21"},
    bundle_bytes=1_700_000_000,
    dropped={"libcudnn_adv.so.9": 285_226_600},
    mapped=("libcudnn.so.9",),
    never_mapped=("libnvrtc.so.12",),
    outside=(),
    host=("/lib/libc.so.6",),
    unsampled=(),
    original=GOOD,
    bundle=GOOD,
    speeds={"training": {"original": 100.0, "bundle": 101.0}},
    hidden=("/opt/cuda/lib",),
    without_originals=(GOOD,),
    removed=(Outcome("without libcudnn_ops.so.9", -6, equal=False, words="Cannot load a|b"),),
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"bundle": replace(GOOD, equal=False)}, "mnist, as bundled: prints other results than the original"),
        ({"bundle": replace(GOOD, code=1, words="oh")}, "mnist, as bundled: exit code 1, oh"),
        ({"without_originals": (replace(GOOD, code=-6, words="x"),)}, "mnist, as bundled: exit code -6, x"),
        ({"original": replace(GOOD, code=1, equal=False, words="no")}, "mnist: the original itself fails: no"),
        ({"outside": ("/o/liba.so",)}, "mnist: /o/liba.so is mapped, and it is not in the bundle"),
        ({"unsampled": ("liba.so",)}, "mnist: ld.so loads liba.so, which the list of mappings did not show"),
    ],
)  # fmt: skip
def test_problems(changes, problem):
    assert list(replace(SUBJECT, **changes).problems()) == ([problem] if problem else [])


def test_evidence_is_written_for_programs_and_for_people(tmp_path):
    evidence = Evidence(DEVICE, "2026-01-02", "6.1", "glibc 2.36", {}, (SUBJECT,))
    record, page = evidence.write(tmp_path / "new")
    assert (record.name, page.name) == ("nvidia-h200-cuda12.9.json", "nvidia-h200-cuda12.9.md")
    values = json.loads(record.read_text())
    assert values["device"]["driver"] == "580.1"
    assert values["problems"] == []
    assert values["subjects"][0]["removed"][0]["words"] == "Cannot load a|b"
    text = page.read_text()
    assert "| without libcudnn_ops.so.9 | -6 | differ | Cannot load a\\|b |" in text
    assert "left out: libcudnn_adv.so.9 (285.2 MB)" in text
    assert "| training | 100 | 101 |" in text
    assert "PROBLEM" not in text


SHIM = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void take(const char *name) {
    if (dlopen(name, RTLD_NOW)) return;
    fprintf(stderr, "Cannot load %s\\n", name);
    exit(4);
}
void cudnnCreate(void) { CALLS }
"""
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
void cudnnCreate(void);
int main(void) {
    cudnnCreate();
    char astray[4096];
    snprintf(astray, sizeof astray, "%s/libcudnn_%s.so.9", PLACE, "adv");
    if (ASTRAY) dlopen(astray, 2);
    usleep(100000);
    printf("CUDA           runtime 12.9, driver for 13.0\\ntraining       %d samples/s\\n", (int)getpid() + 1);
}
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """A directory with stand-ins: a cuDNN whose shim opens four of its seven parts, and what those ask for."""
    calls = "".join(f'take("libcudnn_{part}.so.9");' for part in OPENED)
    return build_cudnn(tmp_path_factory.mktemp("sdk") / "lib", SHIM.replace("CALLS", calls))


def program_of(libraries: Path, folder: Path, *, astray: bool = False) -> Path:
    path = folder / "mnist"
    compile_c(
        PROGRAM,
        *(f"-DASTRAY={int(astray)}", f'-DPLACE="{libraries}"', libraries / "libcudnn.so.9", "-o", path),
    )
    return path


def test_a_program_and_its_bundle_are_examined(libraries, tmp_path):
    seen = script.examine(
        program_of(libraries, tmp_path), "cnn", script.Bench(libraries, tmp_path / "work", {}, 2)
    )
    assert list(seen.problems()) == []
    assert seen.bundle == Outcome("as bundled", 0, equal=True, words="")
    assert list(seen.dropped) == ["libcudnn_adv.so.9"]
    assert set(seen.mapped) == {"libcudnn.so.9", *(f"libcudnn_{part}.so.9" for part in OPENED)}
    assert "libcudnn_engines_precompiled.so.9" in seen.never_mapped
    assert "libc.so.6" in {Path(path).name for path in seen.host}
    assert seen.speeds["training"]["bundle"] > 1
    assert seen.platform == {"CUDA": "runtime 12.9, driver for 13.0"}
    assert bool(seen.hidden) == can_hide()
    ends = {outcome.what: (outcome.code, outcome.words) for outcome in seen.removed}
    assert ends["without libcudnn_heuristic.so.9"] == (4, "Cannot load libcudnn_heuristic.so.9")
    assert ends["without libcudnn_engines_precompiled.so.9"] == (0, "")


def test_a_library_that_comes_from_outside_the_bundle_is_a_problem(libraries, tmp_path):
    program = program_of(libraries, tmp_path, astray=True)
    seen = script.examine(program, "cnn", script.Bench(libraries, tmp_path / "work", {}, 1))
    assert str(libraries / "libcudnn_adv.so.9") in seen.outside
    assert any("libcudnn_adv.so.9 is mapped" in problem for problem in seen.problems())


def test_hidden_directories_are_empty_for_the_program_alone(libraries, tmp_path):
    if not can_hide():
        pytest.skip("this user may not mount")
    program = program_of(libraries, tmp_path)
    environment = {"LD_LIBRARY_PATH": str(libraries)}
    assert run(program, environment).code == 0
    blind = run(program, environment, hidden=[libraries])
    assert blind.code == 127
    assert "libcudnn.so.9" in blind.words
    assert (libraries / "libcudnn.so.9").is_file()


def test_a_run_past_its_limit_is_killed_and_says_so(libraries, tmp_path):
    ended = run(program_of(libraries, tmp_path), {"LD_LIBRARY_PATH": str(libraries)}, limit=0)
    assert (ended.code, ended.words) == (-9, "killed after 0 s")


def test_the_loader_reports_what_is_opened_while_the_program_runs(libraries, tmp_path):
    names = loaded(program_of(libraries, tmp_path), {"LD_LIBRARY_PATH": str(libraries)})
    assert {"libcudnn.so.9", "libcudnn_heuristic.so.9", "libc.so.6"} <= set(names)
    assert "libcudnn_adv.so.9" not in names


def test_without_a_gpu_the_script_says_that_nothing_was_checked(monkeypatch, capsys):
    monkeypatch.setattr(script.gpu, "find", lambda: "no NVIDIA driver")
    assert script.main([]) == 0
    assert capsys.readouterr().out == (
        "tests/gpu: nothing was checked, since there is no GPU here: no NVIDIA driver\n"
    )


def test_the_packages_of_an_interpreter_become_an_sdk(monkeypatch, tmp_path):
    for path in (
        "nvidia/cudnn/lib/libcudnn.so.9",
        "nvidia/cu13/lib/libcudart.so.13",
        "nvidia/cu13/include/cuda.h",
    ):
        (tmp_path / "site" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / path).write_text("")
    monkeypatch.setattr(script.sysconfig, "get_path", lambda _: str(tmp_path / "site"))
    made = script.installed_sdk(tmp_path / "sdk")
    assert made is not None
    assert {path.name for path in made.glob("*/*")} >= {"libcudnn.so.9", "libcudart.so.13", "cuda.h"}
