"""Other programs read our images, and find in them what we say is there."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from builders.bundles import EPOCH
from builders.layouts import LAYERS, expected, image, read, told
from builders.oracle import missing, require

from packager.oci.layer import LayerSpec

KINDS = ["oci", "oci-archive"]


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def copy(*arguments):
    run(require("skopeo"), "--insecure-policy", "copy", *arguments)


def tree(root):
    found = {}
    for path in root.rglob("*"):
        status = path.lstat()
        link = str(path.readlink()) if path.is_symlink() else ""
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
        found[path.relative_to(root).as_posix()] = told(
            stat.S_IMODE(status.st_mode), content, link, directory=stat.S_ISDIR(status.st_mode)
        )
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_skopeo_inspects_what_we_wrote(tmp_path, kind, compression):
    written = image(tmp_path / "out", kind, compression)
    name = f"{kind}:{tmp_path}/out:1.2"
    seen = json.loads(run(require("skopeo"), "inspect", name))
    assert seen["Digest"] == written.manifest.digest
    assert seen["Layers"] == [layer.descriptor.digest for layer in written.layers]
    assert (seen["Os"], seen["Architecture"], seen["Created"]) == ("linux", "amd64", "2023-11-14T22:13:20Z")
    config = json.loads(run("skopeo", "inspect", "--config", name))
    assert config["config"]["Entrypoint"] == ["/opt/app/bin/app"]
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in written.layers]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_skopeo_copies_an_image_and_its_digest_stays(tmp_path, kind, compression):
    written = image(tmp_path / "out", kind, compression)
    copy("--preserve-digests", f"{kind}:{tmp_path}/out:1.2", f"oci:{tmp_path}/copied:1.2")
    copy("--preserve-digests", f"oci:{tmp_path}/copied:1.2", f"oci-archive:{tmp_path}/again.tar:1.2")
    for name in ("copied", "again.tar"):
        found = read(tmp_path / name)
        assert found.index["manifests"][0]["digest"] == written.manifest.digest
        assert found.tree == expected(written)


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_an_archive_is_one_of_dockers_too(tmp_path, compression):
    """`docker load` before Docker 25 goes by manifest.json, as skopeo's docker-archive does."""
    written = image(tmp_path / "out", "oci-archive", compression)
    copy(f"docker-archive:{tmp_path}/out:app:1.2", f"oci:{tmp_path}/copied:1.2")
    found = read(tmp_path / "copied")
    assert found.config == read(tmp_path / "out").config
    assert found.tree == expected(written)


def test_umoci_unpacks_the_tree_that_the_manifest_tells(tmp_path):
    if os.geteuid() != 0:
        missing("umoci gives files their owner, which only root may")
    written = image(tmp_path / "out", "oci", "gzip")
    run(require("umoci"), "unpack", "--image", f"{tmp_path}/out:1.2", str(tmp_path / "bundle"))
    root = tmp_path / "bundle" / "rootfs"
    assert tree(root) == expected(written)
    rows = json.loads((root / "opt/app/dpack.json").read_text())
    assert sorted(row[0] for row in rows) == sorted(
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if path.is_symlink() or (path.is_file() and path.name != "dpack.json")
    )
    runtime = json.loads((tmp_path / "bundle" / "config.json").read_text())
    assert runtime["process"]["args"] == ["/opt/app/bin/app"]
    assert runtime["process"]["cwd"] == "/opt/app"
    assert "NVIDIA_VISIBLE_DEVICES=all" in runtime["process"]["env"]


@pytest.mark.parametrize(
    "reader", [["tar", "-x"], ["bsdtar", "-x", "-f", "-"], ["busybox", "tar", "-x", "-f", "-"]]
)
@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_tars_read_the_layers(tmp_path, reader, compression):
    written = image(tmp_path / "out", "oci", compression)
    into = tmp_path / "into"
    into.mkdir()
    tool = require({"gzip": "gzip", "zstd": "zstd"}[compression])
    for layer in written.layers:
        blob = (tmp_path / "out" / "blobs" / "sha256" / layer.descriptor.hex).read_bytes()
        tar = subprocess.run([tool, "-dc"], input=blob, capture_output=True, check=True).stdout
        command = [require(reader[0]), *reader[1:], *(["-p"] if reader[0] != "busybox" else [])]
        subprocess.run(command, cwd=into, input=tar, check=True, umask=0o022)
    assert tree(into) == expected(written)
    assert {path.lstat().st_mtime for path in into.rglob("*") if path.is_file()} == {EPOCH}


def test_a_layer_of_many_gzip_members_is_whole_for_gos_reader(tmp_path):
    """Docker, containerd, podman and umoci read gzip with Go's library: here umoci, with a layer of 5 members."""
    if os.geteuid() != 0:
        missing("umoci gives files their owner, which only root may")
    large = replace(LAYERS[0].items[0], source=os.urandom(4_500_000))
    written = image(tmp_path / "out", layers=[LayerSpec("large", (large,))])
    assert written.layers[0].descriptor.size > 4_500_000
    run(require("umoci"), "unpack", "--image", f"{tmp_path}/out:1.2", str(tmp_path / "bundle"))
    assert tree(tmp_path / "bundle" / "rootfs") == expected(written)


@pytest.mark.parametrize("compression", ["zstd", "gzip"])
def test_podman_loads_an_archive(tmp_path, compression):
    written = image(tmp_path / "out", "oci-archive", compression)
    with tempfile.TemporaryDirectory() as short:  # podman's runroot has at most 50 characters
        podman = [require("podman"), "--root", f"{short}/r", "--runroot", short, "--storage-driver", "vfs"]
        probe = subprocess.run([*podman, "info"], capture_output=True, text=True, check=False)
        if probe.returncode:
            missing(f"podman does not work here: {probe.stderr}")
        run(*podman, "load", "--input", str(tmp_path / "out"))
        (seen,) = json.loads(run(*podman, "image", "inspect", "app:1.2"))
    assert seen["Id"] == written.config.hex
    assert seen["RootFS"]["Layers"] == [layer.diff_id for layer in written.layers]
    assert [entry["comment"] for entry in seen["History"]] == [layer.name for layer in LAYERS]


MEASURED = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from builders.layouts import image
from packager.emit import Item
from packager.oci.layer import LayerSpec
specs = [LayerSpec("large", (Item("opt/large", 0o755, Path(sys.argv[2])),))]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for form, compression in (("oci", "gzip"), ("oci-archive", "zstd")):
    image(Path(sys.argv[3]) / form, form, compression, layers=specs)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_does_not_grow_with_the_image(tmp_path):
    source = tmp_path / "large"
    with source.open("wb") as file:
        file.write(os.urandom(40_000_000))
        file.truncate(300_000_000)
    tests = str(Path(__file__).parent.parent)
    grown = int(run(sys.executable, "-c", MEASURED, tests, str(source), str(tmp_path)))
    assert grown < 150_000, "kilobytes"
