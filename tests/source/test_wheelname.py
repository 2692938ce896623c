from __future__ import annotations

from dataclasses import dataclass

import pytest
from local_index import wheel_file
from packaging.specifiers import SpecifierSet

from packager.source.wheelname import WheelName, best, parse, pinned


@dataclass(frozen=True)
class Offer:
    wheel: WheelName
    yanked: bool = False


def offers(*files):
    """Offers from file names; a "!" before one marks it as yanked."""
    return [Offer(parse(file.lstrip("!")), file.startswith("!")) for file in files]


@pytest.mark.parametrize(
    ("tag", "machine", "floor"),
    [
        ("manylinux_2_27_x86_64", "x86_64", (2, 27)),
        ("manylinux_2_27_x86_64", "aarch64", None),
        ("manylinux_2_27_aarch64", "arm64", (2, 27)),
        ("manylinux1_x86_64", "x86_64", (2, 5)),
        ("manylinux2010_x86_64", "x86_64", (2, 12)),
        ("manylinux2014_aarch64", "aarch64", (2, 17)),
        ("manylinux2014_x86_64.manylinux_2_17_x86_64", "x86_64", (2, 17)),
        ("manylinux_2_28_x86_64.manylinux_2_17_x86_64", "x86_64", (2, 17)),
        ("linux_aarch64", "aarch64", (99, 0)),
        ("any", "x86_64", (0, 0)),
        ("win_amd64", "x86_64", None),
        ("musllinux_1_2_x86_64", "x86_64", None),
        ("macosx_11_0_arm64", "aarch64", None),
    ],
)
def test_the_glibc_floor_of_a_platform_tag(tag, machine, floor):
    assert parse(wheel_file(tag=tag)).floor(machine) == floor


@pytest.mark.parametrize("file", ["demo-1.0.tar.gz", "demo.whl", "demo-x.y-py3-none-any.whl", "index.html"])
def test_other_files_are_not_wheels(file):
    assert parse(file) is None


A1 = wheel_file(version="1.9")
A2 = wheel_file(version="1.10")
LOW = wheel_file(version="1.10", tag="manylinux2014_x86_64")
PLAIN = wheel_file(version="1.10", tag="linux_x86_64")
RC = wheel_file(version="2.0rc1")
ARM = wheel_file(version="3.0", tag="manylinux_2_17_aarch64")
CP = wheel_file(version="4.0", python="cp311-cp311")
BUILD = A2.replace("-1.10-", "-1.10-7-")


@pytest.mark.parametrize(
    ("files", "specifier", "chosen"),
    [
        ((A1, A2), "", A2),
        ((A2, A1), "", A2),
        ((A1, A2), "<1.10", A1),
        ((A1, A2), "==1.9", A1),
        ((A1, A2), "==1.*", A2),
        ((A2, LOW, PLAIN), "", LOW),
        ((PLAIN,), "", PLAIN),
        ((A2, BUILD), "", BUILD),
        ((A1, RC), "", A1),
        ((A1, RC), "==2.0rc1", RC),
        ((RC,), "", None),
        ((RC,), ">=1", None),
        ((A1, f"!{A2}"), "", A1),
        ((A1, f"!{A2}"), "==1.10", A2),
        ((A1, f"!{A2}"), "===1.10", A2),
        ((A1, f"!{A2}"), "==1.10.*", None),
        ((A1, f"!{A2}"), ">=1.10", None),
        ((A1, ARM), "", A1),
        ((ARM,), "", None),
        ((A1, CP), "", A1),
        ((CP,), "==4.0", None),
        ((), "", None),
    ],
)
def test_the_best_wheel(files, specifier, chosen):
    found = best(offers(*files), SpecifierSet(specifier), "x86_64")
    assert (found.wheel.file if found else None) == chosen


@pytest.mark.parametrize(
    ("specifier", "answer"),
    [
        ("==1.0", True),
        ("===1.0", True),
        ("==1.*", False),
        (">=1,<2", False),
        ("", False),
        (">=1,==1.2", True),
    ],
)
def test_a_pin_allows_one_version(specifier, answer):
    assert pinned(SpecifierSet(specifier)) is answer
