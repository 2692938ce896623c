"""What the system at the target has is left to it, where it is new enough; what it has too old is told."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from builders.elf import AARCH64
from builders.oracle import require
from tiny_device import Device, fates, said

from packager.plan import Action, Plan

KEEP, HOST = Action.KEEP, Action.HOST
CXX, GCC, Z, C = "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libc.so.6"


def linked(device: Device, library: str, *versions: str) -> None:
    """A program that wants these versions of the library, which the root has."""
    if library != C:
        device.library(library)
    needed = () if library == C else (library,)
    device.program(*needed, versions=((library, versions),) if versions else ())


@pytest.mark.parametrize(
    ("host", "library", "versions", "fate"),
    [
        ("", Z, ("ZLIB_1.2.9",), KEEP),
        ("debian-12", Z, (), HOST),
        ("debian-12", Z, ("ZLIB_1.2.9", "ZLIB_1.2.12"), HOST),
        ("debian-12", Z, ("ZLIB_1.2.13",), KEEP),
        ("bookworm", Z, ("ZLIB_1.2.9",), HOST),
        ("debian-12", CXX, ("GLIBCXX_3.4.30", "CXXABI_1.3.13"), HOST),
        ("debian-12", CXX, ("GLIBCXX_3.4.9",), HOST),
        ("debian-12", CXX, ("GLIBCXX_3.4.31",), KEEP),
        ("debian-12", CXX, ("CXXABI_1.3.14",), KEEP),
        ("debian-13", CXX, ("GLIBCXX_3.4.33",), HOST),
        ("debian-12", GCC, ("GCC_3.0", "GCC_4.2.0"), HOST),
        ("ubuntu-20.04", GCC, ("GCC_12.0.0",), KEEP),
        ("debian-12", "libodd.so.1", (), KEEP),
        ("distroless-base-debian12", CXX, ("GLIBCXX_3.4",), KEEP),
        ("distroless-cc-debian12", CXX, ("GLIBCXX_3.4",), HOST),
    ],
)
def test_what_the_host_has_is_left_to_it_where_it_is_new_enough(host, library, versions, fate, device):
    linked(device, library, *versions)
    plan = device.plan(host=host)
    assert fates(plan)[library] is fate
    assert not plan.conflicts


@pytest.mark.parametrize(
    "host", ["ubuntu-20.04", "ubuntu-24.04", "jetpack5", "jetpack6", "jetpack7", "debian-13"]
)
def test_libgcc_of_arm64_has_a_version_of_glibcs_name(host, tmp_path):
    """__register_frame has it there, in every build of GCC: libcudnn_engines_tensor_ir of cuDNN 9.28 wants it."""
    device = Device(tmp_path, AARCH64)
    linked(device, GCC, "GCC_4.2.0", "GLIBC_2.0")
    assert fates(device.plan(host=host))[GCC] is HOST


def test_the_plan_names_the_profile_the_package_and_the_recipe(device):
    linked(device, Z, "ZLIB_1.2.9")
    out = said("plan", device.directory / "app", "--root", device.root, "--host", "debian-12").out
    row = next(line for line in out.splitlines() if Z in line)
    assert "provided by Debian 12 (Bookworm), zlib1g 1:1.2.13.dfsg-1" in row
    assert row.endswith("[hosts/debian-12.toml]")
    assert row in out.partition("left to the host:")[2]


def test_what_the_host_supplies_need_not_be_here(device):
    """Planning for another system than this one: its zlib is on the target alone."""
    device.program(Z, versions=((Z, ("ZLIB_1.2.9",)),))
    assert [miss.name for miss in device.plan().misses] == [Z]
    plan = device.plan(host="debian-12")
    assert plan.complete
    row = next(d for d in plan.decisions if d.name == Z)
    assert (row.action, row.rule) == (HOST, "hosts/debian-12.toml")
    assert "not seen here" in row.reason


def test_include_overrules_the_host(device):
    linked(device, Z, "ZLIB_1.2.9")
    out = said(
        "plan", device.directory / "app", "--root", device.root, "--host", "debian-12", "--include", Z
    ).out
    assert f"asked for with --include {Z}" in out


@pytest.mark.parametrize(("wanted", "fate"), [("GLIBCXX_3.4.30", HOST), ("GLIBCXX_3.4.31", KEEP)])
def test_what_the_hosts_own_libraries_want_counts_only_where_they_are_bundled(wanted, fate, device):
    """This machine's libstdc++ wants a newer libgcc_s than Debian 12 has: that matters only if it goes along."""
    device.library(CXX, needed=(GCC,), versions=((GCC, ("GCC_14.0.0",)),))
    device.library(GCC)
    device.program(CXX, GCC, versions=((CXX, (wanted,)), (GCC, ("GCC_3.0",))))
    found = fates(device.plan(host="debian-12"))
    assert (found[CXX], found[GCC]) == (fate, fate)


def too_old(plan: Plan) -> list[tuple[str, str]]:
    return [(conflict.what, conflict.why) for conflict in plan.conflicts]


def test_a_c_library_that_is_too_old_is_a_conflict_oldest_version_first(device):
    device.library("libnew.so.1", versions=((C, ("GLIBC_2.38", "GLIBC_2.4", "GLIBC_2.100")),))
    device.program("libnew.so.1", versions=((C, ("GLIBC_2.34",)),))
    plan = device.plan(host="ubuntu-20.04")
    assert too_old(plan) == [
        (
            "libc.so.6 of Ubuntu 20.04 LTS (Focal Fossa) is too old",
            "app wants GLIBC_2.34; libnew.so.1 wants GLIBC_2.38, GLIBC_2.100",
        )
    ]
    assert (
        not device.plan(host="debian-13").conflicts or "2.100" in too_old(device.plan(host="debian-13"))[0][1]
    )
    ways = plan.conflicts[0].ways
    assert "build app on a system as old as Ubuntu 20.04" in ways[0]
    assert "--host NAME" in ways[1]
    assert "--base scratch" in ways[2]


def test_a_marker_that_the_c_library_does_not_have_is_a_conflict(device):
    linked(device, C, "GLIBC_ABI_DT_RELR")
    assert too_old(device.plan(host="ubuntu-22.04"))
    assert not too_old(device.plan(host="debian-12"))


def test_a_library_that_stays_at_home_wants_nothing_of_the_target(device):
    """Left out or the host's own, it is not there to be refused."""
    device.library("libnew.so.1", versions=((C, ("GLIBC_2.99",)),))
    device.program("libnew.so.1")
    assert too_old(device.plan(host="debian-12"))
    out = said(
        "plan", device.directory / "app", "--root", device.root, "--host", "debian-12", "--exclude", "libnew*"
    )
    assert out.error is None


OLD_HOST = """\
schema = 1
[host]
name = "ancient"
title = "Ancient Linux"
about = "A C library from before this machine's oldest symbols"
platforms = ["linux/amd64", "linux/arm64"]
read = "2026-11-21"
evidence = "made up"
[[package]]
name = "libc6"
version = "1.0"
sonames = ["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
versions = ["GLIBC_1.0", "GLIBC_PRIVATE"]
"""


@pytest.mark.parametrize("command", ["plan", "bundle"])
def test_a_real_program_that_is_too_new_is_refused_with_its_symbols(command, tmp_path):
    """Compiled here, so that the versions of its symbols are a linker's."""
    program = tmp_path / "hello"
    source = '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n'
    build = [require("gcc"), "-O1", "-x", "c", "-", "-o", str(program)]
    subprocess.run(build, input=source, text=True, check=True)
    recipes = tmp_path / "recipes/hosts/ancient.toml"
    recipes.parent.mkdir(parents=True)
    recipes.write_text(OLD_HOST)
    output = ("--output", tmp_path / "out.tar.zst") if command == "bundle" else ()
    done = said(command, program, "--recipes", tmp_path / "recipes", "--host", "ancient", *output)
    assert done.error
    assert done.error.exit == 1
    first = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}[platform.machine()]
    for words in (
        "libc.so.6 of Ancient Linux is too old",
        f"hello wants {first} (",
        "puts",
        "build hello on",
    ):
        assert words in done.message
    assert not Path(tmp_path / "out.tar.zst").exists()


LISTS = """\
lib, /usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1.1
lib, /usr/lib/aarch64-linux-gnu/libown.so.1.2.3
dir, /lib/firmware
perhaps, /usr/lib/libz.so.1
"""


@pytest.fixture
def jetson(tmp_path: Path) -> Device:
    """A program for aarch64 that needs libown and libz."""
    device = Device(tmp_path, AARCH64)
    for soname in ("libown.so.1", Z):
        device.library(soname)
    device.program("libown.so.1", Z)
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists/drivers.csv").write_text(LISTS)
    return device


def test_what_the_lists_of_a_jetson_have_is_the_devices(jetson):
    plan = jetson.plan(host_csv=jetson.directory / "lists")
    assert fates(plan)[Z] is KEEP
    row = next(d for d in plan.decisions if d.name == "libown.so.1")
    path = "/usr/lib/aarch64-linux-gnu/libown.so.1.2.3"
    assert (row.action, row.reason, row.rule) == (HOST, f"provided by the device, {path}", "--host-csv")
    assert plan.warnings == (
        "drivers.csv:4: perhaps, /usr/lib/libz.so.1 (passed over, as the container runtime does)",
    )


def test_lists_add_to_the_profile_of_the_target(jetson):
    plan = jetson.plan(target="jetson-orin", host_csv=jetson.directory / "lists")
    assert {name: fate for name, fate in fates(plan).items() if name in {Z, "libown.so.1"}} == {
        Z: HOST,
        "libown.so.1": HOST,
    }
    assert plan.choice.destination.words.endswith("its container runtime's lists")


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_lists_that_are_none_are_refused(name, jetson):
    (jetson.directory / "empty").mkdir()
    done = said(
        "plan", jetson.directory / "app", "--root", jetson.root, "--host-csv", jetson.directory / name
    )
    assert done.error
    assert done.error.exit == 2
    assert "/etc/nvidia-container-runtime/host-files-for-container.d" in done.message


def test_without_a_destination_versions_decide_nothing(device):
    device.library(CXX, needed=(GCC,), versions=((GCC, ("GCC_14.0.0",)),))
    device.library(GCC)
    device.program(CXX, versions=((CXX, ("GLIBCXX_3.4.30",)),))
    plan = device.plan()
    assert (fates(plan)[CXX], fates(plan)[GCC]) == (KEEP, KEEP)
    assert not plan.conflicts
