"""Images: every document by the specification's schema, every digest taken again, every file where it belongs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from builders.bundles import EPOCH
from builders.layouts import LAYERS, OPTIONS, base, check_schema, expected, form, image, last, read

from packager.errors import DpackError
from packager.oci.descriptor import DOCKER_LAYER_GZIP, LAYER_GZIP, Platform, digest_of
from packager.oci.documents import ACCOUNT_TYPE, docker_manifest, name_of
from packager.oci.layer import LayerSpec
from packager.oci.write import write_layer_file
from packager.registry.reference import check_name

KINDS = ["oci", "oci-archive"]
COMPRESSIONS = {"zstd": "+zstd", "gzip": "+gzip", "none": ""}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "below", [None, base({"Env": ["A=1"], "Labels": {"l": "1"}, "ExposedPorts": {"80/tcp": {}}})]
)
def test_every_document_is_valid_by_the_schemas_of_the_specification(tmp_path, kind, below):
    image(tmp_path / "out", kind, base=below)
    found = read(tmp_path / "out")
    check_schema("image-layout", json.loads(found.files["oci-layout"]))
    check_schema("image-index", found.index)
    check_schema("config", found.config)
    for manifest in (found.manifest, found.account):
        check_schema("image-manifest", manifest)
        for descriptor in (
            manifest["config"],
            *manifest["layers"],
            *([manifest["subject"]] if "subject" in manifest else []),
        ):
            check_schema("content-descriptor", descriptor)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_an_image_holds_its_entries_in_layers_by_age(tmp_path, kind, compression):
    written = image(tmp_path / "out", kind, compression)
    found = read(tmp_path / "out")
    assert found.tree == expected(written)
    assert [entry.path for entry in written.entries] == [
        "opt/app/lib/libvendor.so.9",
        "lib64", "opt/app/lib/libother.so.1", "usr/lib64/ld-linux-x86-64.so.2",
        "opt/app/bin/app", "opt/app/dpack.json",
    ]  # fmt: skip
    assert [digest_of(tar) for tar in found.tars] == found.config["rootfs"]["diff_ids"]
    assert [layer.diff_id for layer in written.layers] == found.config["rootfs"]["diff_ids"]
    suffix = COMPRESSIONS[compression]
    assert {layer["mediaType"] for layer in found.manifest["layers"]} == {
        LAYER_GZIP.removesuffix("+gzip") + suffix
    }
    blobs = {name for name in found.files if name.startswith("blobs/")}
    named = [found.manifest["config"], *found.manifest["layers"], *found.index["manifests"]]
    named += [found.account["config"], *found.account["layers"]]
    assert blobs == {f"blobs/sha256/{descriptor['digest'][7:]}" for descriptor in named}


@pytest.mark.parametrize("kind", KINDS)
def test_the_size_is_what_lies_on_the_disk(tmp_path, kind):
    written = image(tmp_path / "out", kind)
    size = (
        sum(map(len, read(tmp_path / "out").files.values()))
        if kind == "oci"
        else written.output.stat().st_size
    )
    assert written.size == size


def test_config(tmp_path):
    image(tmp_path / "out")
    config = read(tmp_path / "out").config
    assert config.pop("rootfs")["type"] == "layers"
    when = "2023-11-14T22:13:20Z"  # date -u -d @1700000000
    assert config == {
        "architecture": "amd64",
        "os": "linux",
        "created": when,
        "config": {
            "Entrypoint": ["/opt/app/bin/app"],
            "WorkingDir": "/opt/app",
            "Env": ["PATH=/usr/bin:/bin", "NVIDIA_VISIBLE_DEVICES=all"],
            "Labels": {"org.opencontainers.image.title": "app"},
        },
        "history": [
            {"created": when, "created_by": "dpack bundle app", "comment": comment}
            for comment in ("vendor libraries", "other libraries", "program")
        ],
    }


def test_annotations_and_what_refers_to_what(tmp_path):
    written = image(tmp_path / "out")
    found = read(tmp_path / "out")
    when = "2023-11-14T22:13:20Z"
    first, second = found.index["manifests"]
    assert found.manifest["annotations"] == {
        "org.opencontainers.image.created": when,
        "io.dpack.model": "cnn",
    }
    assert first["platform"] == {"os": "linux", "architecture": "amd64"}
    assert first["annotations"] == {"org.opencontainers.image.ref.name": "1.2"}
    assert first["digest"] == written.manifest.digest == found.account["subject"]["digest"]
    assert second["artifactType"] == found.account["artifactType"] == ACCOUNT_TYPE
    assert "annotations" not in second
    assert found.blob(found.account["config"]) == b"{}"
    (layer,) = found.account["layers"]
    assert layer["annotations"] == {"org.opencontainers.image.title": "dpack.json"}
    inside = found.tree["opt/app/dpack.json"].split()[1]
    assert layer["digest"] == f"sha256:{inside}"
    assert json.loads(found.blob(layer))[0][0] == "opt/app/lib/libvendor.so.9"


@pytest.mark.parametrize(
    ("name", "tag", "containerd", "docker"),
    [
        ("", "latest", None, None),
        ("app", "latest", None, "app:latest"),
        ("app:1.2", "1.2", None, "app:1.2"),
        ("edge/app", "latest", None, "edge/app:latest"),
        ("registry.example/edge/app:1.2", "1.2", *["registry.example/edge/app:1.2"] * 2),
        ("localhost:5000/app", "latest", *["localhost:5000/app:latest"] * 2),
    ],
)
def test_names(tmp_path, name, tag, containerd, docker):
    image(tmp_path / "out", options=replace(OPTIONS, name=name))
    annotations = read(tmp_path / "out").index["manifests"][0]["annotations"]
    assert annotations["org.opencontainers.image.ref.name"] == tag
    assert annotations.get("io.containerd.image.name") == containerd
    (told,) = docker_manifest(replace(OPTIONS, name=name), read(tmp_path / "out").manifest)
    assert told["RepoTags"] == ([docker] if docker else None)


def test_an_archive_tells_docker_where_its_blobs_are(tmp_path):
    image(tmp_path / "out", "oci-archive")
    found = read(tmp_path / "out")
    (told,) = json.loads(found.files["manifest.json"])
    assert [digest_of(found.files[path]) for path in told["Layers"]] == [
        d["digest"] for d in found.manifest["layers"]
    ]
    assert json.loads(found.files[told["Config"]]) == found.config
    assert told["RepoTags"] == ["app:1.2"]


def test_empty_layers_are_left_out_and_one_layer_is_enough(tmp_path):
    one = LayerSpec("everything", tuple(item for layer in LAYERS for item in layer.items))
    written = image(tmp_path / "one", layers=[LayerSpec("none", ()), one])
    assert [layer.name for layer in written.layers] == ["everything"]
    assert read(tmp_path / "one").tree == expected(written)
    assert read(tmp_path / "one").tree.keys() == expected(image(tmp_path / "split")).keys()
    written = image(tmp_path / "bare", layers=[LayerSpec("program", ())])
    assert [entry.path for entry in written.entries] == ["opt/app/dpack.json"]


def test_layers_stay_the_same_blobs_when_the_program_changes(tmp_path):
    program = LayerSpec("program", (replace(LAYERS[-1].items[0], source=b"new"),))
    old = image(tmp_path / "old")
    new = image(tmp_path / "new", layers=[*LAYERS[:-1], program])
    same = [a.descriptor == b.descriptor for a, b in zip(old.layers, new.layers, strict=True)]
    assert same == [True, True, False]


def test_a_base_comes_first_and_our_entrypoint_wins(tmp_path):
    below = base(
        {
            "Cmd": ["bash"], "Entrypoint": ["tini"], "Healthcheck": {"Test": ["CMD", "x"]}, "WorkingDir": "/srv",
            "Env": ["PATH=/base/bin", "LANG=C.UTF-8", "NVIDIA_VISIBLE_DEVICES=void"],
            "Labels": {"org.opencontainers.image.title": "tiny", "vendor": "x"}, "User": "1000",
        },
        author="someone",
        media_type=DOCKER_LAYER_GZIP,
    )  # fmt: skip
    written = image(
        tmp_path / "out", base=below, options=replace(OPTIONS, base_name="registry.example/tiny:1")
    )
    found = read(tmp_path / "out")
    assert found.config["config"] == {
        "Entrypoint": ["/opt/app/bin/app"], "WorkingDir": "/opt/app", "User": "1000",
        "Env": ["PATH=/base/bin", "LANG=C.UTF-8", "NVIDIA_VISIBLE_DEVICES=all"],
        "Labels": {"org.opencontainers.image.title": "app", "vendor": "x"},
    }  # fmt: skip
    assert found.config["author"] == "someone"
    assert [entry.get("created_by", entry.get("comment")) for entry in found.config["history"]] == [
        "debootstrap", "ENV", "libc", *["dpack bundle app"] * 3,
    ]  # fmt: skip
    assert [digest_of(tar) for tar in found.tars] == found.config["rootfs"]["diff_ids"]
    assert {layer["mediaType"] for layer in found.manifest["layers"]} == {LAYER_GZIP}
    assert found.tree.keys() == expected(written).keys() | {"etc/os-release", "usr/lib/libc.so.6"}
    assert [layer.digest for layer in written.base] == [layer.digest for layer in below.layers]
    annotations = found.manifest["annotations"]
    assert annotations["org.opencontainers.image.base.name"] == "registry.example/tiny:1"
    assert annotations["org.opencontainers.image.base.digest"] == below.descriptor.digest


def test_a_base_without_history_gets_one(tmp_path):
    below = base(history=None)
    image(tmp_path / "out", base=below)
    history = read(tmp_path / "out").config["history"]
    assert [entry.get("comment") for entry in history][:2] == [f"from {below.descriptor.digest}"] * 2
    assert len(history) == 5
    assert "tiny:1" not in str(
        {name: text for name, text in read(tmp_path / "out").files.items() if "blobs" in name}
    )


def test_a_base_in_its_own_spelling_of_the_platform(tmp_path):
    options = replace(OPTIONS, platform=Platform("linux", "arm64"))
    image(tmp_path / "out", base=base(architecture="arm64", variant="v8"), options=options)
    found = read(tmp_path / "out")
    wanted = {"os": "linux", "architecture": "arm64", "variant": "v8"}
    assert found.index["manifests"][0]["platform"] == wanted
    assert {key: found.config[key] for key in wanted} == wanted


def damaged(change):
    good = base()
    return replace(good, blobs={digest: change(blob) for digest, blob in good.blobs.items()})


@pytest.mark.parametrize(
    ("below", "message"),
    [
        (
            base(architecture="arm64"),
            "cannot build on tiny:1: it is for linux/arm64, the program is for linux/amd64",
        ),
        (base(architecture=None), "cannot read the config of tiny:1: architecture is missing"),
        (base(rootfs={"diff_ids": []}), "it lists 0 layers, and the manifest has 2 of them"),
        (base(rootfs=[]), "it does not list the layers under rootfs.diff_ids"),
        (base(rootfs={"diff_ids": ["1", "2"]}), "'1' is not a sha256 digest"),
        (base({"Env": "A=1"}), "its environment is not a list of texts"),
        (base({"Labels": ["x"]}), "its labels are not pairs of texts"),
        (replace(base(), config=b"null"), "a document in it is not a JSON object"),
        (base(media_type="application/x-foreign"), "a layer of the type application/x-foreign"),
        (damaged(lambda blob: blob[:-1]), r"cannot copy a layer of tiny:1: sha256:.* but what came are"),
        (damaged(lambda blob: blob + b"x"), "cannot copy a layer of tiny:1"),
        (damaged(lambda blob: bytes(len(blob))), "cannot copy a layer of tiny:1"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_base_that_does_not_fit_is_refused_and_nothing_is_left(tmp_path, kind, below, message):
    with pytest.raises(DpackError, match=message):
        image(tmp_path / "out", kind, base=below)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_comes_twice_is_stored_once(tmp_path, kind):
    below = base(trees=({"a": b"same"}, {"a": b"same"}))
    image(tmp_path / "out", kind, base=below)
    found = read(tmp_path / "out")
    assert len({layer["digest"] for layer in found.manifest["layers"]}) == 4
    assert len(found.config["rootfs"]["diff_ids"]) == 5
    again = image(tmp_path / "again", kind, layers=[LayerSpec("a", LAYERS[0].items), LayerSpec("b", ())])
    assert read(tmp_path / "again").tree == expected(again)


def test_a_layer_file_has_its_descriptor_beside_it(tmp_path):
    output = tmp_path / "app.layer.tar.gz"
    written = write_layer_file(output, LAYERS[1].items, last, layer_form=form(), name="all")
    told = json.loads((tmp_path / "app.layer.tar.gz.json").read_text())
    check_schema("content-descriptor", told)
    blob = output.read_bytes()
    assert told == {
        "mediaType": LAYER_GZIP,
        "digest": digest_of(blob),
        "size": len(blob),
        "diff_id": written.layer.diff_id,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == [output.name, f"{output.name}.json"]
    inside = image(tmp_path / "image", layers=[LayerSpec("all", LAYERS[1].items)])
    assert inside.layers[0].descriptor == written.layer.descriptor
    with pytest.raises(DpackError, match="it exists already"):
        write_layer_file(output, LAYERS[1].items, last, layer_form=form())


def test_the_epoch_is_the_time_of_everything(tmp_path):
    image(tmp_path / "out")
    assert {path.lstat().st_mtime for path in tmp_path.rglob("*")} == {EPOCH}


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("mnist", "mnist"),
        ("mnist-1.2_x", "mnist-1.2_x"),
        ("My App", "my-app"),
        ("_a._b--c.", "a-b-c"),
        ("né", "n"),
        ("né@v", "n-v"),
        ("É", "app"),
        ("..", "app"),
    ],
)
def test_the_name_of_a_programs_image(program, name):
    assert name_of(program) == name
    check_name(name)
