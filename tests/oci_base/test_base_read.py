"""Images are found in layouts and archives, by name and platform, and nothing is believed without its digest."""

import gzip
import json
import os

import pytest
import zstandard
from builders.base_images import (
    COMPRESSIONS,
    CONFIG,
    INDEX,
    LIBRARY,
    MANIFEST,
    Layout,
    as_json,
    digest,
    docker_archive,
    layer,
)

from packager.errors import DpackError
from packager.oci.base import open_image
from packager.oci.descriptor import Platform

AMD, ARM = Platform("linux", "amd64"), Platform("linux", "arm64")
FILES = layer(("usr/lib/libx.so.1", LIBRARY))


def two_platforms():
    layout = Layout()
    layout.add(FILES, platform="linux/amd64")
    layout.add(FILES, FILES, platform="linux/arm64/v8")
    return layout


def blobs(image):
    contents = []
    for descriptor in image.layers:
        with image.blob(descriptor) as file:
            contents.append(file.read())
    return contents


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_layout_gives_its_image(tmp_path, compression):
    layout = Layout()
    descriptor = layout.add(FILES, compression=compression)
    image = open_image(layout.write(tmp_path))
    assert image.descriptor.digest == descriptor["digest"]
    assert image.name == str(tmp_path)
    assert image.platform == AMD
    assert image.diff_ids == (digest(FILES),)
    manifest = json.loads(image.blobs.document(image.descriptor))
    assert digest(image.config) == manifest["config"]["digest"]
    assert blobs(image) == [COMPRESSIONS[compression][1](FILES)]


@pytest.mark.parametrize(
    "compress", [bytes, gzip.compress, zstandard.compress], ids=["plain", "gzip", "zstd"]
)
def test_an_archive_is_the_same_image(tmp_path, compress):
    layout = two_platforms()
    image = open_image(layout.archive(tmp_path / "image.tar", compress), ARM)
    beside = open_image(layout.write(tmp_path / "layout"), ARM)
    assert image.descriptor == beside.descriptor
    assert image.config == beside.config
    assert blobs(image) == [FILES, FILES]


def test_blobs_of_an_archive_seek_and_stay_open_beside_each_other(tmp_path):
    layout = Layout()
    layout.add(FILES, layer(("a", b"other")))
    image = open_image(layout.archive(tmp_path / "image.tar"))
    with image.blob(image.layers[0]) as one, image.blob(image.layers[1]) as other:
        assert one.seek(-4, os.SEEK_END) == len(FILES) - 4
        assert (one.read(), other.read(10)) == (FILES[-4:], layer(("a", b"other"))[:10])
        one.seek(257)
        assert one.read(5) == b"ustar"


@pytest.mark.parametrize(
    ("platform", "ref", "layers"),
    [
        (ARM, "", 2),
        (Platform("linux", "aarch64"), "", 2),
        (AMD, "", 1),
    ],
)
def test_the_platform_chooses(tmp_path, platform, ref, layers):
    assert len(open_image(two_platforms().write(tmp_path), platform, ref).layers) == layers


def test_the_name_chooses(tmp_path):
    layout = Layout()
    layout.add(FILES, ref="1.0")
    layout.add(FILES, FILES, ref="2.0")
    path = layout.write(tmp_path)
    assert len(open_image(path, ref="2.0").layers) == 2
    with pytest.raises(DpackError) as caught:
        open_image(path)
    assert caught.value.exit == 2
    assert [line.split()[-1] for line in caught.value.tried] == ["1.0", "2.0"]


def test_an_error_lists_what_is_there(tmp_path):
    path = two_platforms().write(tmp_path)
    with pytest.raises(DpackError, match="none is meant for linux/riscv64") as caught:
        open_image(path, Platform("linux", "riscv64"))
    assert [line.split()[0] for line in caught.value.tried] == ["linux/amd64", "linux/arm64"]


def test_indexes_inside_indexes_give_their_name_to_what_is_in_them(tmp_path):
    layout = Layout()
    inner = layout.blob(INDEX, layout.index([layout.add(FILES), layout.add(FILES, platform="linux/arm64")]))
    layout.manifests[:] = [inner | {"annotations": {"org.opencontainers.image.ref.name": "12"}}]
    assert open_image(layout.write(tmp_path), ARM, "12").platform == ARM


def test_artifacts_and_attestations_are_no_images(tmp_path):
    layout = Layout()
    wanted = layout.add(FILES)
    empty = layout.blob("application/vnd.oci.empty.v1+json", b"{}")
    artifact = {"schemaVersion": 2, "artifactType": "application/x", "config": empty, "layers": [empty]}
    layout.manifests.append(layout.blob(MANIFEST, as_json(artifact)))
    layout.manifests.append(layout.blob(MANIFEST, as_json(artifact | {"x": 1}), artifactType="application/x"))
    unknown = {"os": "unknown", "architecture": "unknown"}
    layout.manifests.append(layout.blob(MANIFEST, as_json(artifact | {"x": 2}), platform=unknown))
    assert open_image(layout.write(tmp_path)).descriptor.digest == wanted["digest"]


def test_a_manifest_without_a_platform_is_asked_for_it(tmp_path):
    layout = Layout()
    layout.manifests += [layout.manifest([FILES]), layout.manifest([FILES], "linux/arm64")]
    assert open_image(layout.write(tmp_path), ARM).platform == ARM


def test_indexes_that_never_end(tmp_path):
    layout = Layout()
    descriptor = layout.manifest([FILES])
    for _ in range(9):
        descriptor = layout.blob(INDEX, layout.index([descriptor]))
    layout.manifests.append(descriptor)
    with pytest.raises(DpackError, match="without an end"):
        open_image(layout.write(tmp_path))


def damaged(name, change):
    def apply(layout):
        layout.files |= {key: change(value) for key, value in layout.files.items() if name in key}

    return apply


def replaced(name, content):
    return lambda layout: layout.files.update({name: content})


def without_blob(layout):
    layout.files.pop(f"blobs/sha256/{digest(FILES)[7:]}")


def with_config(value):
    def apply(layout):
        config = layout.blob(CONFIG, as_json(value))
        layers = [layout.blob("application/vnd.oci.image.layer.v1.tar", FILES)]
        manifest = {"schemaVersion": 2, "config": config, "layers": layers}
        layout.manifests[:] = [layout.blob(MANIFEST, as_json(manifest)) | {"platform": PLATFORM}]

    return apply


PLATFORM = {"os": "linux", "architecture": "amd64"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged("blobs/", lambda content: content + b" "), "something else than its digest says"),
        (damaged("blobs/", lambda content: b"?" + content[1:]), "something else than its digest says"),
        (without_blob, "it is not there"),
        (replaced("oci-layout", b'{"imageLayoutVersion": "2.0.0"}'), "the version 2.0.0"),
        (replaced("oci-layout", b"[]"), "not a JSON object"),
        (lambda layout: layout.files.pop("oci-layout"), "no oci-layout"),
        (lambda layout: layout.manifests.clear(), "no image in it"),
        (lambda layout: layout.manifests[0].update(digest="md5:00"), "not a sha256 digest"),
        (lambda layout: layout.manifests[0].update(size=1 << 40), "a document of"),
        (lambda layout: layout.manifests[0].update(size="1"), "the size '1'"),
        (with_config(PLATFORM), "rootfs.diff_ids"),
        (with_config(PLATFORM | {"rootfs": {"diff_ids": []}}), "it lists 0 layers, and the manifest has 1"),
        (with_config(PLATFORM | {"rootfs": {"diff_ids": ["../../x"]}}), "not a sha256 digest"),
        (with_config({"rootfs": {"diff_ids": [digest(FILES)]}}), "os is missing"),
    ],
)
def test_what_is_damaged_is_refused(tmp_path, change, message):
    layout = Layout()
    layout.add(FILES)
    change(layout)
    with pytest.raises(DpackError, match=message):
        blobs(open_image(layout.write(tmp_path)))


def test_a_layer_type_that_nobody_knows_is_named(tmp_path):
    layout = Layout()
    odd = {"layers": [layout.blob("application/vnd.oci.image.layer.v1.tar+xz", b"")]}
    config = layout.blob(CONFIG, as_json(PLATFORM | {"rootfs": {"diff_ids": [digest(b"")]}}))
    layout.manifests.append(layout.blob(MANIFEST, as_json({"config": config} | odd)))
    with pytest.raises(DpackError, match=r"layer\.v1\.tar\+xz"):
        open_image(layout.write(tmp_path))


@pytest.mark.parametrize(
    ("ref", "platform"), [("", None), ("app:1", None), ("app", None), ("app:latest", AMD)]
)
def test_a_docker_archive_gives_its_image(tmp_path, ref, platform):
    other = layer(("etc/os-release", b"ID=x\n"))
    path = docker_archive(tmp_path / "saved.tar", FILES, other, FILES, tags=["app:1", "app:latest"])
    image = open_image(path, platform, ref)
    assert blobs(image) == [FILES, other, FILES]
    assert image.diff_ids == tuple(each.digest for each in image.layers)


@pytest.mark.parametrize(
    ("platform", "ref", "message"),
    [(ARM, "", "it is for linux/amd64"), (None, "app:2", "0 of its 1 images are called app:2")],
)
def test_a_docker_archive_of_something_else(tmp_path, platform, ref, message):
    path = docker_archive(tmp_path / "saved.tar", FILES, tags=["app:1"])
    with pytest.raises(DpackError, match=message):
        open_image(path, platform, ref)


def test_a_docker_archive_whose_config_has_another_name(tmp_path):
    path = docker_archive(tmp_path / "saved.tar", FILES)
    path.write_bytes(path.read_bytes().replace(b'"os": "linux"', b'"os": "LINUX"'))
    with pytest.raises(DpackError, match="its digest is"):
        open_image(path)


NO_IMAGES = {
    "empty": (b"", "neither a directory nor a tar"),
    "a script": (b"#!/bin/sh\n", "neither a directory nor a tar"),
    "compressed text": (gzip.compress(b"x" * 4000), "neither a directory nor a tar"),
    "gzip cut short": (gzip.compress(FILES)[:-40], "compression is damaged"),
    "zstd damaged": (zstandard.compress(FILES)[:8] + b"?" * 40, "compression is damaged"),
    "cut off": (layer(("a", b""), ("b", bytes(5000)))[:3000], "it is cut off: it ends in b, at 3,000 bytes"),
    "a layer": (FILES, "neither index.json nor manifest.json"),
    "an object": (layer(("manifest.json", b"{}")), "not a list"),
    "no config": (layer(("manifest.json", b"[{}]")), "no config"),
    "config elsewhere": (layer(("manifest.json", b'[{"Config": "x.json"}]')), "x.json is not in it"),
    "a circle": (layer(("manifest.json", "manifest.json")), "neither index.json"),
    "one layer": (layer(("manifest.json", b'[{"Config": "c", "Layers": "l"}]')), "something else than names"),
}


@pytest.mark.parametrize("row", NO_IMAGES)
def test_what_is_no_image(tmp_path, row):
    content, message = NO_IMAGES[row]
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DpackError, match=message):
        open_image(path)


@pytest.mark.parametrize("name", ["nothing", "empty"])
def test_where_nothing_is(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DpackError) as caught:
        open_image(tmp_path / name)
    assert caught.value.exit == 2
