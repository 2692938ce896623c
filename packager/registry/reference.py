"""The name of an image on a registry: HOST/REPOSITORY[:TAG][@DIGEST].

The grammar is that of the distribution specification (opencontainers/distribution-spec v1.1, "Pulling manifests")
for repository, tag and digest, and of distribution's reference package for the host. There is no default host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from packager.errors import DpackError, usage

_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_HOST = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:.]+\])(?::[0-9]{{1,5}})?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Of host and repository together: what clients and registries take (distribution-spec, "Pulling manifests").
_LONGEST = 255
_LATEST = "latest"
_FORM = "write it as HOST/REPOSITORY:TAG, for example registry.example.com/team/app:1.0"
_NAME_FORM = "write it as NAME:TAG, for example mnist:1.0 or registry.example.com/edge/mnist:1.0"


@dataclass(frozen=True, slots=True)
class Reference:
    """An image on a registry. Without tag and digest, the tag "latest" is meant, as everywhere."""

    host: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The reference that ``text`` writes; DpackError (exit 2), saying which part is wrong, for any other."""
        name, at, digest = text.partition("@")
        if at and not _DIGEST.fullmatch(digest):
            raise _wrong(
                text, f"{digest!r} is not a sha256 digest", next="a digest is sha256:, then 64 hex digits"
            )
        host, slash, rest = name.partition("/")
        if not slash or not _is_host(host):
            raise _no_host(text, host if slash else "")
        if not _HOST.fullmatch(host):
            raise _wrong(text, f"{host!r} is not a host, or a host with its port")
        repository, tag = _repository_and_tag(text, rest)
        if len(host) + 1 + len(repository) > _LONGEST:
            raise _wrong(text, f"host and repository are longer than {_LONGEST} characters")
        return cls(host, repository, tag or None, digest or None)

    @property
    def name(self) -> str:
        """Host and repository."""
        return f"{self.host}/{self.repository}"

    @property
    def target(self) -> str:
        """What to ask the registry for: the digest where there is one, else the tag."""
        return self.digest or self.tag or _LATEST

    @property
    def push_tag(self) -> str | None:
        """The tag that a push sets; None where the reference names a digest alone."""
        return self.tag or (None if self.digest else _LATEST)

    def at(self, digest: str) -> Self:
        """The same repository's image of that digest."""
        return replace(self, tag=None, digest=digest)

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


def parse_repository(text: str, host: str) -> str:
    """The repository that ``text`` names on ``host``, written with the host or without it.

    DpackError (exit 2) for one on another host: registries share blobs within themselves only.
    """
    first, _, rest = text.partition("/")
    if first == host:
        text = rest
    elif rest and _is_host(first):
        raise usage(
            f"cannot mount from {text}",
            f"it is on {first}, and {host} can only share its own blobs",
            next=f"name a repository on {host}",
        )
    if not _REPOSITORY.fullmatch(text):
        raise usage(
            f"cannot mount from {text}", _why_no_repository(text), next="name a repository, such as team/base"
        )
    return text


def check_name(text: str) -> None:
    """Refuse what an image that is written cannot be called; DpackError (exit 2). A name is a reference, with a
    host or without one, and without a digest.
    """
    if "@" in text:
        raise _wrong(text, "the digest of an image is known when it is written", next=_NAME_FORM)
    first, slash, _ = text.partition("/")
    if slash and _is_host(first):
        Reference.parse(text)
        return
    _repository_and_tag(text, text, _NAME_FORM)
    if len(text) > _LONGEST:
        raise _wrong(text, f"it is longer than {_LONGEST} characters", next=_NAME_FORM)


def _repository_and_tag(text: str, rest: str, form: str = _FORM) -> tuple[str, str]:
    """The parts of what stands behind the host; DpackError for what is none, ``form`` being what to write."""
    repository, colon, tag = rest.partition(":")
    if not _REPOSITORY.fullmatch(repository):
        raise _wrong(text, _why_no_repository(repository), next=form)
    if colon and not _TAG.fullmatch(tag):
        raise _wrong(
            text, f"{tag!r} is not a tag", next="a tag has letters, digits, dots, dashes, and at most 128"
        )
    return repository, tag


def _is_host(first: str) -> bool:
    """Whether the first part of a name can only be a host (distribution's rule): no repository has these."""
    return first == "localhost" or first != first.lower() or any(mark in first for mark in ".:[")


def _no_host(text: str, first: str) -> DpackError:
    if not first and _is_host(text.partition(":")[0]):
        return _wrong(text, "it names no repository", next=f"write {text}/REPOSITORY:TAG")
    if first:
        why, example = f"{first!r} is not a host: it has neither a dot nor a port", f"HOST/{text}"
    else:
        why, example = "it names no host", f"HOST/{text or 'team/app:1.0'}"
    return usage(
        f"cannot use the reference {text!r}", why, next=f"write the registry's host first: {example}"
    )


def _why_no_repository(repository: str) -> str:
    if not repository:
        return "it names no repository"
    if repository != repository.lower():
        return f"{repository!r} is not a repository: it has capital letters"
    return f"{repository!r} is not a repository: lower case letters, digits, and . _ - between them"


def _wrong(text: str, why: str, *, next: str = _FORM) -> DpackError:  # noqa: A002 - DpackError's own word
    return usage(f"cannot use the reference {text!r}", why, next=next)
