"""What a registry asks for when it answers 401 (RFC 9110, section 11.6.1; distribution's token specification)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"  # noqa: S105 - the grammar's word for a word
_PIECE = re.compile(
    rf"""\s*,?\s*(?:(?P<key>{_TOKEN})\s*=\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>{_TOKEN}))"""
    rf"|(?P<scheme>{_TOKEN})(?=\s|,|$))"
)


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate: ``scheme`` in lower case, "bearer" or "basic", and its parameters."""

    scheme: str
    parameters: tuple[tuple[str, str], ...] = ()

    def get(self, key: str) -> str:
        """A parameter's value, "" where it is not given."""
        return dict(self.parameters).get(key, "")


def parse_challenges(header: str) -> tuple[Challenge, ...]:
    """The challenges of a WWW-Authenticate header, in its order; what cannot be understood ends the list."""
    found: list[tuple[str, list[tuple[str, str]]]] = []
    position = 0
    while piece := _PIECE.match(header, position):
        position = piece.end()
        if scheme := piece["scheme"]:
            found.append((scheme.lower(), []))
        elif found:
            quoted = piece["quoted"]
            value = piece["plain"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            found[-1][1].append((piece["key"].lower(), value))
    return tuple(Challenge(scheme, tuple(parameters)) for scheme, parameters in found)


def choose(challenges: tuple[Challenge, ...]) -> Challenge | None:
    """The challenge to answer: a token server's where there is one, else Basic; None for neither."""
    for scheme in ("bearer", "basic"):
        for challenge in challenges:
            if challenge.scheme == scheme:
                return challenge
    return None
