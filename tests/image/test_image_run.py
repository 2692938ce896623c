"""Images run: on nothing, and on a base; and other programs find in them what dpack.json says."""

from __future__ import annotations

import json
import stat
import subprocess
from pathlib import Path

import pytest
from builders import fake_cuda
from builders.base_images import DIRECTORY, base_layout, debian
from builders.commands import CALLS
from builders.containers import podman_run, skopeo, umoci
from builders.fake_cuda import KEPT_FOR_CNN, Library, compile_greeter
from builders.layouts import read
from builders.oracle import require

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="session")
def cpu(tmp_path_factory):
    """The example that needs no CUDA."""
    folder = tmp_path_factory.mktemp("cpu")
    command = [require("make"), "-C", EXAMPLES, "cpu", "CXX=g++", f"BUILD={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "cpu"


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_podman_runs_the_cpu_example_on_nothing(compression, dpack, cpu):
    dpack("bundle", cpu, "-o", "cpu.oci.tar", "--compression", compression, "--name", "edge/cpu:1.0").done()
    out = podman_run(dpack.cwd / "cpu.oci.tar", "localhost/edge/cpu:1.0")
    assert "device         CPU, one thread" in out
    assert "accuracy" in out


def test_umoci_unpacks_what_the_manifest_says_and_it_runs(dpack, cnn, cuda):
    told = (
        dpack("bundle", cnn, "-L", cuda, "-m", "cnn", "--format", "oci", "--compression", "gzip", "--json")
        .done()
        .json
    )
    unpacked = umoci(f"{dpack.cwd}/mnist-oci:latest", dpack.cwd / "x")
    manifest = json.loads((unpacked.root / "app/dpack.json").read_text())
    assert {key: value for key, value in told.items() if key not in {"archive", "image"}} == manifest
    found = unpacked.tree
    directories = {path for path in found if (unpacked.root / path).is_dir()}
    assert {path for path in found if found[path] == "1777"} == {"tmp"}
    assert {path for path in directories if found[path] != "755"} == {"tmp"}
    files = {path: what.split()[-1] for path, what in found.items() if path not in directories}
    del files["app/dpack.json"]
    assert files == {row["path"]: row["sha256"] for row in manifest["files"]}
    runs = {row["path"] for row in manifest["files"] if row["kind"] in {"executable", "library"}}
    assert {path for path in files if found[path].startswith("755")} == runs
    beside = {path.removeprefix("app/lib/") for path in runs if path.startswith("app/lib/")}
    assert beside == KEPT_FOR_CNN | {"libgcc_s.so.1"}
    assert unpacked.run().splitlines() == ["started", *(f"{name} 7" for name in CALLS)]


def test_the_account_in_the_image_is_attached_to_it_too(dpack, plain):
    dpack("bundle", plain, "--format", "oci").done()
    found = read(dpack.cwd / "hello-oci")
    assert found.account["subject"]["digest"] == found.index["manifests"][0]["digest"]
    (content,) = found.account["layers"]
    (inside,) = [what for path, what in found.tree.items() if path == "app/dpack.json"]
    assert inside == f"644 {content['digest'].removeprefix('sha256:')}"


def loaded(unpacked):
    """Soname to path of what the loader maps for the image's program."""
    rows = [row.split() for row in unpacked.run(LD_TRACE_LOADED_OBJECTS="1").splitlines()]
    return {row[0]: row[2] for row in rows if row[1:2] == ["=>"]}


def test_on_a_base_only_what_it_lacks_is_added(dpack, greeter, slim):
    told = (
        dpack(
            "bundle", greeter, "--base", f"oci:{slim}", "--format", "oci", "--compression", "gzip", "--json"
        )
        .done()
        .json
    )
    added = {row["name"] for row in told["files"] if row["kind"] == "library"}
    assert added == {"libstdc++.so.6", "libgcc_s.so.1"}
    assert {row["name"] for row in told["host"]["libraries"]} >= {"libc.so.6"}
    assert {row["origin"]["kind"] for row in told["files"] if row["kind"] == "library"} == {"debian"}
    unpacked = umoci(f"{dpack.cwd}/greet-oci:latest", dpack.cwd / "x")
    assert unpacked.run() == "hello from the first\n"
    where = loaded(unpacked)
    assert where["libstdc++.so.6"] == "/app/bin/../lib/libstdc++.so.6"
    assert not where["libc.so.6"].startswith("/app")


def test_on_a_base_that_has_it_all_the_program_alone_is_added(dpack, greeter, full):
    told = (
        dpack(
            "bundle", greeter, "--base", f"oci:{full}:1", "--format", "oci", "--compression", "gzip", "--json"
        )
        .done()
        .json
    )
    assert [row["path"] for row in told["files"]] == ["app/bin/greet"]
    assert umoci(f"{dpack.cwd}/greet-oci:latest", dpack.cwd / "x").run() == "hello from the first\n"


def test_a_library_of_the_base_that_only_the_programs_own_path_leads_to_is_still_found(dpack):
    """Here libstdc++ and libours come into /app/lib, and libtheirs stays in /opt/theirs of the base."""
    build = dpack.cwd / "build"
    fake_cuda.compile_libraries(
        (Library("libtheirs.so.1", ("theirs",)), Library("libours.so.1", ("ours",))), build
    )
    content = (build / "libtheirs.so.1").read_bytes()
    theirs = [("opt/theirs/lib", DIRECTORY), ("opt/theirs/lib/libtheirs.so.1", content)]
    base_layout(debian("libc6"), theirs).write(dpack.cwd / "base")
    sonames = ("libtheirs.so.1", "libours.so.1")
    flags = ("-Wl,-rpath,/opt/theirs/lib",)
    app = fake_cuda.compile_program(dpack.cwd / "app", ("theirs", "ours"), build, sonames, *flags)
    (build / "libtheirs.so.1").unlink()
    told = (
        dpack(
            "bundle",
            app,
            "-L",
            "build",
            "--base",
            "oci:base",
            "--format",
            "oci",
            "--compression",
            "gzip",
            "--json",
        )
        .done()
        .json
    )
    (program,) = [row for row in told["files"] if row["kind"] == "executable"]
    assert "rpath $ORIGIN/../lib:/opt/theirs/lib" in program["changes"]
    unpacked = umoci(f"{dpack.cwd}/app-oci:latest", dpack.cwd / "x")
    assert unpacked.run().splitlines() == ["started", "theirs 7", "ours 7"]
    assert loaded(unpacked)["libtheirs.so.1"] == "/opt/theirs/lib/libtheirs.so.1"


def test_a_layer_that_another_tool_appends_makes_the_same_image(dpack, greeter, slim):
    arguments = ("bundle", greeter, "--base", f"oci:{slim}", "--compression", "none")
    dpack(*arguments, "--format", "layer", "-o", "greet.tar").done()
    beside = json.loads((dpack.cwd / "greet.tar.json").read_text())
    assert beside["digest"] == beside["diff_id"]
    image, tool = f"{dpack.cwd}/theirs:1", require("umoci")
    skopeo("copy", f"oci:{slim}:1", f"oci:{image}")
    subprocess.run([tool, "raw", "add-layer", "--image", image, dpack.cwd / "greet.tar"], check=True)
    config = json.loads(skopeo("inspect", "--config", f"oci:{image}"))
    assert config["rootfs"]["diff_ids"][-1] == beside["diff_id"]
    entrypoint = ("--clear=config.cmd", "--config.entrypoint=/app/bin/greet")
    subprocess.run([tool, "config", "--image", image, *entrypoint], check=True)
    assert umoci(image, dpack.cwd / "x").run() == "hello from the first\n"


def test_a_program_of_another_name_runs_by_its_path(dpack):
    """Names that are no image's name, nor lower case."""
    app = compile_greeter(dpack.cwd / "Greet It", "a space")
    dpack("bundle", app, "--format", "oci", "--compression", "none").done()
    unpacked = umoci(f"{dpack.cwd}/Greet It-oci:latest", dpack.cwd / "x")
    assert unpacked.run() == "hello from a space\n"
    assert stat.S_IMODE((unpacked.root / "app/bin/Greet It").stat().st_mode) == 0o755
