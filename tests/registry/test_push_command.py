"""``dpack push`` as users call it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from layouts_in_memory import noise, simple

DPACK = Path(sys.executable).with_name("dpack")


def dpack(*arguments):
    done = subprocess.run(
        [DPACK, "push", *map(str, arguments)], capture_output=True, text=True, check=False, env=os.environ
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def layout():
    layout = simple(noise(200_000), noise(3000, 1))
    layout.artifact(layout.roots[0], b'{"sizes": 1}')
    return layout


@pytest.fixture
def folder(layout, tmp_path):
    return layout.write(tmp_path / "app")


@pytest.fixture
def archive(folder, tmp_path):
    path = tmp_path / "app.oci.tar"
    with tarfile.open(path, "w") as tar:
        tar.add(folder, arcname=".")
    return path


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_bundle_is_pushed(registry, request, layout, form):
    bundle = request.getfixturevalue(form)
    reference = f"{registry.host}/team/app:1"
    code, out, err = dpack(bundle, reference, "--plain-http", registry.host)
    assert code == 0, err
    digest = layout.roots[0].digest
    assert out.splitlines()[0] == f"{registry.host}/team/app@{digest}"
    assert out.split()[1:] == ["uploaded", "5", "blobs", "0.2", "MB"]
    assert registry.manifests["team/app", "1"][1] == layout.blobs[digest]
    assert err.count("blob ") == 5


def test_what_was_done_in_json(registry, folder, layout):
    common = (registry.host, "--plain-http", registry.host, "--json")
    dpack(folder, f"{registry.host}/base:1", *common[1:])
    _, out, _ = dpack(folder, f"{registry.host}/app:1", *common[1:], "--mount-from", "base")
    told = json.loads(out)
    assert told["digest"] == layout.roots[0].digest
    assert told["attached"] == [layout.roots[1].digest]
    assert {blob["outcome"] for blob in told["blobs"]} == {"mounted"}
    assert {blob["digest"]: blob["sizeBytes"] for blob in told["blobs"]} == {
        digest: len(content)
        for digest, content in layout.blobs.items()
        if digest not in {root.digest for root in layout.roots}
    }


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("team/app:1", "write the registry's host first: HOST/team/app:1"),
        ("h.x/app:?", "is not a tag"),
    ],
)
def test_a_wrong_reference(folder, reference, words):
    code, _, err = dpack(folder, reference)
    assert code == 2
    assert words in err


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x28\xb5\x2f\xfd....", "compressed tar of files"),
        (b"\x1f\x8b......", "compressed tar of files"),
        (b"\x7fELF....", "neither a directory nor a tar"),
        (None, "No such file"),
    ],
)
def test_what_is_no_image(tmp_path, content, words):
    bundle = tmp_path / "app.tar.zst"
    if content is not None:
        bundle.write_bytes(content)
    code, _, err = dpack(bundle, "h.x/app:1")
    assert code == 2
    assert words in err
    assert content is None or "  next: " in err


def test_a_directory_without_an_image(tmp_path):
    code, _, err = dpack(tmp_path, "h.x/app:1")
    assert code == 2
    assert "--format oci-archive" in err


def test_a_layout_that_lacks_a_blob(registry, folder):
    layers = sorted((folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    layers[-1].unlink()
    code, _, err = dpack(folder, f"{registry.host}/app:1", "--plain-http", registry.host)
    assert code == 1
    assert f"it lacks the blob sha256:{layers[-1].name}" in err


def test_an_archive_that_is_cut_off(archive):
    os.truncate(archive, archive.stat().st_size // 2)
    code, _, err = dpack(archive, "h.x/app:1")
    assert code == 1
    assert "it is cut off: it ends in blobs/sha256/" in err
    assert "copy it anew" in err


def test_what_the_registry_does_not_allow(registry, folder):
    registry.realm = f"http://{registry.host}/token"
    code, _, err = dpack(folder, f"{registry.host}/app:1", "--plain-http", registry.host)
    assert code == 1
    assert "401" in err
    assert "log in to the registry" in err
