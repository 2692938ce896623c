"""An upload as the registry keeps it: begun, filled in chunks, asked for, closed or cancelled.

Source: distribution-spec v1.1, "Pushing blobs".
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from packager.errors import DpackError
from packager.oci.descriptor import Descriptor
from packager.registry.body import Reader
from packager.registry.client import Repository
from packager.registry.failure import RefusedError, wrong
from packager.registry.wire import PASSING, Answer, Ask, Broken

_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")
_BYTES = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Session:
    """Where to send the next chunk to, how many bytes the registry has, and the least bytes of a chunk.

    ``resumed`` tells that the connection broke on the way: what the registry has may not be what it says.
    """

    url: str
    offset: int = 0
    least: int = 0
    resumed: bool = False


class Again(Exception):  # noqa: N818 - the name of a state
    """A request was not done: the connection broke, or the registry is busy or has forgotten the upload.

    ``reason``  why, where the registry itself did not say it.
    ``answer``  what the registry said, None where it said nothing.
    ``lost``    whether there is no upload left to go on with.
    """

    def __init__(self, reason: Exception | None, answer: Answer | None = None, *, lost: bool = False) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.answer = answer
        self.lost = lost


def mount(repository: Repository, descriptor: Descriptor, other: str) -> tuple[bool, Session | None]:
    """Whether the registry has linked the blob from another repository; if not, the upload that it began instead.

    Another repository that may not be read is no error: an ordinary upload may still be allowed.
    """
    path = f"blobs/uploads/?mount={descriptor.digest}&from={other}"
    try:
        answer = repository.ask(Ask("POST", path), sources=(other,))
    except RefusedError:
        return False, None
    if answer.status == 201:
        repository.stored(answer, descriptor)
        return True, None
    begun = answer.status == 202 and repository.located(answer)
    return False, _session(repository, answer) if begun else None


def begin(repository: Repository) -> Session:
    """A new upload."""
    answer = repository.ask(Ask("POST", "blobs/uploads/"))
    repository.expect(answer, 202)
    return _session(repository, answer)


def patch(repository: Repository, session: Session, reader: Reader, end: int) -> Session:
    """Send the bytes up to ``end``; the session afterwards, with as many bytes as the registry says it has."""
    start = session.offset
    headers = {"Content-Type": _BYTES, "Content-Range": f"{start}-{end - 1}"}
    answer = _once(repository, Ask("PATCH", session.url, headers, lambda: reader.window(start, end)))
    if answer.status == 416:
        raise Again(None, answer)
    if answer.status in {400, 404}:
        raise Again(None, answer, lost=True)
    repository.expect(answer, 202)
    received = _received(answer)
    offset = end if received is None else min(received, end)
    if offset <= start:
        raise Again(None, answer, lost=True)
    return replace(session, url=_located(repository, answer), offset=offset)


def finish(repository: Repository, session: Session, descriptor: Descriptor) -> None:
    """Close the upload, with the digest for the registry to check."""
    url = f"{session.url}{'&' if urlsplit(session.url).query else '?'}digest={descriptor.digest}"
    answer = _once(repository, Ask("PUT", url, {"Content-Type": _BYTES}))
    if answer.status == 404 or (answer.status == 400 and session.resumed):
        raise Again(None, answer, lost=True)
    repository.expect(answer, 201)
    repository.stored(answer, descriptor)


def resume(repository: Repository, session: Session, size: int) -> Session | None:
    """The upload as the registry has it now; None where it cannot be continued.

    A registry that says less than it has confirmed before does not know (distribution 2.x says "0-0" whatever
    it has), and 0-0 may be one byte or none: both start over.
    """
    answer = repository.ask(Ask("GET", session.url))
    received = _received(answer) or 0
    if answer.status not in {200, 202, 204} or not max(session.offset, 2) <= received <= size:
        cancel(repository, session)
        return None
    return Session(repository.located(answer) or session.url, received, session.least, resumed=True)


def cancel(repository: Repository, session: Session) -> None:
    """Ask the registry to forget an upload. Where that fails, it forgets by itself in the end."""
    with contextlib.suppress(Broken, DpackError):
        repository.ask(Ask("DELETE", session.url, attempts=1))


def _session(repository: Repository, answer: Answer) -> Session:
    least = answer.headers.get("OCI-Chunk-Min-Length", "")
    return Session(_located(repository, answer), 0, int(least) if least.isdigit() else 0)


def _located(repository: Repository, answer: Answer) -> str:
    url = repository.located(answer)
    if url is None:
        # A connection that breaks between two headers looks like an answer that lacks the rest.
        host = repository.remote.reference.host
        raise Again(wrong(repository.remote.purpose, f"{host} does not say where to upload to"), answer)
    return url


def _once(repository: Repository, ask: Ask) -> Answer:
    """A request tried once: before the next try, the registry must say what it has got of this one."""
    try:
        answer = repository.ask(replace(ask, attempts=1))
    except Broken as broken:
        raise Again(broken) from None
    if answer.status in PASSING:
        raise Again(None, answer)
    return answer


def _received(answer: Answer) -> int | None:
    """How many bytes the registry has, by its Range header: "0-99" says 100; None where it says nothing."""
    match = _RANGE.fullmatch(answer.headers.get("Range", "").strip())
    return int(match[1]) + 1 if match else None
