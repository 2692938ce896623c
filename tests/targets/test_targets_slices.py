"""Slices in a bundle: as large as the plan says, marked in the manifest, and NVIDIA's only when asked for."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from builders.fatbin import container, cubin, member, shared_object
from builders.manifest_schema import schema
from builders.oracle import require
from tiny_device import said

from packager.cuda.scan import read_gpu_code

OWN, VENDOR = "libown.so.1", "libcudnn_ops.so.9"


def library(directory: Path, soname: str) -> None:
    """A library with 64 KiB of code for each of three GPUs."""
    work = directory / f"build-{soname}"
    work.mkdir()
    code = bytes(range(256)) * 256
    members = [member(name, cubin(name, code=code)) for name in ("sm_70", "sm_86", "sm_90")]
    made = shared_object(work, {".nv_fatbin": [container(*members)]}, flags=[f"-Wl,-soname,{soname}"])
    made.rename(directory / soname)


@pytest.fixture
def program(tmp_path):
    """A program that needs both libraries and fails unless they answer."""
    for soname in (OWN, VENDOR):
        library(tmp_path, soname)
    source = tmp_path / "main.c"
    source.write_text("int answer(void);\nint main(void) { return answer() == 42 ? 0 : 1; }\n")
    libraries = [f"-l:{name}" for name in (OWN, VENDOR)]
    command = [
        require("gcc"),
        source,
        "-o",
        tmp_path / "app",
        "-Wl,--no-as-needed",
        "-L",
        tmp_path,
        *libraries,
    ]
    subprocess.run(command, check=True)
    return tmp_path / "app"


def planned(program, *options):
    told = said("plan", program, "-L", program.parent, "--gpu", "sm_86", "--json", *options)
    assert told.error is None, told.message
    return {row["name"]: row for row in json.loads(told.out)["decisions"]}


@pytest.mark.parametrize(
    ("options", "sliced"),
    [((), {OWN}), (("--slice", "vendor"), {OWN, VENDOR}), (("--slice", "no"), set())],
)
def test_a_file_is_as_large_as_the_plan_says(options, sliced, program, tmp_path):
    plan = planned(program, *options)
    assert {name for name, row in plan.items() if row["bytes_in_bundle"] < row["bytes"]} == sliced
    out = tmp_path / "out"
    done = said("bundle", program, "-L", tmp_path, "--gpu", "sm_86", "-o", f"{out}/", "--json", *options)
    assert done.error is None, done.message
    manifest = json.loads(done.out)
    assert manifest["$schema"] == schema()["$id"]
    for name in (OWN, VENDOR):
        assert (out / "lib" / name).stat().st_size == plan[name]["bytes_in_bundle"]
        (row,) = (row for row in manifest["files"] if row["name"] == name)
        assert row["modified"] is (name in sliced)
        assert row["changes"] == (["sliced for sm_86"] if name in sliced else [])
        arches = {str(arch) for arch in read_gpu_code(out / "lib" / name).arches}
        assert arches == ({"sm_86"} if name in sliced else {"sm_70", "sm_86", "sm_90"})
    saved = sum(plan[name]["bytes"] - plan[name]["bytes_in_bundle"] for name in sliced)
    assert manifest["totals"]["saved"]["slicing"] == saved
    subprocess.run([out / "bin/app"], check=True, env={})


def test_the_table_says_what_each_step_saves(program, tmp_path):
    options = ("--gpu", "sm_86", "-o", tmp_path / "out.tar.zst")
    done = said("bundle", program, "-L", tmp_path, *options)
    assert done.error is None, done.message
    assert "saved by slicing" in done.out
    assert "saved by compressing" in done.out
    assert "(sliced for sm_86, of " in done.out


def test_what_nvidias_licence_says_is_told_before_its_files_are_changed(program, tmp_path):
    without = said("plan", program, "-L", tmp_path, "--gpu", "sm_86").out
    assert "--slice vendor tells what that means" in without
    assert "not modified in any way" not in without
    told = said("plan", program, "-L", tmp_path, "--gpu", "sm_86", "--slice", "vendor").out
    assert "not modified in any way" in told
    assert f"Files: {VENDOR}." in told


def test_a_program_with_gpu_code_is_stripped_given_its_rpath_and_then_sliced(tmp_path):
    """The file that is cut is not the one that was planned: its offsets are others."""
    library(tmp_path, OWN)
    work = tmp_path / "work"
    work.mkdir()
    parts = [member(name, cubin(name, code=bytes(range(256)) * 256)) for name in ("sm_70", "sm_86")]
    (work / "blob.bin").write_bytes(container(*parts))
    (work / "gpu.s").write_text(
        '.section .nv_fatbin,"a",%progbits\n.balign 8\n.Lf:\n.incbin "blob.bin"\n'
        '.section .nvFatBinSegment,"aw",%progbits\n.balign 8\n.long 0x466243B1, 1\n.quad .Lf, 0\n'
        '.section .note.GNU-stack,"",%progbits\n'
    )
    (work / "main.c").write_text("int answer(void);\nint main(void) { return answer() == 42 ? 0 : 1; }\n")
    command = [require("gcc"), "-g", "main.c", "gpu.s", "-o", "app", "-L", tmp_path, f"-l:{OWN}"]
    subprocess.run(command, check=True, cwd=work)
    out = tmp_path / "out"
    done = said("bundle", work / "app", "-L", tmp_path, "--gpu", "sm_86", "-o", f"{out}/", "--json")
    assert done.error is None, done.message
    (row,) = (row for row in json.loads(done.out)["files"] if row["kind"] == "executable")
    assert row["changes"] == ["stripped", "rpath $ORIGIN/../lib", "sliced for sm_86"]
    assert {str(arch) for arch in read_gpu_code(out / "bin/app").arches} == {"sm_86"}
    subprocess.run([out / "bin/app"], check=True, env={})
