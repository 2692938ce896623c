"""Bases as users name them, and the mistakes that they make with bases and with the forms of an image."""

from __future__ import annotations

import json
import shutil

import pytest
from builders.base_images import (
    DIRECTORY,
    SETTINGS,
    base_layout,
    debian,
    docker_archive,
    layer,
    old_c_library,
    platform_here,
)
from builders.containers import skopeo
from builders.elf import Tiny
from builders.fake_cuda import KEPT_FOR_CNN, compile_program
from builders.layouts import read

from packager.resolve.elf import read_elf

OTHER = {"linux/amd64": "linux/arm64", "linux/arm64": "linux/amd64"}.get(platform_here(), "linux/amd64")


def layers_of(name):
    return json.loads(skopeo("inspect", name))["Layers"]


@pytest.mark.parametrize("kind", ["oci", "oci-archive", "docker-archive"])
def test_the_layers_of_a_base_stand_below_and_its_settings_stay(kind, dpack, plain, slim):
    target = f"{kind}:{dpack.cwd}/base:hello/base:1"
    if kind == "oci":
        shutil.copytree(slim, dpack.cwd / "base")
        target = f"oci:{dpack.cwd}/base:1"
    else:
        skopeo("copy", f"oci:{slim}:1", target)
    told = dpack("bundle", plain, "--base", target, "--format", "oci", "--json").done().json
    image = read(dpack.cwd / "hello-oci")
    below = layers_of(target)
    digests = [each["digest"] for each in image.manifest["layers"]]
    assert told["image"]["base"] == digests[:-1]
    assert len(below) == 1
    if kind != "docker-archive":  # skopeo tells the digests that it would give to those
        assert digests[:-1] == below
    config = image.config
    assert config["config"]["User"] == SETTINGS["User"]
    assert "Cmd" not in config["config"]
    assert set(SETTINGS["Env"]) <= set(config["config"]["Env"])
    assert config["config"]["Labels"]["org.example.base"] == "yes"
    diff_ids = json.loads(skopeo("inspect", "--config", target))["rootfs"]["diff_ids"]
    assert config["rootfs"]["diff_ids"][:-1] == diff_ids
    assert image.manifest["annotations"]["org.opencontainers.image.base.digest"] == told["request"]["base"]


def test_plan_why_and_tree_tell_what_is_the_bases_and_what_is_not(dpack, greeter, slim):
    plan = dpack("plan", greeter, "--base", f"oci:{slim}").done().out
    kept, _, left = plan.partition("left to the base image and the host:")
    assert "libstdc++.so.6" in kept
    assert "the host must provide: nothing but a Linux kernel" in left
    assert "libc.so.6" in left
    assert "provided by the base image" in left
    assert "taken from here" not in plan
    story = dpack("why", greeter, "libstdc++.so.6", "--base", f"oci:{slim}").done().out
    assert "found by --root, as the base lacks it" in story
    told = dpack("tree", greeter, "--base", f"oci:{slim}", "--json").done().out
    assert "dpack-base-" not in plan + story + told
    by_name = {each["name"]: each for each in json.loads(told)["objects"]}
    assert by_name["libstdc++.so.6"]["found_by"] == "--root, as the base lacks it"
    assert by_name["libc.so.6"]["found_by"] != by_name["libstdc++.so.6"]["found_by"]


@pytest.mark.parametrize("way", ["ld.so.conf", "the program's own path"])
def test_a_library_of_another_root_brings_its_own_with_it(way, dpack, slim, cuda):
    """What is opened stands beside what opens it, which the base's directories do not lead to."""
    root = dpack.cwd / "root"
    shutil.copytree(cuda, root / "usr/lib/cuda")
    (root / "etc").mkdir()
    (root / "etc/ld.so.conf").write_text("/usr/lib/cuda\n" if way == "ld.so.conf" else "")
    flags = () if way == "ld.so.conf" else ("-Wl,-rpath,/usr/lib/cuda",)
    app = compile_program(dpack.cwd / "app", ("cudnnCreate",), cuda, ("libcudnn.so.9",), *flags)
    arguments = ("plan", app, "--root", "root", "--base", f"oci:{slim}", "-m", "cnn", "--json")
    told = dpack(*arguments).done().json
    kept = {row["name"] for row in told["decisions"] if row["action"] == "keep"}
    linked_by_other_programs = {"libcudart.so.12", "libcublas.so.12"}
    assert kept == KEPT_FOR_CNN - linked_by_other_programs | {"app"}


def test_what_neither_the_base_nor_the_root_has_is_missing(dpack, greeter, slim):
    (dpack.cwd / "empty").mkdir()
    result = dpack("plan", greeter, "--base", f"oci:{slim}", "--root", "empty")
    result.refused(1, "libstdc++.so.6: needed by greet", "the directories of --root, as the base lacks it")
    assert "dpack-base-" not in result.out + result.err


def test_a_base_that_is_too_old_is_refused_with_the_symbols(dpack, greeter):
    old = [(f"{path.rpartition('/')[0]}/libc.so.6", old_c_library(dpack.cwd)) for path in places("libc.so.6")]
    base_layout(debian("libc6"), old).write(dpack.cwd / "old")
    result = dpack("bundle", greeter, "--base", "oci:old", "--format", "oci")
    result.refused(
        1,
        "libc.so.6 of oci:old is too old",
        "greet wants GLIBC_",
        "its newest: GLIBC_2.2.5",
        "--base scratch",
    )
    assert "greet-oci" not in dpack.written


def places(name):
    """Where Debian's package of the C library has a file."""
    return [path for path, _ in debian("libc6") if path.endswith(f"/{name}")]


def test_a_base_with_musl_is_refused_before_anything_is_missed(dpack, plain):
    elf = read_elf(plain)
    loader = Tiny(machine=elf.machine.number).build()
    musl = layer((f"lib/ld-musl-{elf.machine.name}.so.1", loader))
    docker_archive(dpack.cwd / "musl.tar", musl, tags=["alpine:3"], platform=platform_here())
    dpack("bundle", plain, "--base", "docker-archive:musl.tar:alpine:3", "--format", "oci").refused(
        1,
        "hello does not start on docker-archive:musl.tar:alpine:3",
        "the base's C library: musl",
        "--base scratch",
    )


LINKS = {
    "app": ("its /app is a link to /srv/x", [("srv/x", DIRECTORY), ("app", "srv/x")]),
    "app/bin": (
        "its /app/bin is a link to /srv", [("srv/x", b""), ("app", DIRECTORY), ("app/bin", "../srv")],
    ),
    "dpack.json": (
        "its /app/dpack.json is a directory", [("app", DIRECTORY), ("app/dpack.json", DIRECTORY)],
    ),
    "the program": (
        "its /app/bin/hello is a directory", [("app/bin/hello", DIRECTORY), ("app/bin/hello/x", b"")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", LINKS)
def test_a_base_in_whose_way_the_bundle_would_be_is_refused(row, dpack, plain):
    message, entries = LINKS[row]
    base_layout(debian("libc6"), entries).write(dpack.cwd / "base")
    dpack("bundle", plain, "--base", "oci:base", "--format", "oci").refused(2, message)
    assert "hello-oci" not in dpack.written


def test_a_base_that_uses_app_too_keeps_its_files(dpack, plain):
    entries = [
        ("app", DIRECTORY),
        ("app/share", DIRECTORY),
        ("app/share/theirs", b"x"),
        ("app/bin/hello", b"old"),
    ]
    base_layout(debian("libc6"), entries).write(dpack.cwd / "base")
    dpack("bundle", plain, "--base", "oci:base", "--format", "oci").done()
    tree = read(dpack.cwd / "hello-oci").tree
    assert "app/share/theirs" in tree
    assert tree["app/bin/hello"].startswith("755 ")


def test_a_base_of_another_platform_is_refused(dpack, plain):
    base_layout(debian("libc6"), platform=OTHER).write(dpack.cwd / "foreign")
    docker_archive(dpack.cwd / "foreign.tar", layer(("x", b"")), tags=["x:1"], platform=OTHER)
    for base in ("oci:foreign", "docker-archive:foreign.tar"):
        dpack("bundle", plain, "--base", base, "--format", "oci").refused(2, OTHER, platform_here())


MISTAKES = {
    "a name without a host": (
        ("--base", "debian:12"),
        "cannot find the base debian:12",
        "HOST/REPOSITORY:TAG",
    ),
    "a path that is not there": (("--base", "./debian"), "no such file or directory", "oci:DIR"),
    "a layout that is not there": (("--base", "oci:nowhere"), "nowhere"),
    "another name in a layout": (("--base", "oci:layout:2"), "by the name 2", "oci:DIR:NAME"),
    "no registry": (("--base", "127.0.0.1:1/debian"), "127.0.0.1:1 could not be reached"),
}


@pytest.mark.parametrize("row", MISTAKES)
def test_mistakes_with_a_base(row, dpack, plain):
    arguments, *words = MISTAKES[row]
    base_layout([("x", b"")]).write(dpack.cwd / "layout")
    result = dpack("bundle", plain, *arguments, "--format", "oci")
    result.refused(result.code or 1, *words)
    assert dpack.written == {"layout"}


FORMS = {
    "a tar with its own C library": (
        ("--base", "scratch"),
        "cannot use --base scratch here",
        "--format oci-archive",
    ),
    "a directory with its own": (("--base", "scratch", "--format", "dir"), "cannot use --base scratch here"),
    "a tar in layers": (("--layers", "one"), "cannot use --layers here"),
    "a tar with a compression": (("--compression", "gzip"), "cannot use --compression here"),
    "a tar with a name": (("--name", "x:1"), "cannot use --name here"),
    "a layer with a name": (("--format", "layer", "--name", "x:1"), "it is for whole images"),
    "a layer in layers": (("--format", "layer", "--layers", "split"), "it is for whole images"),
    "a level of zstd": (("--format", "oci", "--level", "20"), "choose one from 1 to 19"),
    "a level of gzip": (
        ("--format", "oci", "--level", "10", "--compression", "gzip"),
        "choose one from 1 to 9",
    ),
    "a level of nothing": (
        ("--format", "layer", "--level", "1", "--compression", "none"),
        "leave out --level",
    ),
    "an image that is there": (("--format", "oci", "-o", "image"), "it exists already", "--force"),
    "a layer that is there": (("--format", "layer", "-o", "layer"), "cannot write layer.json", "--force"),
    "a directory of somebody": (("--format", "oci", "-o", "mine", "--force"), "not a bundle"),
}


@pytest.mark.parametrize("row", FORMS)
def test_mistakes_with_forms(row, dpack, plain):
    arguments, *words = FORMS[row]
    (dpack.cwd / "mine").mkdir()
    (dpack.cwd / "mine/file").write_text("x")
    (dpack.cwd / "image").write_text("x")
    (dpack.cwd / "layer.json").write_text("x")
    before = dpack.written
    dpack("bundle", plain, *arguments).refused(2, *words)
    assert dpack.written == before


def test_an_image_replaces_an_image_with_force_and_its_name_tells_the_form(dpack, plain):
    (dpack.cwd / "hello.oci.tar").write_text("a file")
    told = dpack("bundle", plain, "--format", "oci", "-o", "x").done().err
    digest = read(dpack.cwd / "x").index["manifests"][0]["digest"]
    assert f"image  {digest}" in told
    assert told.endswith("wrote x\n")
    dpack("bundle", plain, "-o", "hello.oci.tar").refused(2, "--force")
    again = dpack("bundle", plain, "-o", "hello.oci.tar", "--force").done().err
    assert f"image  {digest}" in again
    assert read(dpack.cwd / "hello.oci.tar").index["manifests"][0]["digest"] == digest
    assert dpack("bundle", plain, "--format", "oci", "-o", "x", "-f").done().err == told


def test_the_table_tells_what_is_added_to_a_base(dpack, plain, slim):
    result = dpack("bundle", plain, "--base", f"oci:{slim}", "--format", "oci").done()
    assert "added to the base" in result.out
    assert "the program\n" in result.err
    layer_alone = dpack("bundle", plain, "--base", f"oci:{slim}", "--format", "layer").done()
    assert "added to the base" not in layer_alone.out
    assert layer_alone.err.endswith("wrote hello.layer and hello.layer.json, its descriptor\n")
