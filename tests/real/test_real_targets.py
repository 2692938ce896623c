"""Targets on NVIDIA's own libraries: what fits, what is refused and why, and an image for another machine.

The libraries for x86_64 have code for every server and desktop GPU and for no Jetson. Those for aarch64 have code
for Thor (sm_110) and for no Jetson before it. The image for Thor is made here from a cross-compiled example and
Debian's C library for aarch64, and every step but the last only reads it: that runs its loader under qemu.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builders.oracle import missing
from emulated import Emulated
from sandbox import compile_asker, compile_driver, needing_driver

from packager.plan import Action
from packager.request import Aim
from packager.source import default_cache

DPACK = Path(sys.executable).with_name("dpack")
EXAMPLES = Path(__file__).parents[2] / "examples"
CROSS_ROOT = Path("/usr/aarch64-linux-gnu")
"""Where Debian's cross compiler has the C and C++ libraries of the target (libc6-arm64-cross and others)."""

ZLIB = ("inflate", "inflateInit2_", "inflateEnd", "deflateEnd")
"""What cuDNN wants of zlib, which no package of the cross compiler has."""


def dpack(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run dpack with an empty environment but for the package cache."""
    command = [DPACK, *arguments]
    environment = {"DPACK_CACHE": str(default_cache())}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def without_code_for(case: Any, gpu: str) -> dict[str, str]:
    """The libraries of the CNN's plan that are refused for this GPU, and the reason for each."""
    plan = case.analysis("cnn", aim=Aim(gpus=(gpu,))).plan
    return {c.what.partition(" ")[0]: c.why for c in plan.conflicts if f"runs on {gpu}" in c.what}


def only_for(case: Any, machine: str) -> None:
    """Skip the test on the sets for another machine."""
    if case.machine != machine:
        pytest.skip(f"about the libraries for {machine}")


@pytest.mark.parametrize("target", ["t4", "l4", "h100", "rtx-5090"])
def test_the_libraries_for_x86_64_fit_every_discrete_gpu(target, case):
    only_for(case, "x86_64")
    plan = case.analysis("cnn", aim=Aim(target=target)).plan
    assert plan.complete
    assert not plan.warnings
    # NVIDIA's files are not cut; what that would save is told.
    assert plan.packed_size == plan.size(Action.KEEP)
    assert sum(d.uncut for d in plan.decisions) > plan.size(Action.KEEP) // 4
    assert {d.name for d in plan.decisions if d.uncut} >= {f"libcublasLt.so.{case.cuda}", "libcudnn_ops.so.9"}


def test_no_library_of_a_server_runs_on_orin(case):
    """Each that has kernels is named with what it has, and that the GPU takes exactly its own."""
    refused = without_code_for(case, "sm_87")
    kernels = {"libcudnn_ops.so.9", "libcudnn_cnn.so.9", "libcudnn_engines_precompiled.so.9"}
    assert refused.keys() >= kernels | {f"libcublas.so.{case.cuda}", f"libcublasLt.so.{case.cuda}"}
    assert not refused.keys() & {"libcudnn.so.9", f"libcudart.so.{case.cuda}", f"libnvrtc.so.{case.cuda}"}
    for why in refused.values():
        assert "sm_80" in why
        assert "sm_87" not in why
        assert why.endswith("a Tegra GPU runs machine code of exactly its own")


def test_a_plan_for_a_jetson_is_refused_for_a_program_that_is_not(case):
    only_for(case, "x86_64")
    done = dpack("plan", case.program("cnn"), *case.options(), "--target", "jetson-orin", cwd=case.directory)
    assert done.returncode == 2
    assert "it is built for linux/amd64, not for linux/arm64" in done.stderr
    assert "aarch64-linux-gnu-g++" in done.stderr
    done = dpack("plan", case.program("cnn"), *case.options(), "--gpu", "sm_87", cwd=case.directory)
    assert done.returncode == 1
    assert "libcublas.so" in done.stderr
    assert "build the program for linux/arm64, as every Jetson is" in done.stderr


@dataclass(frozen=True, slots=True)
class Cross:
    """The CNN example built for aarch64, and the words with which it is bundled."""

    program: Path
    words: tuple[str | Path, ...]


@pytest.fixture(scope="session")
def cross(case: Any, library_set: Any) -> Cross:
    """The example, cross-compiled against the set's wheels; the cross compiler's C library is the root."""
    only_for(case, "aarch64")
    if not (CROSS_ROOT / "lib/libstdc++.so.6").exists():
        missing(f"no C++ library in {CROSS_ROOT} (libstdc++6-arm64-cross)")
    sdk, built, zlib = (case.directory / name for name in ("sdk", "built", "zlib"))
    library_set.sdk(sdk)
    compiler = case.compiler.replace("gcc", "g++")
    make = ["make", "-s", "-C", EXAMPLES, "mnist", f"CUDA={sdk}", f"BUILD={built}", f"CXX={compiler}"]
    subprocess.run(make, check=True)
    zlib.mkdir()
    source = "".join(f"int {name}(void) {{ return 0; }}\n" for name in ZLIB)
    flags = ["-shared", "-fPIC", "-nostdlib", "-Wl,-soname,libz.so.1", "-o", str(zlib / "libz.so.1")]
    subprocess.run([case.compiler, "-x", "c", "-", *flags], input=source, text=True, check=True)
    pins = [word for each in case.requirements for word in ("--require", each)]
    options = ("--model", "cnn", "--offline", *pins, "--root", CROSS_ROOT, "-L", zlib)
    return Cross(built / "mnist", (built / "mnist", *options))


def test_an_image_for_orin_is_refused_with_the_way_to_jetpacks_libraries(cross, case):
    work = case.directory / "orin"
    work.mkdir()
    done = dpack("bundle", *cross.words, "--target", "jetson-orin", "--format", "oci", cwd=work)
    assert done.returncode == 1
    for words in (
        f"libcublasLt.so.{case.cuda} has no code that runs on sm_87",
        "libcudnn_engines_precompiled.so.9 has no code that runs on sm_87",
        "it has sm_75, sm_80, ",
        "take the device's own libraries, JetPack's: --root DIR",
        "--base IMAGE",
    ):
        assert words in done.stderr
    assert not list(work.iterdir())


def test_thor_itself_supplies_what_the_image_need_not_hold(cross, case):
    """As an archive for the device, without a container: the C and C++ libraries are JetPack's."""
    done = dpack("plan", *cross.words, "--target", "jetson-thor", "--json", cwd=case.directory)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["decisions"]}
    for name in ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libcuda.so.1"):
        assert (rows[name]["action"], rows[name]["rule"]) == ("host", "hosts/jetpack7.toml"), name


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The image for Thor: its layout, and its file system as umoci unpacked it."""

    layout: Path
    root: Path

    @property
    def manifest(self) -> dict[str, Any]:
        """dpack.json as it came out of the image."""
        told: dict[str, Any] = json.loads((self.root / "app/dpack.json").read_text())
        return told

    @property
    def libraries(self) -> list[Path]:
        """The files in /app/lib."""
        return sorted((self.root / "app/lib").iterdir())


@pytest.fixture(scope="session")
def thor(cross: Cross, case: Any, peer: Any) -> Iterator[Unpacked]:
    """The image, on nothing. Its layers are not compressed, which other tests are about."""
    if os.geteuid() != 0:
        missing("umoci gives files their owner, which only root may")
    umoci, work = peer("umoci"), case.directory / "thor"
    work.mkdir()
    image = ("--target", "jetson-thor", "--format", "oci", "--compression", "none", "-o", work / "image")
    done = dpack("bundle", *cross.words, *image, cwd=work)
    assert done.returncode == 0, done.stderr
    unpack = [umoci, "unpack", "--image", f"{work}/image:latest", work / "unpacked"]
    subprocess.run(unpack, check=True, capture_output=True)
    yield Unpacked(work / "image", work / "unpacked/rootfs")
    shutil.rmtree(work)


def test_the_image_for_thor_says_what_it_is(thor):
    request = thor.manifest["request"]
    told = {key: request[key] for key in ("target", "platform", "gpus", "host", "base")}
    assert told == {
        "target": "jetson-thor",
        "platform": "linux/arm64",
        "gpus": ["sm_110"],
        "host": "jetpack7",
        "base": "scratch",
    }
    index = json.loads((thor.layout / "index.json").read_text())
    assert index["manifests"][0]["platform"] == {"architecture": "arm64", "os": "linux"}
    assert [row["name"] for row in thor.manifest["host"]["libraries"]] == ["libcuda.so.1"]


def test_the_manifest_accounts_for_every_file_of_the_image(thor, case):
    rows = {row["path"]: row for row in thor.manifest["files"]}
    files = {path.relative_to(thor.root).as_posix(): path for path in thor.root.rglob("*") if path.is_file()}
    assert files.keys() == rows.keys() | {"app/dpack.json"}
    for path, row in rows.items():
        with files[path].open("rb") as file:
            assert hashlib.file_digest(file, "sha256").hexdigest() == row["sha256"], path
    vendors = [row for row in rows.values() if row["name"] in case.libraries]
    assert len(vendors) >= 12
    assert not [row["name"] for row in vendors if row["modified"]]
    assert rows["app/bin/mnist"]["modified"]


def test_every_library_of_the_image_is_made_for_thors_machine(thor):
    """Its e_machine, in bytes 18 and 19 of an ELF file, is EM_AARCH64."""
    found = {}
    for path in thor.libraries:
        with path.open("rb") as file:
            found[path.name] = int.from_bytes(file.read(20)[18:], "little")
    assert found == dict.fromkeys(found, 183)
    assert len(found) >= 14


@pytest.fixture(scope="session")
def emulated(thor: Unpacked, case: Any, peer: Any) -> Emulated:
    """The image under qemu, with nothing else in reach."""
    asker = compile_asker(case.directory / "ask-aarch64", case.compiler)
    return Emulated(peer("bwrap"), peer("qemu-aarch64"), thor.root, asker)


def test_every_library_of_the_image_loads_under_qemu(emulated, thor):
    needing = needing_driver(thor.libraries)
    answers = emulated.ask([path.name for path in thor.libraries])
    assert {name for name, answer in answers.items() if answer != "ok"} == set(needing)
    assert all("libcuda.so.1: cannot open" in answers[name] for name in needing)


def test_with_a_driver_every_library_of_the_image_loads_and_tells_its_version(emulated, thor, case):
    driver = compile_driver(
        case.directory / "libcuda-aarch64.so", case.compiler, list(needing_driver(thor.libraries).values())
    )
    major, minor, patch = case.version("cudnn")[:3]
    runtime = case.version("cuda-runtime")
    versions = {
        "libcudnn.so.9:cudnnGetVersion": str(major * 10_000 + minor * 100 + patch),
        f"libcudart.so.{case.cuda}:cudaRuntimeGetVersion": f"0 {runtime[0] * 1000 + runtime[1] * 10} 0",
    }
    names = [path.name for path in thor.libraries]
    answers = replace(emulated, driver=driver).ask([*names, *versions])
    assert answers == dict.fromkeys(names, "ok") | versions


def test_the_program_of_the_image_starts_and_finds_no_device(emulated):
    done = emulated.run("/app/bin/mnist")
    assert done.returncode == 3, done.stderr
    assert "no CUDA device" in done.stderr


def test_the_emulated_image_holds_nothing_else(emulated):
    """The control: without the image's /app/lib there is only its C library."""
    answers = replace(emulated, without="app/lib").ask(["libstdc++.so.6", "libcudnn.so.9", "libm.so.6"])
    assert answers.pop("libm.so.6") == "ok"
    assert all("cannot open shared object file" in answer for answer in answers.values()), answers
