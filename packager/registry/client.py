"""One repository on a registry: manifests, blobs and uploads by the distribution specification (v1.1).

Section names below are those of opencontainers/distribution-spec.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self
from urllib.parse import urljoin, urlsplit, urlunsplit

from packager.errors import DpackError
from packager.oci.descriptor import INDEX_TYPES, MANIFEST_TYPES, Descriptor, digest_of, parsed
from packager.registry.credentials import Credential, find_credential
from packager.registry.failure import RefusedError, refused, unreachable, wrong
from packager.registry.reference import Reference
from packager.registry.tokens import Tokens
from packager.registry.wire import (
    PATIENCE,
    Answer,
    Ask,
    Broken,
    Insecure,
    Patience,
    Wire,
    open_wire,
    origin_of,
)

if TYPE_CHECKING:
    import requests

# "Pushing Manifests": registries must take 4 MiB, and may refuse more.
_LARGEST_MANIFEST = 4 << 20
_ACCEPT = ", ".join((*sorted(MANIFEST_TYPES), *sorted(INDEX_TYPES)))
# A name that is wrong should be told soon; a registry that was there once is waited for.
_FIRST_ATTEMPTS = 3
_PULL = "pull"
_PUSH = "pull,push"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest or an index as the registry has it, with its descriptor."""

    descriptor: Descriptor
    content: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """How registries are reached.

    ``plain_http``  hosts to talk to without TLS.
    ``chunk``       bytes of a blob that one request sends, unless the registry wants more: what a broken
                    connection costs at the most.
    ``credential``  finds the credentials for a host and a repository; called when a registry wants some.
    """

    plain_http: frozenset[str] = frozenset()
    patience: Patience = PATIENCE
    chunk: int = 32 << 20
    credential: Callable[[str, str], Credential | None] = find_credential


@dataclass(frozen=True, slots=True)
class Remote:
    """A repository and how to reach it: what the threads of one command share.

    ``tokens`` is what the registry was shown so far.
    """

    reference: Reference
    access: Access
    push: bool
    tokens: Tokens

    @classmethod
    def of(cls, reference: Reference, access: Access, *, push: bool = False) -> Self:
        """A repository with nothing asked of it yet."""
        host, repository = reference.host, reference.repository
        tokens = Tokens(host, _purpose(reference, push=push), lambda: access.credential(host, repository))
        return cls(reference, access, push, tokens)

    @property
    def purpose(self) -> str:
        """What this is for, to complete "cannot" in messages."""
        return _purpose(self.reference, push=self.push)

    @contextmanager
    def connect(self, stop: threading.Event) -> Iterator[Repository]:
        """The repository for one thread; ``stop`` calls its work off."""
        with open_wire(self.access.plain_http, self.access.patience, stop) as wire:
            yield Repository(self, wire)


@dataclass(frozen=True, slots=True)
class Repository:
    """One thread's view of a repository. All methods raise DpackError where the registry refuses or is away."""

    remote: Remote
    wire: Wire = field(repr=False)

    def ping(self) -> None:
        """Make sure that a registry is there, and learn what it asks for ("Determining Support")."""
        url = f"{self.wire.origin(self.remote.reference.host)}/v2/"
        answer = self._send(Ask("GET", url, attempts=_FIRST_ATTEMPTS))
        if answer.status == 401:
            self.remote.tokens.learn(answer.headers.get("WWW-Authenticate", ""))
        elif answer.status != 200:
            raise refused(
                self.remote.purpose, answer, next="name the host that serves the registry's API under /v2/"
            )

    def manifest(self, target: str) -> Manifest:
        """The manifest or index that a tag or digest names, its digest checked ("Pulling manifests")."""
        answer = self.ask(Ask("GET", f"manifests/{target}", {"Accept": _ACCEPT}, limit=_LARGEST_MANIFEST + 1))
        self.expect(answer, 200)
        if len(answer.body) > _LARGEST_MANIFEST:
            raise wrong(
                self.remote.purpose, f"the manifest of {target} is larger than {_LARGEST_MANIFEST} bytes"
            )
        digest = digest_of(answer.body)
        stated = target if ":" in target else _stated(answer) or digest
        self.agree(f"the manifest {target}", stated, digest)
        return Manifest(Descriptor(_media_type(answer), digest, len(answer.body)), answer.body)

    def manifest_digest(self, target: str) -> str | None:
        """The digest of what a tag or digest names; None where there is no such thing, or none is stated."""
        answer = self.ask(Ask("HEAD", f"manifests/{target}", {"Accept": _ACCEPT}))
        if answer.status == 404:
            return None
        self.expect(answer, 200)
        return _stated(answer) or (target if ":" in target else None)

    def put_manifest(self, target: str, descriptor: Descriptor, content: bytes) -> str:
        """Store a manifest under a tag or its digest; returns the subject that the registry has noted, or ""."""
        answer = self.ask(Ask("PUT", f"manifests/{target}", {"Content-Type": descriptor.media_type}, content))
        self.expect(answer, 201, 200)
        self.agree(f"the manifest {target}", descriptor.digest, _stated(answer) or descriptor.digest)
        return answer.headers.get("OCI-Subject", "")

    def has_blob(self, descriptor: Descriptor) -> bool:
        """Whether the repository has the blob, and all of it."""
        answer = self.ask(Ask("HEAD", f"blobs/{descriptor.digest}"))
        if answer.status == 404:
            return False
        self.expect(answer, 200)
        length = answer.headers.get("Content-Length", "")
        return not length.isdigit() or int(length) == descriptor.size

    @contextmanager
    def blob(self, descriptor: Descriptor, offset: int) -> Iterator[requests.Response]:
        """One try to read a blob from a byte on, any status ("Pulling blobs"). Raises Broken."""
        tokens, scopes = self.remote.tokens, self._scopes()
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        ask = Ask("GET", self.url(f"blobs/{descriptor.digest}"), headers)
        used = tokens.authorization(self.wire, scopes)
        with ExitStack() as stack:
            response = stack.enter_context(self._stream(replace(ask, authorization=used)))
            if response.status_code == 401:
                said = Answer(401, response.reason or "", response.headers, b"", ask.url)
                fresh = tokens.renew(self.wire, scopes, said, used)
                if fresh is None:
                    raise self.refusal(said)
                response = stack.enter_context(self._stream(replace(ask, authorization=fresh)))
            yield response

    def ask(self, ask: Ask, *, sources: tuple[str, ...] = ()) -> Answer:
        """The answer, any status, to a request for a path below the repository or for a whole address.

        ``sources`` are other repositories of the registry to be read. A 401 is answered with credentials or a
        new token, once. Raises Broken for a request that is tried only once.
        """
        url = ask.url if "://" in ask.url else self.url(ask.url)
        scopes = self._scopes(sources)
        if origin_of(url) != origin_of(self.url("")):
            return self._send(replace(ask, url=url))
        used = self.remote.tokens.authorization(self.wire, scopes)
        answer = self._send(replace(ask, url=url, authorization=used))
        if answer.status != 401:
            return answer
        fresh = self.remote.tokens.renew(self.wire, scopes, answer, used)
        return answer if fresh is None else self._send(replace(ask, url=url, authorization=fresh))

    def url(self, path: str) -> str:
        """The address of a path below the repository."""
        reference = self.remote.reference
        return f"{self.wire.origin(reference.host)}/v2/{reference.repository}/{path}"

    def located(self, answer: Answer) -> str | None:
        """The address in an answer's Location, absolute; a registry behind a proxy may not know of its TLS."""
        where = answer.headers.get("Location")
        if not where:
            return None
        parts, origin = urlsplit(urljoin(answer.url, where)), urlsplit(self.url(""))
        if parts.netloc == origin.netloc:
            parts = parts._replace(scheme=origin.scheme)
        return urlunsplit(parts)

    def expect(self, answer: Answer, *statuses: int) -> None:
        """RefusedError where the answer has another status."""
        if answer.status not in statuses:
            raise self.refusal(answer)

    def refusal(self, answer: Answer) -> RefusedError:
        """The error for an answer, with a hint at the credentials that did not help."""
        source = self.remote.tokens.source
        if answer.status == 401 and source:
            advice = f"the credentials come from {source}: log in anew, or ask for the right to do this"
            return refused(self.remote.purpose, answer, next=advice)
        return refused(self.remote.purpose, answer)

    def stored(self, answer: Answer, descriptor: Descriptor) -> None:
        """DpackError where the registry has stored a blob under another digest than its descriptor's."""
        self.agree("a blob", descriptor.digest, _stated(answer) or descriptor.digest)

    def agree(self, what: str, expected: str, found: str) -> None:
        """DpackError where two digests that must be one are not."""
        if expected == found:
            return
        raise DpackError(
            f"cannot {self.remote.purpose}",
            f"{self.remote.reference.host} and dpack do not agree on {what}",
            tried=(f"expected {expected}", f"got      {found}"),
            next="try again; if it stays so, a proxy or the registry's storage changes what it is given",
        )

    def _scopes(self, sources: tuple[str, ...] = ()) -> tuple[str, ...]:
        own = f"repository:{self.remote.reference.repository}:{_PUSH if self.remote.push else _PULL}"
        return (own, *(f"repository:{source}:{_PULL}" for source in sources))

    @contextmanager
    def _stream(self, ask: Ask) -> Iterator[requests.Response]:
        try:
            with self.wire.stream(ask) as response:
                yield response
        except Insecure as failure:
            raise unreachable(self.remote.purpose, self.remote.reference.host, failure) from None

    def _send(self, ask: Ask) -> Answer:
        try:
            return self.wire.ask(ask)
        except (Broken, Insecure) as failure:
            if ask.attempts == 1 and isinstance(failure, Broken):
                raise
            raise unreachable(self.remote.purpose, urlsplit(ask.url).netloc, failure) from None


def _stated(answer: Answer) -> str:
    """The sha256 digest that the registry states for what it sends or has stored, "" where it states none."""
    digest = answer.headers.get("Docker-Content-Digest", "")
    return digest if digest.startswith("sha256:") else ""


def _media_type(answer: Answer) -> str:
    """The type in the document itself where it has one, as image-spec 1.1 wants it to; else the header's."""
    stated = parsed(answer.body, f"the manifest at {answer.url}").get("mediaType")
    return str(stated) if stated else answer.headers.get("Content-Type", "").partition(";")[0].strip()


def _purpose(reference: Reference, *, push: bool) -> str:
    return f"{'push' if push else 'pull'} {reference}"
