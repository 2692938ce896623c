"""Against docker-registry and skopeo: what we push they read, what they push we read."""

from __future__ import annotations

import json
import subprocess
import threading
from dataclasses import replace

import pytest
from builders.docker_registry import HTPASSWD, DockerRegistry
from builders.oracle import require
from cutting_proxy import CuttingProxy
from fake_registry import QUICK
from layouts_in_memory import MemoryLayout, noise, simple

from packager.errors import DpackError
from packager.oci.descriptor import Platform, digest_of
from packager.registry import Access, Outcome, Reference, pull, push
from packager.registry.wire import Patience

_SELF_SIGNED = (
    "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=registry "
    "-addext subjectAltName=IP:127.0.0.1"
)
AMD64, ARM64 = Platform("linux", "amd64"), Platform("linux", "arm64")


def plain(*hosts, **more):
    return Access(frozenset(hosts), **{"patience": QUICK, "chunk": 1 << 16, **more})


def skopeo(*arguments):
    done = subprocess.run(
        [require("skopeo"), "--insecure-policy", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def copied_out(reference, folder, *more):
    """The files that skopeo makes of an image, by their digests."""
    skopeo(
        "copy",
        "--src-tls-verify=false",
        "--preserve-digests",
        *more,
        f"docker://{reference}",
        f"dir:{folder}",
    )
    return {digest_of(path.read_bytes()) for path in folder.iterdir() if path.name != "version"}


def test_skopeo_reads_what_we_push(docker_registry, tmp_path):
    layout = simple(noise(300_000), noise(70_000, 1), b"")
    reference = Reference.parse(f"{docker_registry.host}/team/app:1.0")
    pushed = push(layout, reference, access=plain(docker_registry.host))
    assert {blob.outcome for blob in pushed.blobs} == {Outcome.UPLOADED}
    assert copied_out(reference, tmp_path / "out") == set(layout.blobs)
    inspected = json.loads(skopeo("inspect", "--tls-verify=false", f"docker://{reference}"))
    assert inspected["Digest"] == pushed.descriptor.digest


def test_what_is_there_is_skipped(docker_registry):
    layout = simple(noise(3000))
    reference = Reference.parse(f"{docker_registry.host}/app:1")
    access = plain(docker_registry.host)
    push(layout, reference, access=access)
    again = push(layout, replace(reference, tag="2"), access=access)
    assert {blob.outcome for blob in again.blobs} == {Outcome.SKIPPED}
    assert pull(replace(reference, tag="2"), AMD64, access=access).descriptor == replace(
        layout.roots[0], platform=None
    )


def test_an_index_is_pushed_whole_and_pulled_by_platform(docker_registry, tmp_path):
    layout = MemoryLayout()
    images = [layout.image(noise(2000, 1)), layout.image(noise(2000, 2), architecture="arm64")]
    layout.listed.append(layout.index(*images))
    reference = Reference.parse(f"{docker_registry.host}/app:multi")
    access = plain(docker_registry.host)
    pushed = push(layout, reference, access=access)
    assert pushed.descriptor.digest == layout.roots[0].digest
    assert copied_out(reference, tmp_path / "out", "--all") == set(layout.blobs)
    for platform, image in zip((AMD64, ARM64), images, strict=True):
        assert pull(reference, platform, access=access).descriptor.digest == image.digest
    with pytest.raises(DpackError, match="it is for linux/amd64, linux/arm64"):
        pull(reference, Platform("linux", "riscv64"), access=access)


def test_we_read_what_skopeo_pushes(docker_registry, tmp_path):
    layers = [noise(300_000), noise(4000, 1)]
    layout = simple(*layers).write(tmp_path / "layout")
    name = f"{docker_registry.host}/team/base:12"
    skopeo("copy", "--dest-tls-verify=false", "--preserve-digests", f"oci:{layout}:0", f"docker://{name}")
    access = plain(docker_registry.host)
    image = pull(Reference.parse(name), AMD64, access=access, cache=tmp_path / "cache")
    read = []
    for layer in image.layers:
        with image.blob(layer) as file:
            read.append(file.read())
            assert file.seek(0) == 0
    assert read == layers
    docker_registry.kill()
    with image.blob(image.layers[0]) as file:  # from the cache
        assert file.read() == layers[0]
    docker_registry.start()


def test_docker_media_types_are_read(docker_registry, tmp_path):
    layout = simple(noise(4000)).write(tmp_path / "layout")
    name = f"{docker_registry.host}/base:docker"
    skopeo("copy", "--dest-tls-verify=false", "--format=v2s2", f"oci:{layout}:0", f"docker://{name}")
    image = pull(Reference.parse(name), AMD64, access=plain(docker_registry.host), cache=tmp_path / "cache")
    assert image.descriptor.media_type == "application/vnd.docker.distribution.manifest.v2+json"
    with image.blob(image.layers[0]) as file:
        assert digest_of(file.read()) == image.layers[0].digest


def test_an_artifact_is_found_by_the_referrers_tag(docker_registry):
    layout = simple(noise(2000))
    first = layout.artifact(layout.roots[0], b'{"sizes": 1}')
    reference = Reference.parse(f"{docker_registry.host}/app:1")
    pushed = push(layout, reference, access=plain(docker_registry.host))
    assert pushed.attached == (first,)
    second = layout.artifact(layout.roots[0], b'{"sizes": 2}')
    for _ in range(2):  # twice, and listed once
        push(layout, reference, access=plain(docker_registry.host))
    tag = layout.roots[0].digest.replace(":", "-")
    listed = json.loads(
        skopeo("inspect", "--raw", "--tls-verify=false", f"docker://{docker_registry.host}/app:{tag}")
    )["manifests"]
    assert [entry["digest"] for entry in listed] == [first.digest, second.digest]
    assert listed[0]["artifactType"] == "application/vnd.example.sizes"
    assert listed[0]["annotations"] == {"com.example.made": "yes"}


def test_blobs_are_mounted_from_another_repository(docker_registry, tmp_path):
    base, own = noise(50_000), noise(2000, 1)
    access = plain(docker_registry.host)
    push(simple(base), Reference.parse(f"{docker_registry.host}/team/base:1"), access=access)
    named = Reference.parse(f"{docker_registry.host}/named:1")
    pushed = push(simple(base, own), named, access=access, mount_from=("other", "team/base"))
    assert [blob.size for blob in pushed.of(Outcome.MOUNTED)] == [len(base)]
    told = {"org.opencontainers.image.base.name": f"{docker_registry.host}/team/base:1"}
    annotated = Reference.parse(f"{docker_registry.host}/annotated:1")
    pushed = push(simple(base, own, annotations=told), annotated, access=access)
    assert [blob.size for blob in pushed.of(Outcome.MOUNTED)] == [len(base)]
    assert digest_of(base) in copied_out(annotated, tmp_path / "out")


# A connection that breaks


@pytest.fixture
def proxy(docker_registry):
    with CuttingProxy(docker_registry.port).serving() as served:
        yield served


@pytest.mark.parametrize(
    ("up", "down"),
    [
        ([150_000, 400_000, 250_000], []),
        ([], [100, 400, 300]),
    ],
    ids=["what we send", "what it answers"],
)
def test_a_push_survives_broken_connections(docker_registry, proxy, tmp_path, up, down):
    proxy.up, proxy.down = [*up], [*down]
    layout = simple(noise(1_000_000), noise(500_000, 1))
    push(layout, Reference.parse(f"{proxy.host}/app:1"), access=plain(proxy.host))
    assert proxy.cuts == len(up) + len(down)
    assert copied_out(f"{docker_registry.host}/app:1", tmp_path / "out") == set(layout.blobs)


def test_a_pull_goes_on_where_the_connection_broke(docker_registry, proxy, tmp_path):
    layer = noise(1_000_000)
    push(simple(layer), Reference.parse(f"{docker_registry.host}/app:1"), access=plain(docker_registry.host))
    image = pull(
        Reference.parse(f"{proxy.host}/app:1"), AMD64, access=plain(proxy.host), cache=tmp_path / "cache"
    )
    proxy.down = [400_000, 400_000]
    with image.blob(image.layers[0]) as file:
        assert file.read() == layer
    assert proxy.cuts == 2


def test_a_killed_registry_that_comes_back_loses_nothing(docker_registry, proxy, tmp_path):
    proxy.up, proxy.on_cut = [900_000], docker_registry.kill
    started = threading.Event()

    def restart():
        while not proxy.cuts:
            started.wait(0.01)
        docker_registry.process.wait()
        docker_registry.start()

    again = threading.Thread(target=restart)
    again.start()
    layout = simple(noise(2_000_000), noise(1_500_000, 1))
    patient = Patience(attempts=1000, pause=0.01, longest=0.02)
    push(layout, Reference.parse(f"{proxy.host}/app:1"), access=plain(proxy.host, patience=patient))
    again.join()
    assert proxy.cuts == 1
    assert copied_out(f"{docker_registry.host}/app:1", tmp_path / "out") == set(layout.blobs)


def test_a_push_that_failed_is_completed_by_another(docker_registry, proxy, tmp_path):
    layout = simple(noise(200_000), noise(2_000_000, 1))
    reference = Reference.parse(f"{docker_registry.host}/app:1")
    proxy.up, proxy.on_cut = [900_000], docker_registry.kill
    with pytest.raises(DpackError, match="could not be reached"):
        push(layout, Reference.parse(f"{proxy.host}/app:1"), access=plain(proxy.host))
    docker_registry.start()
    with pytest.raises(DpackError, match="404"):
        pull(reference, AMD64, access=plain(docker_registry.host))
    pushed = push(layout, reference, access=plain(docker_registry.host))
    assert [blob.size for blob in pushed.of(Outcome.SKIPPED)][:1] == [200_000]
    assert copied_out(reference, tmp_path / "out") == set(layout.blobs)


# Who may


def test_basic_authentication(tmp_path):
    folder = tmp_path / "registry"
    folder.mkdir()
    (folder / "htpasswd").write_text(HTPASSWD + "\n")
    more = f"auth: {{htpasswd: {{realm: basic-realm, path: {folder}/htpasswd}}}}"
    with DockerRegistry(require("docker-registry"), folder, more=more) as served:
        reference = Reference.parse(f"{served.host}/app:1")
        with pytest.raises(DpackError, match="401") as refused:
            push(simple(), reference, access=plain(served.host))
        assert "docker login" in refused.value.next
        config = tmp_path / "auth.json"
        skopeo(
            "login", "--tls-verify=false", f"--authfile={config}", "-u=reader", "-p=paste:word", served.host
        )
        (tmp_path / "home/.docker").mkdir()
        config.rename(tmp_path / "home/.docker/config.json")
        pushed = push(simple(), reference, access=plain(served.host))
        assert pull(reference, AMD64, access=plain(served.host)).descriptor.digest == pushed.descriptor.digest


def test_tls(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [require("openssl"), *_SELF_SIGNED.split(), "-keyout", str(key), "-out", str(certificate)],
        check=True,
        capture_output=True,
    )
    with DockerRegistry(require("docker-registry"), tmp_path / "registry", tls=(certificate, key)) as served:
        reference = Reference.parse(f"{served.host}/app:1")
        with pytest.raises(DpackError, match=r"certificate of .* is not trusted: self.signed") as refused:
            push(simple(), reference, access=Access(patience=QUICK))
        assert "REQUESTS_CA_BUNDLE" in refused.value.next
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        push(simple(), reference, access=Access(patience=QUICK))
        assert pull(reference, AMD64, access=Access(patience=QUICK)).layers


def test_plain_http_is_for_the_named_host_alone(docker_registry):
    reference = Reference.parse(f"{docker_registry.host}/app:1")
    with pytest.raises(DpackError, match="does not speak TLS") as refused:
        push(simple(), reference, access=plain("127.0.0.2"))
    assert f"--plain-http {docker_registry.host}" in refused.value.next
    push(simple(), reference, access=plain("127.0.0.1"))
