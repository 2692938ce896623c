from __future__ import annotations

from dataclasses import replace

import mnist_plan as sample
import pytest

from packager.account.requirements import Floor, HostLibrary, Marker, requirements
from packager.plan import Action, Decision, Plan
from packager.resolve.elf import VersionNeed


def wanting(*versions: str, name: str = "libx.so.1") -> Decision:
    o = sample.library(name, 1)
    o = replace(o, elf=replace(o.elf, versions=(VersionNeed("libc.so.6", versions),)))
    return sample.keep(o, (sample.needed(sample.PROGRAM, o),), "needed by mnist")


def program_with(*others: Decision) -> Plan:
    o = replace(sample.PROGRAM_OBJECT, elf=replace(sample.PROGRAM_OBJECT.elf, versions=()))
    base = sample.mnist()
    return replace(base, decisions=(sample.keep(o, (), "the program itself"), *others))


@pytest.mark.parametrize(
    ("versions", "which", "floor"),
    [
        (("GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.4"), "glibc", "2.34"),
        (("GLIBC_2.2.5",), "glibc", "2.2.5"),
        (("GLIBC_2.3", "GLIBC_2.3.4"), "glibc", "2.3.4"),
        (("GLIBC_PRIVATE",), "glibc", None),
        (("GLIBC_2.17", "GLIBC_ABI_DT_RELR"), "glibc", "2.36"),
        (("GLIBC_2.38", "GLIBC_ABI_DT_RELR"), "glibc", "2.38"),
        (("GLIBCXX_3.4.9", "GLIBCXX_3.4.30"), "glibcxx", "3.4.30"),
        (("GLIBCXX_3.4.30",), "glibc", None),
        (("CXXABI_1.3.13", "CXXABI_1.3.9", "CXXABI_FLOAT128"), "cxxabi", "1.3.13"),
        (("NOT_GLIBC_9.9", "9.9", ""), "glibc", None),
    ],
)
def test_the_floor_is_the_highest_version_by_number(versions, which, floor):
    found = getattr(requirements(program_with(wanting(*versions))), which)
    assert (found and found.version) == floor


def test_a_floor_names_every_file_that_wants_it():
    plan = program_with(
        wanting("GLIBC_2.34", name="b.so"),
        wanting("GLIBC_2.34", name="a.so"),
        wanting("GLIBC_2.5", name="c.so"),
    )
    assert requirements(plan).glibc == Floor("2.34", ("a.so", "b.so"), bundled=False)


def test_only_kept_files_count():
    needs = requirements(sample.mnist())
    assert needs.glibc == Floor("2.34", ("mnist",), bundled=False)
    assert needs.markers == ()
    assert needs.cxxabi is None


def test_versions_without_a_number_are_markers():
    plan = program_with(wanting("GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "CXXABI_FLOAT128", "GLIBC_2.1"))
    assert requirements(plan).markers == (
        Marker("GLIBC_ABI_DT_RELR", ("libx.so.1",)),
        Marker("GLIBC_PRIVATE", ("libx.so.1",)),
    )


def test_a_bundled_libstdcxx_is_said_to_be():
    plan = program_with(wanting("GLIBCXX_3.4.30", "CXXABI_1.3"), wanting("GLIBC_2.36", name="libstdc++.so.6"))
    needs = requirements(plan)
    assert needs.glibcxx == Floor("3.4.30", ("libx.so.1",), bundled=True)
    assert needs.cxxabi == Floor("1.3", ("libx.so.1",), bundled=True)
    assert needs.glibc == Floor("2.36", ("libstdc++.so.6",), bundled=False)


def test_the_host_provides_the_driver_the_loader_and_the_c_library():
    needs = requirements(sample.mnist())
    assert (needs.machine, needs.loader) == ("x86_64", "/lib64/ld-linux-x86-64.so.2")
    assert needs.driver == ("libcuda.so.1",)
    assert needs.libraries == (
        HostLibrary(
            "libc.so.6",
            "C library",
            "provided by the host (GNU C library)",
            "libraries/glibc.toml",
            ("mnist",),
        ),
        HostLibrary(
            "libcuda.so.1",
            "driver",
            "provided by the host (NVIDIA driver); not seen here",
            "libraries/driver.toml",
            ("libcudart.so.12",),
        ),
    )


def test_a_static_program_needs_no_loader():
    o = replace(sample.PROGRAM_OBJECT, elf=replace(sample.PROGRAM_OBJECT.elf, interp=None, versions=()))
    needs = requirements(Plan(sample.mnist().choice, (sample.keep(o, (), "the program itself"),)))
    assert (needs.loader, needs.glibc, needs.libraries, needs.driver) == (None, None, (), ())


def test_a_plan_begins_with_a_program():
    nothing = Decision(Action.HOST, "libcuda.so.1", "provided by the host", "", 0)
    with pytest.raises(ValueError, match="begins with the program"):
        requirements(Plan(sample.mnist().choice, (nothing,)))
