"""Images go to a registry and come from one, by dpack and by skopeo, crosswise."""

from __future__ import annotations

import json

from builders.containers import skopeo, umoci
from builders.layouts import read

HTTP = "--tls-verify=false"


def test_a_base_from_a_registry_and_the_image_back_to_it(dpack, greeter, slim, registry):
    """The base is pushed by skopeo and pulled by dpack, the image pushed by dpack and pulled by skopeo."""
    host = registry.host
    skopeo("copy", "--dest-tls-verify=false", f"oci:{slim}:1", f"docker://{host}/base:12")
    told = dpack(
        "bundle", greeter, "--base", f"{host}/base:12", "--plain-http", host, "--compression", "gzip",
        "--format", "oci", "--name", "edge/greet:1.0", "--json",
    ).done().json  # fmt: skip
    annotations = read(dpack.cwd / "greet-oci").manifest["annotations"]
    assert annotations["org.opencontainers.image.base.name"] == f"{host}/base:12"
    assert annotations["org.opencontainers.image.base.digest"] == told["request"]["base"]
    push = ("push", "greet-oci", f"{host}/edge/greet:1.0", "--plain-http", host, "--json")
    pushed = dpack(*push).done().json
    assert pushed["digest"] == told["image"]["digest"]
    assert {row["digest"] for row in pushed["blobs"] if row["outcome"] == "mounted"} == set(
        told["image"]["base"]
    )
    again = dpack(*push).done().json
    assert {row["outcome"] for row in again["blobs"]} == {"skipped"}
    name = f"docker://{host}/edge/greet:1.0"
    seen = json.loads(skopeo("inspect", HTTP, name))
    assert seen["Digest"] == told["image"]["digest"]
    assert seen["Layers"] == [*told["image"]["base"], *(row["digest"] for row in told["image"]["layers"])]
    skopeo("copy", "--src-tls-verify=false", name, f"oci:{dpack.cwd}/back:1.0")
    assert umoci(f"{dpack.cwd}/back:1.0", dpack.cwd / "x").run() == "hello from the first\n"
    attached = json.loads(
        skopeo("inspect", HTTP, "--raw", f"docker://{host}/edge/greet@{pushed['attached'][0]}")
    )
    assert attached["subject"]["digest"] == told["image"]["digest"]


def test_an_image_that_skopeo_pushed_is_a_base_for_dpack(dpack, plain, greeter, registry):
    """And with it the one that dpack pushed: the same digest, by either way."""
    host, http = registry.host, ("--plain-http", registry.host)
    first = dpack("bundle", greeter, "-o", "first.oci.tar", "--json").done().json["image"]["digest"]
    archive = f"oci-archive:{dpack.cwd}/first.oci.tar:latest"  # the account is in its index, too
    preserved = ("--preserve-digests", "--dest-tls-verify=false")
    skopeo("copy", *preserved, archive, f"docker://{host}/by/skopeo:1")
    dpack("push", "first.oci.tar", f"{host}/by/dpack:1", *http).done()
    images = []
    for way in ("skopeo", "dpack"):
        assert json.loads(skopeo("inspect", HTTP, f"docker://{host}/by/{way}:1"))["Digest"] == first
        base = ("--base", f"{host}/by/{way}@{first}")
        told = dpack("bundle", plain, *base, *http, "-o", f"{way}.oci.tar", "--json").done().json
        assert told["request"]["base"] == first
        images.append([row["digest"] for row in told["image"]["layers"]])
    assert images[0] == images[1]


def test_what_users_get_wrong_with_a_registry(dpack, plain, registry):
    host = registry.host
    (dpack.cwd / "folder").mkdir()
    dpack("bundle", plain, "-o", "x.oci.tar").done()
    dpack("bundle", plain, "-o", "x.tar.zst").done()
    http = ("--plain-http", host)
    dpack("push", "x.oci.tar", f"{host}/x:1").refused(1, "does not speak TLS", f"--plain-http {host}")
    dpack("push", "x.tar.zst", f"{host}/x:1", *http).refused(2, "a compressed tar", "--format oci-archive")
    dpack("push", "folder", f"{host}/x:1", *http).refused(2, "a directory without an image")
    dpack("push", "x.oci.tar", host, *http).refused(2, "no repository", f"{host}/REPOSITORY:TAG")
    base = ("--base", f"{host}/nothing:1", "--format", "oci")
    dpack("bundle", plain, *base).refused(1, "does not speak TLS")
    dpack("bundle", plain, *base, *http).refused(1, "404", "check the reference")
