"""What stands in which layer, what moves when something changes, and that the same input gives the same image."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from builders.commands import CALLS, LINKED
from builders.fake_cuda import compile_greeter, compile_program
from builders.layouts import check_schema, files, plain, read
from builders.oracle import require

from packager.emit import EPOCH

CHECKOUT = Path(__file__).resolve().parents[2]


def layers(told):
    """The layers of a manifest by name."""
    return {row["name"]: row for row in told["image"]["layers"]}


def names(blob, media_type):
    """The members of a layer, in their order."""
    with tarfile.open(fileobj=io.BytesIO(plain(blob, media_type))) as tar:
        return tar.getnames()


def test_programs_share_layers_and_an_update_moves_the_last_one_alone(dpack, cnn, cuda):
    other = compile_program(dpack.cwd / "other", ("cudnnConvolutionForward",), cuda, LINKED)
    (dpack.cwd / "next").mkdir()
    update = compile_program(dpack.cwd / "next/mnist", CALLS[:2], cuda, LINKED)
    found = [
        layers(dpack("bundle", app, "-L", cuda, "-m", "cnn", "-o", f"{number}.oci.tar", "--json").done().json)
        for number, app in enumerate((cnn, other, update))
    ]
    for shared in ("vendor libraries", "other libraries"):
        assert len({each[shared]["digest"] for each in found}) == 1
        assert len({each[shared]["diff_id"] for each in found}) == 1
    assert len({each["the program"]["digest"] for each in found}) == 3
    image = read(dpack.cwd / "0.oci.tar")
    vendor, others, program = (
        set(names(image.blob(layer), layer["mediaType"])) for layer in image.manifest["layers"]
    )
    assert "app/lib/libcudnn.so.9" in vendor
    assert not {path for path in vendor if not path.startswith("app")}
    assert {"etc/ld.so.cache", "tmp", "app/lib/libgcc_s.so.1"} <= others
    assert program == {"app", "app/bin", "app/bin/mnist", "app/dpack.json"}


def test_in_one_layer_the_program_comes_last(dpack, cnn, cuda):
    dpack("bundle", cnn, "-L", cuda, "--format", "oci", "--layers", "one").done()
    image = read(dpack.cwd / "mnist-oci")
    (layer,) = image.manifest["layers"]
    order = names(image.blob(layer), layer["mediaType"])
    assert order[-3:] == ["app/bin", "app/bin/mnist", "app/dpack.json"]
    assert order.index("tmp") < order.index("app") < order.index("app/lib/libcudnn.so.9")


def test_an_image_without_gpu_libraries_asks_for_no_driver(dpack, tmp_path):
    greeter = compile_greeter(tmp_path / "greet", "the first")
    dpack("bundle", greeter, "-o", "x.oci.tar").done()
    assert "NVIDIA" not in str(read(dpack.cwd / "x.oci.tar").config)


def test_what_an_image_says_of_itself(dpack, cnn, cuda):
    dpack(
        "bundle", cnn, "-L", cuda, "-m", "cnn", "-o", "x.oci.tar", "--name", "127.0.0.1:5000/edge/mnist:2.1"
    ).done()
    image = read(dpack.cwd / "x.oci.tar")
    config = image.config["config"]
    assert config["Entrypoint"] == ["/app/bin/mnist"]
    assert config["WorkingDir"] == "/app"
    assert {"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"} < set(config["Env"])
    assert config["Labels"]["io.dpack.models"] == "cnn"
    assert [row["comment"] for row in image.config["history"]] == [
        "vendor libraries", "other libraries", "the program",
    ]  # fmt: skip
    annotations = image.manifest["annotations"]
    assert annotations["org.opencontainers.image.title"] == "mnist"
    assert annotations["io.dpack.models"] == "cnn"
    named = image.index["manifests"][0]["annotations"]
    assert named["org.opencontainers.image.ref.name"] == "2.1"
    assert named["io.containerd.image.name"] == "127.0.0.1:5000/edge/mnist:2.1"
    (row,) = json.loads(image.files["manifest.json"])
    assert row["RepoTags"] == ["127.0.0.1:5000/edge/mnist:2.1"]


def test_a_program_without_cuda_asks_for_no_gpu(dpack, plain):
    dpack("bundle", plain, "--format", "oci").done()
    assert not [pair for pair in read(dpack.cwd / "hello-oci").config["config"]["Env"] if "NVIDIA" in pair]


@pytest.mark.parametrize("base", ["scratch", "oci:base"])
def test_every_document_is_valid_by_the_specifications_schemas(base, dpack, plain, slim):
    shutil.copytree(slim, dpack.cwd / "base")
    dpack("bundle", plain, "--format", "oci", "--base", base, "--name", "edge/hello:1").done()
    image = read(dpack.cwd / "hello-oci")
    check_schema("image-layout", json.loads(image.files["oci-layout"]))
    check_schema("image-index", image.index)
    check_schema("image-manifest", image.manifest)
    check_schema("image-manifest", image.account)
    check_schema("config", image.config)
    for descriptor in image.index["manifests"]:
        check_schema("content-descriptor", descriptor)


def test_the_descriptor_of_a_layer_is_valid(dpack, plain):
    told = dpack("bundle", plain, "--format", "layer", "--json").done().json
    beside = json.loads((dpack.cwd / "hello.layer.json").read_text())
    check_schema("content-descriptor", beside)
    (row,) = told["image"]["layers"]
    assert (row["digest"], row["diff_id"], row["bytes"]) == tuple(
        beside[key] for key in ("digest", "diff_id", "size")
    )
    assert (dpack.cwd / "hello.layer").stat().st_size == beside["size"]


def test_source_date_epoch_is_the_date_of_everything(dpack, plain):
    second = 1_700_000_000
    dpack("bundle", plain, "--format", "oci").done()
    dpack("bundle", plain, "--format", "oci", "-o", "dated", SOURCE_DATE_EPOCH=str(second)).done()
    usual, dated = read(dpack.cwd / "hello-oci"), read(dpack.cwd / "dated")
    assert usual.config["created"] == "1980-01-01T00:00:00Z"
    assert dated.config["created"] == "2023-11-14T22:13:20Z"
    assert dated.manifest["annotations"]["org.opencontainers.image.created"] == "2023-11-14T22:13:20Z"
    assert {row["created"] for row in dated.config["history"]} == {"2023-11-14T22:13:20Z"}
    for image, time in ((usual, EPOCH), (dated, second)):
        for raw in image.tars:
            with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
                assert {member.mtime for member in tar} == {time}
    assert {path.stat().st_mtime for path in (dpack.cwd / "dated").rglob("*")} == {second}


def test_another_checkout_user_place_zone_locale_umask_and_fewer_cores_give_the_same_image(
    dpack, cnn, cuda, tmp_path
):
    """All at once, in a user namespace: one difference that came through would change the digests."""
    arguments = ("bundle", cnn, "-L", cuda, "-m", "cnn", "--format", "oci", "--name", "edge/mnist:1")
    dpack(*arguments, "-o", "here").done()
    checkout, elsewhere = tmp_path / "another checkout", tmp_path / "else where"
    elsewhere.mkdir()
    for name in ("packager", "recipes"):
        shutil.copytree(CHECKOUT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    moved = {name: tmp_path / "moved" / name for name in ("app", "lib")}
    for path in moved.values():
        path.mkdir(parents=True)
    shutil.copy(cnn, moved["app"] / "mnist")
    shutil.copytree(cuda, moved["lib"], dirs_exist_ok=True, symlinks=True)
    code = "import packager.cli; packager.cli.main()"
    there = ["bundle", moved["app"] / "mnist", "-L", moved["lib"], "-m", "cnn", "--format", "oci"]
    there += ["--name", "edge/mnist:1", "-o", "there"]
    command = [require("taskset"), "-c", str(min(os.sched_getaffinity(0))), require("unshare"), "--user"]
    command += [sys.executable, "-P", "-c", code, *map(str, there)]
    environment = dpack.environment | {
        "PYTHONPATH": str(checkout),
        "HOME": str(elsewhere),
        "USER": "somebody",
        "LOGNAME": "somebody",
        "TZ": "Pacific/Kiritimati",
        "LC_ALL": "tr_TR.UTF-8",
        "DPACK_CACHE": str(elsewhere / "cache"),
        "PYTHONHASHSEED": "7",
    }
    for path in (elsewhere, tmp_path, tmp_path / "scratch"):
        path.chmod(0o777)
    done = subprocess.run(
        command, cwd=elsewhere, env=environment, umask=0o077, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert files(elsewhere / "there") == files(dpack.cwd / "here")


def test_the_same_base_gives_the_same_image_whatever_it_is_called(dpack, plain, slim):
    shutil.copytree(slim, dpack.cwd / "base")
    dpack("bundle", plain, "--base", f"oci:{slim}:1", "--format", "oci", "-o", "one").done()
    dpack("bundle", plain, "--base", "oci:base", "--format", "oci", "-o", "two").done()
    assert files(dpack.cwd / "one") == files(dpack.cwd / "two")


def test_the_program_is_the_only_difference_between_two_of_a_name(dpack):
    for number in (1, 2):
        app = compile_greeter(dpack.cwd / f"v{number}" / "greet", f"version {number}")
        dpack("bundle", app, "--format", "oci", "-o", f"{number}").done()
    one, two = (read(dpack.cwd / str(number)).manifest["layers"] for number in (1, 2))
    assert one[0] == two[0]
    assert one[1] != two[1]
    sizes = sum(layer["size"] for layer in one)
    assert one[1]["size"] < sizes / 10
