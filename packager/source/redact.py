"""Addresses as they may be printed: without user names, passwords and tokens."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

_USERINFO = re.compile(r"(?<=://)[^/\s@'\"]*(?:@[^/\s@'\"]*)*@")
_QUERY = re.compile(r"(?<=\?)[^\s'\")>]+")


def redact(text: str) -> str:
    """Text with the user part and the query of each address in it replaced by ``***``."""
    return re.sub(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>]+", _one, text, flags=re.IGNORECASE)


def with_credentials(url: str, index: str) -> str:
    """``url`` with the user part of ``index``, where both are on the same host and ``url`` has none.

    Index pages may state whole addresses, and those carry no credentials. pip does the same.
    """
    there, here = urlsplit(url), urlsplit(index)
    user, at, host = here.netloc.rpartition("@")
    if not at or (there.scheme, there.netloc) != (here.scheme, host):
        return url
    return urlunsplit(there._replace(netloc=f"{user}@{there.netloc}"))


def _one(match: re.Match[str]) -> str:
    return _QUERY.sub("***", _USERINFO.sub("***@", match[0]))
