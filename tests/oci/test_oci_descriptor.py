"""Platforms, descriptors, and documents that are not what they should be."""

from __future__ import annotations

import pytest

from packager.errors import DpackError
from packager.oci.descriptor import Descriptor, Platform, digest_of, document, parsed

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("linux/amd64", "linux/amd64"),
        ("linux/arm64", "linux/arm64"),
        ("linux/arm64/v8", "linux/arm64"),
        ("linux/aarch64", "linux/arm64"),
        ("Linux/x86_64", "linux/amd64"),
        ("linux/arm/v7", "linux/arm/v7"),
        ("arm64", None),
        ("linux/", None),
        ("linux/arm/v7/x", None),
        ("linux/arm 64", None),
        ("", None),
    ],
)
def test_platform(text, expected):
    if expected is not None:
        assert str(Platform.parse(text)) == expected
        return
    with pytest.raises(DpackError, match="cannot use the platform") as caught:
        Platform.parse(text)
    assert caught.value.exit == 2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("linux/arm64", Platform("linux", "arm64", "v8"), True),
        ("linux/arm64", Platform("linux", "arm64", "v9"), False),
        ("linux/arm64", Platform("linux", "amd64"), False),
        ("linux/amd64", Platform("windows", "amd64"), False),
    ],
)
def test_platforms_match_however_they_are_spelled(one, other, same):
    assert Platform.parse(one).matches(other) is same


def test_a_descriptor_comes_back_from_its_json():
    descriptor = Descriptor(
        "a/b",
        DIGEST,
        3,
        (("k", "v"),),
        Platform("linux", "arm", "v7"),
        "c/d",
        ("https://registry.example/blob",),
    )
    assert Descriptor.from_json(descriptor.to_json(), "index.json") == descriptor
    assert descriptor.hex == DIGEST.removeprefix("sha256:")
    assert descriptor.annotation == {"k": "v"}


def test_an_empty_blob_has_its_well_known_digest():
    # FIPS 180-2's sha256 of nothing.
    assert digest_of(b"") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": -1}, "size -1"),
        ({"size": True}, "size True"),
        ({"size": "3"}, "size '3'"),
        ({"size": None}, "size None"),
        ({"digest": "sha256:abc"}, "'sha256:abc' is not a sha256 digest"),
        ({"digest": DIGEST.upper()}, "is not a sha256 digest"),
        ({"digest": DIGEST + "\n"}, "is not a sha256 digest"),
        ({"digest": "../../etc/passwd"}, "is not a sha256 digest"),
        ({"digest": None}, "digest is missing"),
        ({"mediaType": 1}, "mediaType is not a text"),
        ({"annotations": []}, "annotations are not pairs of texts"),
        ({"annotations": {"k": 1}}, "annotations are not pairs of texts"),
        ({"platform": {"os": "linux"}}, "architecture is missing"),
        ({"platform": "linux"}, "a platform in it is not a JSON object"),
        ({"urls": "x"}, "urls are not a list of texts"),
    ],
)
def test_what_is_no_descriptor_names_the_document(change, message):
    value = {"mediaType": "a/b", "digest": DIGEST, "size": 3, **change}
    with pytest.raises(DpackError, match=message) as caught:
        Descriptor.from_json(value, "index.json of ./base")
    assert caught.value.what == "cannot read index.json of ./base"


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"\xff\xfe{}", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "a document in it is not a JSON object"),
    ],
)
def test_what_is_no_document(blob, message):
    with pytest.raises(DpackError, match=f"cannot read index.json: {message}"):
        parsed(blob, "index.json")


def test_documents_have_one_form():
    assert document({"b": 1, "a": {"d": "é", "c": []}}) == '{"a":{"c":[],"d":"é"},"b":1}'.encode()


def test_a_name_that_is_not_utf8_is_told():
    with pytest.raises(DpackError, match=r"not UTF-8: .*/bin/\\udcff"):
        document({"Entrypoint": ["/bin/\udcff"]})
