"""One blob on its way to a registry that breaks, forgets and misleads."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from fake_registry import PASSWORD, QUICK, USER
from layouts_in_memory import noise, simple

from packager.errors import DpackError
from packager.oci.descriptor import CONFIG_TYPE, INDEX_TYPE, MANIFEST_TYPE, document
from packager.registry import Access, Outcome, Reference, push

LAYER = noise(10_000)


def pushed_to(registry, access, *layers, name="team/app", **more):
    layout = simple(*(layers or (LAYER,)))
    return push(layout, Reference.parse(f"{registry.host}/{name}:1"), access=access, **more)


def arrived(registry, pushed, name="team/app"):
    """Whether all of it is there, and under the tag."""
    blobs = all((name, blob.descriptor.digest) in registry.blobs for blob in pushed.blobs)
    return blobs and registry.manifests[name, "1"] == registry.manifests[name, pushed.descriptor.digest]


def patches(registry):
    """The first bytes of the chunks that were sent of the layer."""
    starts = [headers["Content-Range"] for method, _, headers in registry.log if method == "PATCH"]
    return [int(text.partition("-")[0]) for text in starts if not text.startswith("0-1") or text == "0-999"]


@pytest.mark.parametrize("relative", [False, True])
def test_chunks_in_their_order(registry, access, relative):
    registry.relative = relative
    assert arrived(registry, pushed_to(registry, access))
    assert patches(registry) == list(range(0, 10_000, 1000))


def test_the_registry_says_how_large_a_chunk_is_at_least(registry, access):
    registry.least_chunk = 4000
    assert arrived(registry, pushed_to(registry, access))
    assert [start for start in patches(registry) if start] == [4000, 8000]


def test_the_registry_says_how_much_it_took(registry, access):
    registry.take_patch = [1000, 300]
    assert arrived(registry, pushed_to(registry, replace(access, chunk=5000)))


def test_a_broken_upload_goes_on_where_the_registry_is(registry, access):
    registry.cut_patch = [400, 350]
    assert arrived(registry, pushed_to(registry, access))
    assert patches(registry)[:3] == [0, 400, 750]


def test_a_forgotten_upload_starts_over(registry, access):
    registry.cut_patch, registry.forget = [400], True
    assert arrived(registry, pushed_to(registry, access))
    assert patches(registry)[:3] == [0, 0, 1000]


def test_a_status_that_says_less_than_was_confirmed_is_not_believed(registry, access):
    registry.vague, registry.cut_patch = True, [400]
    assert arrived(registry, pushed_to(registry, access))
    assert not registry.uploads  # the one that could not be continued was cancelled


def test_an_upload_that_was_put_together_wrongly_starts_over(registry, access):
    registry.cut_patch, registry.garble = [400], True
    assert arrived(registry, pushed_to(registry, access))
    assert patches(registry)[:2] == [0, 400]
    assert patches(registry).count(0) == 2


def test_a_blob_that_is_cut_short_on_the_registry_is_sent_again(registry, access):
    pushed = pushed_to(registry, access)
    key = ("team/app", pushed.blobs[0].descriptor.digest)
    registry.blobs[key] = LAYER[:5000]
    again = pushed_to(registry, access)
    assert [blob.size for blob in again.of(Outcome.UPLOADED)] == [len(LAYER)]
    assert registry.blobs[key] == LAYER


def test_an_upload_whose_last_answer_was_lost_is_done(registry, access):
    registry.cut_finish = 2
    pushed = pushed_to(registry, access)
    assert arrived(registry, pushed)
    assert registry.methods("POST") == ["POST"] * len(pushed.blobs)


def test_a_registry_that_takes_nothing_is_given_up(registry, access):
    registry.cut_patch = [0] * 100
    with pytest.raises(DpackError, match="could not be reached"):
        pushed_to(registry, access)
    assert ("team/app", "1") not in registry.manifests


@pytest.mark.parametrize("method", ["HEAD", "POST", "PATCH", "PUT"])
def test_a_busy_registry_is_asked_again(registry, access, method):
    registry.statuses[method] = [(429, {"Retry-After": "0"}), (503, {})]
    assert arrived(registry, pushed_to(registry, access))


def test_a_registry_that_stays_busy_is_given_up(registry, access):
    registry.statuses["POST"] = [(503, {})] * 50
    with pytest.raises(DpackError, match="503"):
        pushed_to(registry, access)


def test_a_proxy_that_limits_requests_is_told(registry, access):
    registry.statuses["PATCH"] = [(413, {})] * 3
    with pytest.raises(DpackError, match="413") as refused:
        pushed_to(registry, access)
    assert "32 MiB" in refused.value.next


def test_a_blob_that_is_not_what_its_name_says_is_not_finished(registry, access):
    layout = simple(LAYER)
    (digest,) = [digest for digest, content in layout.blobs.items() if content == LAYER]
    for wrong, why in ((b"x" + LAYER[1:], "another digest"), (LAYER[:5500], "ends after 5,500 of 10,000")):
        layout.blobs[digest] = wrong
        with pytest.raises(DpackError, match=why):
            push(layout, Reference.parse(f"{registry.host}/team/app:1"), access=access)
    assert ("team/app", digest) not in registry.blobs
    assert ("team/app", "1") not in registry.manifests


def test_a_registry_that_stores_other_bytes_is_told(registry, access):
    registry.statuses["PUT"] = [(201, {"Docker-Content-Digest": "sha256:" + "0" * 64})]
    with pytest.raises(DpackError, match="do not agree on a blob"):
        pushed_to(registry, access)


def test_a_registry_with_the_referrers_interface_needs_no_tag(registry, access):
    layout = simple(LAYER)
    artifact = layout.artifact(layout.roots[0], b"{}")
    reference = Reference.parse(f"{registry.host}/app:1")
    push(layout, reference, access=access)
    tag = layout.roots[0].digest.replace(":", "-")
    assert ("app", artifact.digest) in registry.manifests
    assert ("app", tag) not in registry.manifests
    registry.subject = False
    push(layout, reference, access=access)
    listed = json.loads(registry.manifests["app", tag][1])["manifests"]
    assert [entry["digest"] for entry in listed] == [artifact.digest]


def test_the_tag_comes_last(registry, access):
    layout = simple(LAYER)
    layout.artifact(layout.roots[0], b"{}")
    push(layout, Reference.parse(f"{registry.host}/app:1"), access=access)
    changes = [path for method, path, _ in registry.log if method in {"PUT", "PATCH", "POST"}]
    assert changes[-1] == "/v2/app/manifests/1"
    assert [path for path in changes if path.endswith("/1")] == changes[-1:]


def test_a_digest_alone_sets_no_tag(registry, access):
    layout = simple(LAYER)
    digest = layout.roots[0].digest
    push(layout, Reference.parse(f"{registry.host}/app@{digest}"), access=access)
    assert set(registry.manifests) == {("app", digest)}
    with pytest.raises(DpackError, match=f"the image's digest is {digest}"):
        push(layout, Reference.parse(f"{registry.host}/app@sha256:{'0' * 64}"), access=access)


def test_a_layout_with_two_images_is_refused(registry, access):
    layout = simple(LAYER)
    layout.listed.append(layout.image(noise(10)))
    with pytest.raises(DpackError, match="holds 2 images"):
        push(layout, Reference.parse(f"{registry.host}/app:1"), access=access)
    assert not registry.log


@pytest.mark.parametrize(("kind", "key"), [(MANIFEST_TYPE, "layers"), (INDEX_TYPE, "manifests")])
@pytest.mark.parametrize("value", [{}, {"layers": None, "manifests": None}], ids=["absent", "null"])
def test_a_document_without_its_list_is_refused(registry, access, kind, key, value):
    layout = simple(LAYER)
    config = layout.add(CONFIG_TYPE, b"{}").to_json()
    layout.listed[:] = [layout.add(kind, document({"config": config, **value}))]
    with pytest.raises(DpackError, match=f"has no list of {key}"):
        push(layout, Reference.parse(f"{registry.host}/team/app:1"), access=access)
    assert not registry.manifests


# Tokens


def config_of(home, host, **entry):
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    folder = home / ".docker"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"auths": {host: entry or {"auth": auth}}}))


@pytest.fixture
def token_registry(registry):
    registry.realm = f"http://{registry.host}/token"
    return registry


def test_tokens_are_asked_for_once_a_scope(token_registry, access, nobody):
    config_of(nobody, token_registry.host)
    assert arrived(token_registry, pushed_to(token_registry, access))
    assert token_registry.granted == [("repository:team/app:pull,push",)]


def test_tokens_that_run_out_are_replaced(token_registry, access, nobody):
    config_of(nobody, token_registry.host)
    token_registry.token_life = 1e-9
    assert arrived(token_registry, pushed_to(token_registry, access))
    assert len(token_registry.granted) > 10


def test_an_identity_token_is_exchanged(token_registry, access, nobody):
    config_of(nobody, token_registry.host, identitytoken="identity")
    assert arrived(token_registry, pushed_to(token_registry, access))
    assert [method for method, path, _ in token_registry.log if path.startswith("/token")] == ["POST"]


def test_mounting_asks_for_both_repositories(token_registry, access, nobody):
    config_of(nobody, token_registry.host)
    pushed_to(token_registry, access, name="team/base")
    pushed = pushed_to(token_registry, access, LAYER, noise(10), mount_from=("team/base",))
    assert [blob.size for blob in pushed.of(Outcome.MOUNTED)] == [len(LAYER)]
    assert ("repository:team/app:pull,push", "repository:team/base:pull") in token_registry.granted


@pytest.mark.parametrize("switch", ["deny", "secret"], ids=["by the registry", "by the token server"])
def test_a_repository_that_may_not_be_read_is_not_mounted_from(token_registry, access, nobody, switch):
    config_of(nobody, token_registry.host)
    setattr(token_registry, switch, frozenset({"team/base"}))
    pushed = pushed_to(token_registry, access, mount_from=("team/base",))
    assert arrived(token_registry, pushed)
    assert not pushed.of(Outcome.MOUNTED)


def test_basic_credentials(registry, access, nobody):
    registry.realm = "basic"
    config_of(nobody, registry.host)
    assert arrived(registry, pushed_to(registry, access))


def test_wrong_credentials_are_told_by_where_they_come_from(token_registry, access, nobody):
    auth = base64.b64encode(b"somebody:very secret").decode()
    config_of(nobody, token_registry.host, auth=auth)
    with pytest.raises(DpackError, match="401") as refused:
        pushed_to(token_registry, access)
    text = "\n".join(refused.value.lines())
    assert str(nobody / ".docker" / "config.json") in text
    assert "UNAUTHORIZED: about UNAUTHORIZED" in text
    assert not [word for word in ("somebody", "very secret", auth) if word in text]


def test_the_lack_of_a_right_is_told(token_registry, access, nobody):
    config_of(nobody, token_registry.host)
    token_registry.deny = frozenset({"team/app"})
    with pytest.raises(DpackError, match="401") as refused:
        pushed_to(token_registry, access)
    assert "ask for the right" in refused.value.next


def test_a_token_server_without_tls_must_be_named(registry, access, nobody):
    config_of(nobody, registry.host)
    registry.realm = "http://tokens.invalid/token"
    with pytest.raises(DpackError, match="which is not encrypted") as refused:
        pushed_to(registry, access)
    assert "--plain-http tokens.invalid" in refused.value.next


def test_netrc_is_not_sent(registry, access, nobody):
    (nobody / ".netrc").write_text("default login me password mine\n")
    assert arrived(registry, pushed_to(registry, access))
    assert not [headers for _, _, headers in registry.log if "Authorization" in headers]


def test_a_host_that_is_away():
    with pytest.raises(DpackError, match=r"could not be reached: .*refused"):
        push(simple(), Reference.parse("127.0.0.1:1/app:1"), access=Access(frozenset({"127.0.0.1"}), QUICK))


def test_a_host_that_is_no_registry(registry, access):
    registry.statuses["GET"] = [(404, {})]
    with pytest.raises(DpackError, match="404") as refused:
        pushed_to(registry, access)
    assert "/v2/" in refused.value.next
