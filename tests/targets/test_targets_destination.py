"""Where a bundle is to run: what the options come to, and what does not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders.elf import AARCH64
from builders.layouts import OPTIONS, image
from tiny_device import Device, said

from packager.arch import Gpu
from packager.destination import ANYWHERE, Destination, Grant, parse_platform
from packager.emit import Item
from packager.errors import EXIT_USAGE, DpackError
from packager.ground import destination_of
from packager.oci.descriptor import Platform
from packager.oci.layer import LayerSpec
from packager.recipes import load
from packager.request import Aim

RECIPES = load()


@pytest.mark.parametrize(
    ("aim", "words"),
    [
        (Aim(), ""),
        (Aim(platform="linux/arm64"), ""),
        (Aim(target="l4"), "l4: linux/amd64, sm_89"),
        (Aim(target="l40"), "l4: linux/amd64, sm_89"),
        (Aim(target="l4", gpus=("9.0", "sm_90")), "l4: linux/amd64, sm_90"),
        (Aim(target="l4", host="jammy"), "l4: linux/amd64, sm_89, Ubuntu 22.04 LTS (Jammy Jellyfish)"),
        (Aim(target="l4", platform="linux/arm64"), "l4: linux/arm64, sm_89"),
        (Aim(platform="linux/arm64", gpus=("sm_89",)), "linux/arm64, sm_89"),
        (Aim(target="jetson-orin"), "jetson-orin: linux/arm64, sm_87, JetPack 6 (L4T r36, Ubuntu 22.04)"),
        (
            Aim(target="jetson-orin", host="jetpack5"),
            "jetson-orin: linux/arm64, sm_87, JetPack 5 (L4T r35, Ubuntu 20.04)",
        ),
        (Aim(platform="linux/amd64", gpus=("8.6", "sm_90a")), "linux/amd64, sm_86, sm_90"),
    ],
)
def test_what_the_options_come_to(aim, words):
    assert destination_of(aim, RECIPES).words == words


@pytest.mark.parametrize(
    ("aim", "compression"),
    [
        (Aim(), ""),
        (Aim(target="jetson-xavier"), "gzip"),
        (Aim(target="jetson-orin"), "zstd"),
        (Aim(target="jetson-orin", host="jetpack5"), "gzip"),
        (Aim(target="l4"), "zstd"),
    ],
)
def test_layers_are_compressed_as_the_devices_engine_reads_them(aim, compression):
    assert destination_of(aim, RECIPES).compression == compression


@pytest.mark.parametrize(
    ("aim", "words"),
    [
        (Aim(target="orin"), ("unknown target 'orin'", "jetson-orin", "dpack targets")),
        (Aim(host="slackware"), ("unknown host profile 'slackware'", "dpack targets --hosts")),
        (Aim(gpus=("ampere",)), ("'ampere'", "sm_86 or 8.6")),
        (Aim(platform="arm64"), ("unknown platform 'arm64'", "linux/arm64")),
        (Aim(platform="windows/amd64"), ("unknown platform", "linux/amd64")),
        (
            Aim(target="jetson-orin", platform="linux/amd64"),
            ("jetson-orin on linux/amd64", "linux/arm64", "leave --platform out", "--gpu sm_87"),
        ),
        (
            Aim(target="jetson-orin", platform="linux/amd64"),
            (
                "jetson-orin is linux/arm64, --platform says linux/amd64",
                "leave --platform out",
                "--gpu sm_87",
            ),
        ),
        (Aim(host="l4"), ("unknown host profile 'l4'", "l4 is a target", "--target l4")),
        (Aim(target="jammy"), ("unknown target 'jammy'", "jammy is a host profile", "--host jammy")),
    ],
)
def test_what_is_not_known_is_told_with_a_way_out(aim, words):
    with pytest.raises(DpackError) as caught:
        destination_of(aim, RECIPES)
    assert caught.value.exit == EXIT_USAGE
    told = "\n".join(caught.value.lines())
    assert [word for word in words if word not in told] == []


def test_the_one_variant_of_arm64_is_arm64():
    assert parse_platform("linux/arm64/v8") == "linux/arm64"


def test_the_machine_of_the_program_is_the_platform():
    assert ANYWHERE.for_machine("aarch64", Path("app")).platform == "linux/arm64"
    assert ANYWHERE.for_machine("riscv64", Path("app")).platform == "linux/riscv64"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ("--target", "jetson-orin"),
            ("app for jetson-orin", "built for linux/amd64", "aarch64-linux-gnu-g++"),
        ),
        (
            ("--platform", "linux/arm64"),
            ("app for linux/arm64", "not for linux/arm64", "aarch64-linux-gnu-g++"),
        ),
        (("--platform", "linux/s390x"), ("app for linux/s390x", "build it for linux/s390x")),
        (("--host", "jetpack6"), ("jetpack6", "linux/amd64", "linux/arm64", "choose another host")),
    ],
)
def test_a_program_for_another_machine_is_refused(options, words, device):
    program = device.program()
    for command in ("plan", "bundle"):
        done = said(command, program, "--root", device.root, *options)
        assert done.error
        assert done.error.exit == EXIT_USAGE
        assert [word for word in words if word not in done.message] == []


def test_the_plan_says_where_it_runs(device):
    program = device.program()
    options = ("--root", device.root, "--target", "l40s", "--host", "debian-12")
    out = said("plan", program, *options).out
    assert out.splitlines()[1] == "to run on l4: linux/amd64, sm_89, Debian 12 (Bookworm)"
    assert json.loads(said("plan", program, *options, "--json").out)["destination"] == {
        "target": "l4",
        "platform": "linux/amd64",
        "gpus": ["sm_89"],
        "host": "debian-12",
        "base": None,
    }
    plain = json.loads(said("plan", program, "--root", device.root, "--json").out)["destination"]
    assert plain == {"target": None, "platform": "linux/amd64", "gpus": [], "host": None, "base": None}
    assert "to run on" not in said("plan", program, "--root", device.root).out


def test_in_a_container_a_jetson_supplies_its_driver_alone():
    device = destination_of(Aim(target="jetson-orin"), RECIPES).for_machine("aarch64", Path("app"))
    inside = device.in_an_image()
    assert device.grants("libz.so.1")
    assert inside.grants("libz.so.1") is None
    assert inside.grants("libcuda.so.1") == device.grants("libcuda.so.1")
    assert inside.offers("libc.so.6", "GLIBC_2.99") is None


@pytest.mark.parametrize("form", ["layer", "oci", "tar"])
def test_which_output_is_for_a_container(form, tmp_path):
    """A layer is for a base that is not named, unless --host says what that base has."""
    device = Device(tmp_path, AARCH64)
    device.library("libz.so.1")
    device.library("libgcc_s.so.1")  # which glibc opens, and scratch has not
    program = device.program("libz.so.1")
    common = ("bundle", program, "--root", device.root, "--no-strip", "--format", form, "--dry-run", "--json")
    for options, expected in (
        (("--target", "jetson-orin"), "host" if form == "tar" else "keep"),
        (("--target", "jetson-orin", "--host", "jammy"), "keep" if form == "oci" else "host"),
    ):
        done = said(*common, *options)
        assert not done.error, done.message
        rows = json.loads(done.out)["decisions"]
        assert {row["name"]: row["action"] for row in rows}["libz.so.1"] == expected, options


def base(device: Device, directory: Path) -> Path:
    """An image with the loader, the C library and libgpu.so of the device's root."""
    files = {
        device.interp.lstrip("/"): device.root / device.interp.lstrip("/"),
        **{
            path.relative_to(device.root).as_posix(): path
            for path in sorted(device.libraries.iterdir())
            if path.name != "libz.so.1"
        },
    }
    layer = LayerSpec("system", tuple(Item(name, 0o755, path) for name, path in files.items()))
    image(directory, layers=[layer], options=OPTIONS)
    return directory


def test_a_base_is_called_by_its_digest_wherever_it_lies(device, tmp_path):
    device.library("libown.so.1")
    device.library("libz.so.1")
    device.program("libown.so.1", "libz.so.1")
    told = []
    for name in ("one", "another"):
        plan = device.plan(base=str(base(device, tmp_path / name)), image=True)
        rows = {d.name: (d.action, d.reason, d.rule) for d in plan.decisions[1:]}
        assert rows["libown.so.1"] == ("host", "provided by the base image", "--base")
        assert rows["libz.so.1"][0] == "keep"
        told.append((rows, plan.choice.destination.base))
    assert told[0] == told[1]
    assert told[0][1].startswith("sha256:")


def test_a_base_for_another_platform_is_refused(device, tmp_path):
    device.program()
    layout = tmp_path / "base"
    arm = Platform("linux", "arm64")
    image(layout, options=OPTIONS.__class__(platform=arm, entrypoint=("/x",)))
    with pytest.raises(DpackError, match=r"none is meant for linux/amd64"):
        device.plan(base=str(layout), image=True)


def test_a_grant_of_a_profile_names_the_package_and_the_recipe():
    host = RECIPES.host("debian-12").on("linux/amd64")
    there = Destination(platform="linux/amd64", gpus=(Gpu.of("8.6"),), host=host)
    assert there.grants("libz.so.1", ["ZLIB_1.2.9"]) == Grant(
        "Debian 12 (Bookworm), zlib1g 1:1.2.13.dfsg-1", "hosts/debian-12.toml"
    )
    assert there.grants("libz.so.1", ["ZLIB_1.2.99"]) is None
    assert there.grants("libnowhere.so.1") is None
    assert there.offers("libc.so.6", "GLIBC_2.36") is True
    assert there.offers("libc.so.6", "GLIBC_2.37") is False
    assert there.offers("libnowhere.so.1", "V_1") is None
