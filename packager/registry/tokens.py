"""Authorisations for a registry: Basic, or tokens that a token server gives for a scope and for a time.

Source: distribution's token specification (docs/spec/auth/token and oauth).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from packager.registry.challenge import Challenge, choose, parse_challenges
from packager.registry.credentials import Credential
from packager.registry.failure import refused, unreachable, wrong
from packager.registry.wire import Answer, Ask, Broken, Insecure, Wire

# Seconds that a token is good for where its server does not say (the specification's figure) ...
_USUAL = 60.0
# ... and how long before its end it is no longer used, so that it does not run out on the way.
_MARGIN = 10.0
_LONGEST_TOKEN = 1 << 20
_CLIENT = "dpack"


@dataclass(frozen=True, slots=True)
class _Token:
    authorization: str = field(repr=False)
    until: float

    @property
    def good(self) -> bool:
        return time.monotonic() < self.until


class Tokens:
    """What one registry was shown and has asked for. Shared by threads; the lock keeps them from asking twice."""

    def __init__(self, host: str, purpose: str, credential: Callable[[], Credential | None]) -> None:
        self._host = host
        self._purpose = purpose
        self._find = credential
        self._credential: Credential | None = None
        self._looked = False
        self._challenge: Challenge | None = None
        self._tokens: dict[tuple[str, ...], _Token] = {}
        self._lock = threading.Lock()

    def learn(self, header: str) -> None:
        """Keep what the registry asks for, so that the next request brings it at once."""
        with self._lock:
            self._challenge = choose(parse_challenges(header)) or self._challenge

    def authorization(self, wire: Wire, scopes: tuple[str, ...]) -> str | None:
        """The Authorization header for these scopes; None where the registry has not asked for any."""
        with self._lock:
            token = self._tokens.get(scopes)
            if token and token.good:
                return token.authorization
            return None if self._challenge is None else self._fresh(wire, scopes, self._challenge)

    def renew(self, wire: Wire, scopes: tuple[str, ...], answer: Answer, used: str | None) -> str | None:
        """The header to try after a 401; None where there is nothing better than ``used``."""
        with self._lock:
            token = self._tokens.get(scopes)
            if token and token.good and token.authorization != used:
                return token.authorization
            challenge = choose(parse_challenges(answer.headers.get("WWW-Authenticate", "")))
            if challenge is None:
                return None
            self._challenge = challenge
            fresh = self._fresh(wire, scopes, challenge)
            return None if fresh == used else fresh

    @property
    def source(self) -> str:
        """The file or program that the credentials came from; "" where there are none."""
        return self._credential.source if self._credential else ""

    def _fresh(self, wire: Wire, scopes: tuple[str, ...], challenge: Challenge) -> str | None:
        credential = self._found()
        if challenge.scheme == "basic":
            usable = credential is not None and credential.username
            return f"Basic {credential.basic}" if credential and usable else None
        wanted = _merged((*scopes, *challenge.get("scope").split()))
        token = self._token(wire, challenge, wanted, credential)
        self._tokens[scopes] = token
        return token.authorization

    def _found(self) -> Credential | None:
        if not self._looked:
            self._credential, self._looked = self._find(), True
        return self._credential

    def _token(
        self, wire: Wire, challenge: Challenge, scopes: tuple[str, ...], credential: Credential | None
    ) -> _Token:
        realm = challenge.get("realm")
        if not wire.allowed(realm):
            host = urlsplit(realm).netloc
            raise wrong(
                self._purpose,
                f"{self._host} wants a token from {realm or 'nowhere'}, which is not encrypted",
                next=f"if that is meant to be so, give --plain-http {host}" if host else "",
            )
        try:
            answer = wire.ask(_token_request(realm, challenge.get("service"), scopes, credential))
        except (Broken, Insecure) as failure:
            raise unreachable(self._purpose, urlsplit(realm).netloc, failure) from None
        if answer.status != 200:
            advice = f"the credentials come from {credential.source}; log in anew" if credential else ""
            raise refused(self._purpose, answer, next=advice if answer.status in {401, 403} else "")
        return self._parsed(answer)

    def _parsed(self, answer: Answer) -> _Token:
        try:
            fields = json.loads(answer.body)
            text = fields.get("token") or fields.get("access_token")
            seconds = float(fields.get("expires_in") or _USUAL)
        except (ValueError, TypeError, AttributeError, RecursionError):
            text, seconds = None, _USUAL
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            raise wrong(self._purpose, f"{urlsplit(answer.url).netloc} answers without a token")
        return _Token(f"Bearer {text}", time.monotonic() + max(seconds - _MARGIN, seconds / 2))


def _merged(scopes: tuple[str, ...]) -> tuple[str, ...]:
    """The scopes with each resource once: "repository:team/app:pull" goes into the same with "pull,push"."""
    actions: dict[str, dict[str, None]] = {}
    for scope in scopes:
        resource, _, wanted = scope.rpartition(":")
        actions.setdefault(resource, {}).update(dict.fromkeys(wanted.split(",")))
    return tuple(f"{resource}:{','.join(wanted)}" for resource, wanted in actions.items())


def _token_request(realm: str, service: str, scopes: tuple[str, ...], credential: Credential | None) -> Ask:
    """A GET with Basic credentials or none; a POST in OAuth's form where the credential is an identity token."""
    common = [("service", service)] if service else []
    if credential and credential.identity_token:
        form = [
            *common,
            ("grant_type", "refresh_token"),
            ("client_id", _CLIENT),
            ("refresh_token", credential.identity_token),
            *([("scope", " ".join(scopes))] if scopes else []),
        ]
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        return Ask("POST", realm, headers, urlencode(form).encode(), limit=_LONGEST_TOKEN)
    query = urlencode([*common, *(("scope", scope) for scope in scopes)])
    joined = f"{realm}{'&' if urlsplit(realm).query else '?'}{query}" if query else realm
    basic = f"Basic {credential.basic}" if credential else None
    return Ask("GET", joined, authorization=basic, limit=_LONGEST_TOKEN)
