"""The nouns of an image: media types, platforms, digests and descriptors (image-spec 1.1).

Section names below are those of github.com/opencontainers/image-spec at v1.1.1.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol, Self

from packager.errors import DpackError, usage

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
LAYER_TAR = "application/vnd.oci.image.layer.v1.tar"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"

DOCKER_MANIFEST_TYPE = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST_TYPE = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_CONFIG_TYPE = "application/vnd.docker.container.image.v1+json"
DOCKER_LAYER_TAR = "application/vnd.docker.image.rootfs.diff.tar"
DOCKER_LAYER_GZIP = "application/vnd.docker.image.rootfs.diff.tar.gzip"
DOCKER_LAYER_ZSTD = "application/vnd.docker.image.rootfs.diff.tar.zstd"

MANIFEST_TYPES = frozenset({MANIFEST_TYPE, DOCKER_MANIFEST_TYPE})
"""One image: a config and layers."""

INDEX_TYPES = frozenset({INDEX_TYPE, DOCKER_LIST_TYPE})
"""Several images, one for each platform."""

OCI_LAYERS: Mapping[str, str] = {
    LAYER_TAR: LAYER_TAR,
    LAYER_GZIP: LAYER_GZIP,
    LAYER_ZSTD: LAYER_ZSTD,
    DOCKER_LAYER_TAR: LAYER_TAR,
    DOCKER_LAYER_GZIP: LAYER_GZIP,
    DOCKER_LAYER_ZSTD: LAYER_ZSTD,
}
"""Every layer type that is read, and the one of this specification that says the same."""

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = re.compile(r"[a-z0-9][a-z0-9._-]*")
_ARCHITECTURES = {"x86_64": "amd64", "x86-64": "amd64", "aarch64": "arm64"}
_USUAL_VARIANTS = {("arm64", "v8"), ("amd64", "v1")}
"""Variants that say no more than the architecture does (containerd/platforms, normalizeArch)."""


@dataclass(frozen=True, slots=True)
class Platform:
    """What an image runs on, in Go's words: linux, amd64 or arm64; variant v7 of arm and the like."""

    os: str
    architecture: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """The platform "linux/arm64" or "linux/arm/v7", in its usual form (aarch64 and arm64/v8 are arm64).

        Raises DpackError (exit 2) for anything else.
        """
        parts = text.lower().split("/")
        if len(parts) not in (2, 3) or not all(_PART.fullmatch(part) for part in parts):
            raise usage(
                f"cannot use the platform {text!r}",
                "it is not of the form os/architecture[/variant]",
                next="name one such as linux/amd64 or linux/arm64",
            )
        return cls(*parts).usual()

    @classmethod
    def from_json(cls, value: object, document: str) -> Self:
        """The platform of a descriptor or of an image's config; DpackError where it has none."""
        fields = _object(value, document, "platform")
        return cls(
            _text(fields, "os", document),
            _text(fields, "architecture", document),
            _text(fields, "variant", document, ""),
        )

    def to_json(self) -> dict[str, str]:
        """The platform for a document."""
        fields = {"os": self.os, "architecture": self.architecture}
        return {**fields, "variant": self.variant} if self.variant else fields

    def matches(self, other: Platform) -> bool:
        """Whether both say the same, however they spell it."""
        return self.usual() == other.usual()

    def usual(self) -> Self:
        """The spelling that Go and containerd use: amd64 for x86_64, arm64 for arm64/v8."""
        architecture = _ARCHITECTURES.get(self.architecture, self.architecture)
        variant = "" if (architecture, self.variant) in _USUAL_VARIANTS else self.variant
        return type(self)(self.os, architecture, variant)

    def __str__(self) -> str:
        return "/".join(part for part in (self.os, self.architecture, self.variant) if part)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Points to a blob by its digest ("OCI Content Descriptors").

    ``digest``       "sha256:" and 64 hexadecimal digits, of the blob as it is stored.
    ``size``         of the blob, in bytes.
    ``annotations``  pairs, sorted by key.
    """

    media_type: str
    digest: str
    size: int
    annotations: tuple[tuple[str, str], ...] = ()
    platform: Platform | None = None
    artifact_type: str = ""
    urls: tuple[str, ...] = ()

    @classmethod
    def of(cls, media_type: str, blob: bytes) -> Self:
        """The descriptor of a blob in memory."""
        return cls(media_type, digest_of(blob), len(blob))

    @classmethod
    def from_json(cls, value: object, document: str) -> Self:
        """A descriptor as it stands in ``document``; DpackError, naming that, where it is not one."""
        fields = _object(value, document, "descriptor")
        size = fields.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise malformed(document, f"a descriptor has the size {size!r}")
        urls = fields.get("urls") or []
        if not isinstance(urls, list) or not all(isinstance(url, str) for url in urls):
            raise malformed(document, "a descriptor's urls are not a list of texts")
        platform = fields.get("platform")
        return cls(
            _text(fields, "mediaType", document),
            check_digest(_text(fields, "digest", document), document),
            size,
            pairs(fields.get("annotations"), document, "annotations"),
            None if platform is None else Platform.from_json(platform, document),
            _text(fields, "artifactType", document, ""),
            tuple(urls),
        )

    def to_json(self) -> dict[str, Any]:
        """The descriptor for a document; what is empty is left out."""
        fields: dict[str, Any] = {"mediaType": self.media_type, "digest": self.digest, "size": self.size}
        if self.artifact_type:
            fields["artifactType"] = self.artifact_type
        if self.platform is not None:
            fields["platform"] = self.platform.to_json()
        if self.annotations:
            fields["annotations"] = dict(self.annotations)
        if self.urls:
            fields["urls"] = list(self.urls)
        return fields

    @property
    def hex(self) -> str:
        """The digest without "sha256:"."""
        return self.digest.removeprefix("sha256:")

    @property
    def annotation(self) -> dict[str, str]:
        """The annotations, to look one up."""
        return dict(self.annotations)


class Base(Protocol):
    """An image to build on: one platform's manifest and config, and a way to read its blobs."""

    @property
    def name(self) -> str:
        """How the user named it, such as "debian:12"."""

    @property
    def descriptor(self) -> Descriptor:
        """The descriptor of its manifest."""

    @property
    def config(self) -> bytes:
        """The blob of its config, as it is stored."""

    @property
    def layers(self) -> tuple[Descriptor, ...]:
        """Its layers, the lowest first, as its manifest has them."""

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[BinaryIO]:
        """Open one of its blobs for reading, from its first byte; DpackError where it cannot be had."""


EMPTY = b"{}"
"""The blob for a config that says nothing ("Guidance for an Empty Descriptor")."""


def digest_of(blob: bytes) -> str:
    """The sha256 digest of a blob in memory, as descriptors write it."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def check_digest(text: str, document: str) -> str:
    """The same text when it is a sha256 digest; DpackError, naming the document, when it is not."""
    if not _DIGEST.fullmatch(text):
        raise malformed(document, f"{text!r} is not a sha256 digest")
    return text


def document(value: Mapping[str, Any]) -> bytes:
    """The bytes of a JSON document: keys sorted, no white space, UTF-8, no newline at the end.

    Raises DpackError for a text that is no Unicode, such as a file name in another encoding.
    """
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        where = text[max(0, error.start - 20) : error.end + 20].encode(errors="backslashreplace").decode()
        raise DpackError(
            "cannot describe the image in JSON",
            f"not UTF-8: …{where}…",
            next="give the file a name in UTF-8",
        ) from error


def parsed(blob: bytes, document: str) -> dict[str, Any]:
    """The object that a JSON document holds; DpackError, naming the document, when it holds none."""
    try:
        value = json.loads(blob)
    except (ValueError, RecursionError) as error:
        raise malformed(document, f"it is not JSON ({error})") from error
    return _object(value, document, "document")


def pairs(value: object, document: str, what: str) -> tuple[tuple[str, str], ...]:
    """A JSON object of texts, or null, as pairs sorted by key."""
    if value is None:
        return ()
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise malformed(document, f"its {what} are not pairs of texts")
    return tuple(sorted(value.items()))


def malformed(document: str, why: str) -> DpackError:
    """The error about a document that is not what the specification asks for."""
    return DpackError(
        f"cannot read {document}", why, next="check where the image comes from, or copy it anew"
    )


def _object(value: object, document: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed(document, f"a {what} in it is not a JSON object")
    return value


def _text(fields: Mapping[str, Any], key: str, document: str, otherwise: str | None = None) -> str:
    value = fields.get(key, otherwise)
    if not isinstance(value, str):
        raise malformed(document, f"{key} is {'missing' if value is None else 'not a text'}")
    return value
