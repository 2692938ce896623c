"""Images read from a registry that breaks, and from one that lies."""

from __future__ import annotations

import base64
import json
import threading
from dataclasses import replace

import pytest
from fake_registry import PASSWORD, QUICK, USER, FakeRegistry
from layouts_in_memory import MemoryLayout, noise, simple

from packager.errors import DpackError
from packager.oci.descriptor import MANIFEST_TYPE, Base, Platform
from packager.registry import Access, Reference, pull, push

AMD64 = Platform("linux", "amd64")
LAYER = noise(300_000)


@pytest.fixture
def reference(registry, access):
    reference = Reference.parse(f"{registry.host}/team/base:1")
    push(simple(LAYER), reference, access=replace(access, chunk=1 << 20))
    return reference


@pytest.fixture
def image(reference, access, tmp_path):
    return pull(reference, AMD64, access=access, cache=tmp_path / "cache")


def read(image):
    with image.blob(image.layers[0]) as file:
        return file.read()


def ranges(registry, image):
    path = f"/v2/team/base/blobs/{image.layers[0].digest}"
    return [headers.get("Range") for method, at, headers in registry.log if (method, at) == ("GET", path)]


def test_it_is_a_base_to_build_on(image, reference):
    base: Base = image
    assert base.name == str(reference)
    assert json.loads(base.config)["architecture"] == "amd64"
    assert read(base) == LAYER


def test_a_blob_is_downloaded_once(registry, image, reference, access, tmp_path):
    assert read(image) == read(image) == LAYER
    assert read(pull(reference, AMD64, access=access, cache=tmp_path / "cache")) == LAYER
    assert len(ranges(registry, image)) == 1


def test_all_layers_are_downloaded_at_once(registry, access, tmp_path):
    layers = [noise(1000, 1), noise(1000, 2), noise(1000, 3)]
    reference = Reference.parse(f"{registry.host}/team/base:1")
    push(simple(*layers, layers[0]), reference, access=access)
    image = pull(reference, AMD64, access=access, cache=tmp_path / "cache")
    registry.together = threading.Barrier(3)
    for descriptor, content in zip(image.layers, [*layers, layers[0]], strict=True):
        with image.blob(descriptor) as file:
            assert file.read() == content
    assert registry.together.n_waiting == 0


def test_a_damaged_file_of_the_cache_is_replaced(registry, image, reference, access, tmp_path):
    read(image)
    path = tmp_path / "cache/blobs/sha256" / image.layers[0].hex
    path.write_bytes(b"x" + LAYER[1:])
    assert read(pull(reference, AMD64, access=access, cache=tmp_path / "cache")) == LAYER
    assert len(ranges(registry, image)) == 2


def test_a_broken_download_goes_on(registry, image):
    registry.cut_get = [200_000, 70_000]
    assert read(image) == LAYER
    first, *rest = ranges(registry, image)
    starts = [int(text.removeprefix("bytes=").rstrip("-")) for text in rest]
    assert first is None
    assert len(starts) == 2
    assert 0 < starts[0] <= 200_000 < starts[1] + 70_000


def test_a_server_without_ranges_starts_over(registry, image):
    registry.cut_get, registry.no_range = [200_000], True
    assert read(image) == LAYER


def test_a_part_of_an_earlier_run_is_used(registry, image, tmp_path):
    part = tmp_path / "cache/blobs/sha256" / f".{image.layers[0].hex}.part"
    part.write_bytes(LAYER[:250_000])
    assert read(image) == LAYER
    assert ranges(registry, image) == ["bytes=250000-"]
    assert not part.exists()


@pytest.mark.parametrize("part", [b"x" * 250_000, b"x" * 300_000, b"x" * 400_000])
def test_a_part_that_is_damaged_is_downloaded_anew(image, tmp_path, part):
    (tmp_path / "cache/blobs/sha256" / f".{image.layers[0].hex}.part").write_bytes(part)
    assert read(image) == LAYER


@pytest.mark.parametrize("wrong", [b"x" + LAYER[1:], LAYER + b"x"], ids=["same size", "longer"])
def test_a_blob_with_other_content_is_refused(registry, image, tmp_path, wrong):
    registry.blobs["team/base", image.layers[0].digest] = wrong
    with pytest.raises(DpackError, match="sends another content"):
        read(image)
    assert not (tmp_path / "cache/blobs/sha256" / image.layers[0].hex).exists()


def test_a_shorter_blob_is_refused(registry, image):
    registry.blobs["team/base", image.layers[0].digest] = LAYER[:1000]
    with pytest.raises(DpackError, match="sends another content"):
        read(image)


def test_a_manifest_with_other_content_is_refused(registry, reference, access):
    kind, content = registry.manifests["team/base", "1"]
    digest = Reference.parse(f"{reference.name}@sha256:{'0' * 64}")
    registry.manifests["team/base", digest.digest] = (kind, content)
    with pytest.raises(DpackError, match="do not agree on the manifest"):
        pull(digest, AMD64, access=access)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_busy_registry_is_asked_again(registry, reference, access, tmp_path, method):
    registry.statuses[method] = [(503, {}), (429, {"Retry-After": "0"})]
    assert read(pull(reference, AMD64, access=access, cache=tmp_path)) == LAYER


@pytest.mark.parametrize(
    ("name", "words"),
    [("team/base:2", "404 Not Found .MANIFEST_UNKNOWN"), ("team/nothing", "404 Not Found")],
)
def test_what_is_not_there(registry, reference, access, name, words):
    with pytest.raises(DpackError, match=words) as refused:
        pull(Reference.parse(f"{registry.host}/{name}"), AMD64, access=access)
    assert "check the reference" in refused.value.next
    assert str(reference) not in refused.value.what


def test_an_image_for_another_platform_alone_is_refused(reference, access, tmp_path):
    with pytest.raises(DpackError, match=r"cannot use .* for linux/arm64: it is for linux/amd64") as refused:
        pull(reference, Platform("linux", "arm64"), access=access, cache=tmp_path)
    assert "--platform" in refused.value.next


def test_old_manifests_are_refused(registry, access):
    registry.manifests["old", "1"] = ("application/vnd.docker.distribution.manifest.v1+prettyjws", b"{}")
    with pytest.raises(DpackError, match=r"manifest.v1\+prettyjws, which is neither an image nor an index"):
        pull(Reference.parse(f"{registry.host}/old:1"), AMD64, access=access)


def test_an_endless_manifest_is_refused(registry, access):
    registry.manifests["large", "1"] = (MANIFEST_TYPE, b" " * (5 << 20))
    with pytest.raises(DpackError, match="larger than"):
        pull(Reference.parse(f"{registry.host}/large:1"), AMD64, access=access)


def test_an_index_passes_over_attestations(registry, access, tmp_path):
    layout = MemoryLayout()
    image = layout.image(LAYER)
    other = replace(layout.image(noise(5)), platform=Platform("unknown", "unknown"))
    layout.listed.append(layout.index(other, image))
    reference = Reference.parse(f"{registry.host}/multi:1")
    push(layout, reference, access=access)
    assert pull(reference, AMD64, access=access, cache=tmp_path).descriptor.digest == image.digest
    with pytest.raises(DpackError, match=r"it is for linux/amd64$"):
        pull(reference, Platform("linux", "arm64"), access=access, cache=tmp_path)
    assert pull(reference, None, access=access, cache=tmp_path).descriptor.digest == image.digest


def test_without_a_platform_there_must_be_one_image(registry, access, tmp_path):
    layout = MemoryLayout()
    layout.listed.append(layout.index(layout.image(LAYER), layout.image(LAYER, architecture="arm64")))
    reference = Reference.parse(f"{registry.host}/multi:1")
    push(layout, reference, access=access)
    with pytest.raises(DpackError, match="it is for linux/amd64, linux/arm64"):
        pull(reference, None, access=access, cache=tmp_path)


# Redirects


def test_credentials_do_not_follow_a_redirect(registry, reference, access, tmp_path, nobody):
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (nobody / ".docker").mkdir()
    (nobody / ".docker/config.json").write_text(json.dumps({"auths": {registry.host: {"auth": auth}}}))
    registry.realm = "basic"
    with FakeRegistry().serving() as storage:
        storage.blobs = {("elsewhere", digest): content for (_, digest), content in registry.blobs.items()}
        registry.redirect = f"http://{storage.host}/v2/elsewhere/blobs"
        both = replace(access, plain_http=frozenset({registry.host, storage.host}))
        assert read(pull(reference, AMD64, access=both, cache=tmp_path / "cache")) == LAYER
        assert storage.log
        assert not [headers for _, _, headers in storage.log if "Authorization" in headers]
        with pytest.raises(DpackError, match=r"sends us on to http://.*, which is not encrypted"):
            pull(reference, AMD64, access=access, cache=tmp_path / "other")


def test_redirects_end(registry, reference, access, tmp_path):
    registry.redirect = f"http://{registry.host}/v2/team/base/blobs"
    with pytest.raises(DpackError, match="more than 5 redirects"):
        pull(reference, AMD64, access=access, cache=tmp_path)


def test_progress_adds_up(registry, reference, access, tmp_path):
    counts = {}

    class Bars:
        def start(self, label, total):
            counts[label] = [total, 0]

            class Bar:
                def advance(self, n):
                    counts[label][1] += n

                def finish(self):
                    assert counts[label][0] == counts[label][1]

            return Bar()

    registry.cut_get, registry.no_range = [100], True
    image = pull(reference, AMD64, access=access, cache=tmp_path, progress=Bars())
    read(image)
    registry.blobs.clear()
    registry.cut_patch = [100]
    push(simple(LAYER), reference, access=Access(access.plain_http, QUICK), progress=Bars())
    assert len(counts) == 2
