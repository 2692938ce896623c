"""One blob to a registry: skipped where it is there, mounted where it can be, else sent in chunks.

When the connection breaks, the registry is asked how far it got, and the upload goes on there; where the registry
has forgotten the upload, it starts over.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from typing import BinaryIO, Protocol

from packager.errors import DpackError
from packager.oci.descriptor import Descriptor
from packager.registry import session as sessions
from packager.registry.body import Reader
from packager.registry.client import Repository
from packager.registry.failure import unreachable, wrong
from packager.registry.session import Again, Session
from packager.registry.wire import Broken
from packager.source.parallel import check
from packager.source.progress import Bar


class Outcome(StrEnum):
    """What became of a blob."""

    UPLOADED = "uploaded"
    MOUNTED = "mounted"
    SKIPPED = "skipped"


class Blobs(Protocol):
    """Where blobs are read from."""

    def blob(self, descriptor: Descriptor) -> AbstractContextManager[BinaryIO]:
        """Open a blob for reading, with seek."""


def upload(
    repository: Repository, descriptor: Descriptor, source: Blobs, bar: Bar, mount_from: Sequence[str] = ()
) -> Outcome:
    """Make sure that the repository has the blob; returns how that came about.

    ``mount_from`` are repositories of the same registry that may have it. Raises DpackError where the registry
    refuses or stays away, or where the blob in ``source`` is not what its descriptor says.
    """
    if repository.has_blob(descriptor):
        return Outcome.SKIPPED
    session = None
    for other in mount_from:
        mounted, begun = sessions.mount(repository, descriptor, other)
        if mounted:
            return Outcome.MOUNTED
        if session and begun:
            sessions.cancel(repository, session)
        session = begun or session
    with source.blob(descriptor) as file:
        _Upload(repository, descriptor, Reader(file, descriptor, bar)).run(session)
    return Outcome.UPLOADED


class _Upload:
    """One blob on its way: sessions come and go, the furthest point that was reached stays."""

    def __init__(self, repository: Repository, descriptor: Descriptor, reader: Reader) -> None:
        self._repository = repository
        self._descriptor = descriptor
        self._reader = reader
        self._session: Session | None = None
        self._failures = 0
        self._furthest = 0

    def run(self, session: Session | None) -> None:
        """Send until the registry has it all; gives up after some tries in a row that brought nothing new."""
        self._session = session
        while True:
            try:
                self._session = self._session or sessions.begin(self._repository)
                self._send()
                sessions.finish(self._repository, self._session, self._descriptor)
            except Again as again:
                self._fail(again)
                if self._repository.has_blob(self._descriptor):
                    return  # the answer to the last request was lost, and not the request
                self._session = None if again.lost else self._resumed()
            else:
                return

    def _send(self) -> None:
        """Chunk after chunk, from where the registry is to the blob's end."""
        repository, size = self._repository, self._descriptor.size
        session = self._session
        while session and session.offset < size:
            check(repository.wire.stop)
            end = min(size, session.offset + max(repository.remote.access.chunk, session.least))
            session = self._session = sessions.patch(repository, session, self._reader, end)
            if session.offset > self._furthest:
                self._furthest, self._failures = session.offset, 0
        try:
            self._reader.check()
        except DpackError:
            if session:
                sessions.cancel(repository, session)
            raise

    def _resumed(self) -> Session | None:
        if self._session is None:
            return None
        session = sessions.resume(self._repository, self._session, self._descriptor.size)
        self._reader.show(session.offset if session else 0)
        return session

    def _fail(self, again: Again) -> None:
        self._failures += 1
        wire = self._repository.wire
        if self._failures >= wire.patience.attempts:
            raise self._given_up(again)
        wire.pause(self._failures, again.answer.headers if again.answer else None)

    def _given_up(self, again: Again) -> DpackError:
        remote = self._repository.remote
        if isinstance(again.reason, Broken):
            return unreachable(remote.purpose, remote.reference.host, again.reason)
        if isinstance(again.reason, DpackError):
            return again.reason
        if again.answer and again.answer.status >= 400:
            return self._repository.refusal(again.answer)
        return wrong(
            remote.purpose,
            f"{remote.reference.host} takes nothing of the blob {self._descriptor.digest}",
            next="check that all servers behind the registry's address share their storage",
        )
