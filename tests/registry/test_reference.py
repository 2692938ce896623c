"""References: what each part may be, and what is said of those that are wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.errors import DpackError
from packager.registry import Reference, parse_repository
from packager.registry.reference import check_name

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("host.example/app", ("host.example", "app", None, None)),
        ("host:5000/team/app:tag", ("host:5000", "team/app", "tag", None)),
        (f"host:5000/team/app:tag@{DIGEST}", ("host:5000", "team/app", "tag", DIGEST)),
        (f"localhost/app@{DIGEST}", ("localhost", "app", None, DIGEST)),
        ("127.0.0.1:1/a", ("127.0.0.1:1", "a", None, None)),
        ("[2001:db8::1]:443/a:b", ("[2001:db8::1]:443", "a", "b", None)),
        ("[::1]/a", ("[::1]", "a", None, None)),
        ("Registry/a", ("Registry", "a", None, None)),
        ("h.x/a-b__c.d/e--f:_T.a-g", ("h.x", "a-b__c.d/e--f", "_T.a-g", None)),
        ("h.x/a:" + "t" * 128, ("h.x", "a", "t" * 128, None)),
    ],
)
def test_the_parts_of_a_reference(text, parts):
    reference = Reference.parse(text)
    assert (reference.host, reference.repository, reference.tag, reference.digest) == parts
    assert str(reference) == text


@pytest.mark.parametrize(
    ("text", "why", "then"),
    [
        ("", "it names no host", "HOST/team/app:1.0"),
        ("app", "it names no host", "HOST/app"),
        ("app:1.0", "it names no host", "HOST/app:1.0"),
        ("team/app:1.0", "'team' is not a host: it has neither a dot nor a port", "HOST/team/app:1.0"),
        ("library/debian", "'library' is not a host", "HOST/library/debian"),
        ("host:port/app", "'host:port' is not a host, or a host with its port", "HOST/REPOSITORY:TAG"),
        ("-a.b/app", "'-a.b' is not a host", "HOST/REPOSITORY:TAG"),
        ("https://host/app", "'https:' is not a host", "HOST/REPOSITORY:TAG"),
        ("h.x/", "it names no repository", "HOST/REPOSITORY:TAG"),
        ("h.x/App", "it has capital letters", "HOST/REPOSITORY:TAG"),
        ("h.x/a//b", "is not a repository: lower case", "HOST/REPOSITORY:TAG"),
        ("h.x/a._b", "is not a repository", "HOST/REPOSITORY:TAG"),
        ("h.x/../b", "is not a repository", "HOST/REPOSITORY:TAG"),
        ("h.x/a:", "'' is not a tag", "a tag has letters"),
        ("h.x/a:.b", "'.b' is not a tag", "a tag has letters"),
        ("h.x/a:" + "t" * 129, "is not a tag", "at most 128"),
        ("h.x/a:1\n", "is not a tag", "a tag has letters"),
        ("h.x/a@sha256:12", "'sha256:12' is not a sha256 digest", "64 hex digits"),
        ("h.x/a@", "'' is not a sha256 digest", "64 hex digits"),
        ("h.x/" + "a" * 252, "longer than 255 characters", "HOST/REPOSITORY:TAG"),
    ],
)
def test_a_wrong_reference(text, why, then):
    with pytest.raises(DpackError) as refused:
        Reference.parse(text)
    assert refused.value.exit == 2
    assert why in refused.value.why
    assert then in refused.value.next


@pytest.mark.parametrize(
    "name",
    ["mnist", "mnist:1.0", "edge/mnist:1.0", "h.x:5000/edge/mnist", "localhost/a", "h.x/a:B_c", "a" * 255],
)
def test_the_name_of_an_image_needs_no_host(name):
    check_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it names no repository"),
        (":1", "it names no repository"),
        ("h.x/", "it names no repository"),
        ("Foo", "it has capital letters"),
        ("edge/Foo:1", "it has capital letters"),
        ("foo bar", "is not a repository"),
        ("Foo Bar:@@", "the digest of an image is known when it is written"),
        ("foo@sha256:00", "the digest of an image is known"),
        (f"h.x/foo@{DIGEST}", "the digest of an image is known"),
        ("foo:", "'' is not a tag"),
        ("foo:a:b", "'a:b' is not a tag"),
        ("h.x/foo:", "'' is not a tag"),
        ("a" * 256, "longer than 255 characters"),
    ],
)
def test_what_an_image_cannot_be_called(name, why):
    with pytest.raises(DpackError, match=why) as refused:
        check_name(name)
    assert (refused.value.exit, bool(refused.value.next)) == (2, True)


@given(st.text(alphabet="aA0.:/@-_[]\n é", max_size=40))
def test_what_is_parsed_is_written_the_same(text):
    with contextlib.suppress(DpackError):
        assert str(Reference.parse(text)) == text


def test_what_is_asked_for_and_what_is_set():
    named = Reference.parse(f"h.x/a:1@{DIGEST}")
    assert (named.target, named.push_tag) == (DIGEST, "1")
    bare = Reference.parse("h.x/a")
    assert (bare.target, bare.push_tag) == ("latest", "latest")
    exact = bare.at(DIGEST)
    assert (exact.target, exact.push_tag) == (DIGEST, None)


@pytest.mark.parametrize("text", ["team/base", "h.x:5000/team/base"])
def test_a_repository_to_mount_from(text):
    assert parse_repository(text, "h.x:5000") == "team/base"


@pytest.mark.parametrize(
    ("text", "why"),
    [("other.x/base", "it is on other.x"), ("team/base:1", "not a repository"), ("", "names no")],
)
def test_a_repository_that_cannot_be_mounted_from(text, why):
    with pytest.raises(DpackError, match=why) as refused:
        parse_repository(text, "h.x")
    assert refused.value.exit == 2
