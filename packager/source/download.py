"""One wheel file, whole and checked, however often the connection breaks.

A download grows in a ``.part`` file. It is resumed with Range and If-Range (RFC 9110, sections 13.1.5 and
14.2), so a file that changed on the server starts over by itself. The sha256 decides in the end.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from packager.errors import DpackError
from packager.source.cache import check_room, part_path, storing
from packager.source.index import Candidate
from packager.source.parallel import check
from packager.source.progress import Bar, Progress
from packager.source.redact import redact
from packager.source.transport import Connection, continues, local_path, refused, unreachable

if TYPE_CHECKING:
    import requests

_CHUNK = 1 << 20
# Small, because what a broken connection leaves of a chunk is lost.
_RECEIVED = 1 << 16


@dataclass(frozen=True, slots=True)
class Transfer:
    """One file to get: from where, into which cache, and ``wanted``, the requirement that asks for it."""

    candidate: Candidate
    wanted: str
    cache: Path
    connection: Connection
    progress: Progress

    @property
    def file(self) -> str:
        """The wheel's file name."""
        return self.candidate.wheel.file

    @property
    def part(self) -> Path:
        """Where it grows, and stays until :func:`discard`."""
        return part_path(self.cache, self.file)


class _Broken(Exception):  # noqa: N818 - the name of a state: the connection broke, the part is there
    """The connection broke in the middle of a body."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Part:
    """The growing file, hashed as it grows, with the bar that shows it."""

    def __init__(self, transfer: Transfer) -> None:
        self._transfer = transfer
        self._bar: Bar | None = None
        self._hash = hashlib.sha256()
        self.size = 0
        transfer.part.parent.mkdir(parents=True, exist_ok=True)
        self._file = transfer.part.open("ab")
        with transfer.part.open("rb") as present:
            while self._file.tell() and (chunk := present.read(_CHUNK)):
                check(transfer.connection.stop)
                self._count(chunk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.finish()
        self._file.close()

    @property
    def digest(self) -> str:
        """The sha256 of what is there, in hex."""
        return self._hash.hexdigest()

    def expect(self, total: int | None) -> None:
        """Show the bar, once, with what is there already; DpackError where the rest has no room."""
        if self._bar is None:
            self._bar = self._transfer.progress.start(self._transfer.file, total)
            self._bar.advance(self.size)
        if total:
            check_room(
                self._transfer.cache, self._transfer.part.parent, self._transfer.file, total - self.size
            )

    def extend(self, chunks: Iterable[bytes]) -> None:
        """Write the chunks as they come."""
        for chunk in chunks:
            check(self._transfer.connection.stop)
            self._file.write(chunk)
            self._count(chunk)
            if self._bar:
                self._bar.advance(len(chunk))
        self._file.flush()

    def restart(self) -> None:
        """Forget what is there."""
        if self.size:
            self._file.truncate(0)
            if self._bar:
                self._bar.advance(-self.size)
        self._hash, self.size = hashlib.sha256(), 0

    def _count(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.size += len(chunk)


def download(transfer: Transfer) -> str:
    """The file whole in ``transfer.part``, its sha256 checked; returns that sha256 in hex.

    A directory of the user's own states no hashes; its files are taken as they are. Anything that comes
    over the network without one is refused, because nothing then tells a whole file from a damaged one.
    """
    expected = transfer.candidate.sha256
    if expected is None and local_path(transfer.candidate.url) is None:
        raise DpackError(
            f"cannot fetch {transfer.wanted}",
            f"the index states no sha256 for {transfer.file}, so it could not be checked",
            tried=(redact(transfer.candidate.url),),
            next="use an index that states hashes, or download the file and name its directory in find-links",
        )
    if expected is None or _note(transfer).get("sha256", expected) != expected:
        discard(transfer)
    digest, resumed = _whole(transfer)
    if resumed and expected not in {None, digest}:
        # The part may have been damaged long ago; one download from the first byte tells.
        discard(transfer)
        digest, _ = _whole(transfer)
    if expected not in {None, digest}:
        discard(transfer)
        raise _wrong_hash(transfer, digest)
    return digest


def discard(transfer: Transfer) -> None:
    """Remove the part and the note beside it."""
    transfer.part.unlink(missing_ok=True)
    _note_path(transfer).unlink(missing_ok=True)


def _whole(transfer: Transfer) -> tuple[str, bool]:
    """The sha256 of the file when all of it is there, and whether an older part was built on."""
    with _Part(transfer) as part:
        resumed = part.size > 0
        if resumed and part.digest == transfer.candidate.sha256:
            return part.digest, resumed
        path = local_path(transfer.candidate.url)
        if path:
            part.restart()
            _copy(transfer, part, path)
        else:
            _receive_all(transfer, part)
        return part.digest, resumed


def _copy(transfer: Transfer, part: _Part, path: Path) -> None:
    try:
        with path.open("rb") as source:
            total = path.stat().st_size
            with storing(transfer.cache, transfer.file, total):
                part.expect(total)
                part.extend(iter(lambda: source.read(_CHUNK), b""))
    except FileNotFoundError:
        raise DpackError(
            f"cannot fetch {transfer.wanted}",
            f"{path} does not exist, though the index lists it",
            next="check extra-index-url and find-links in pip's configuration",
        ) from None


def _receive_all(transfer: Transfer, part: _Part) -> None:
    """Ask until the file is whole; gives up after ``retries`` breaks in a row that brought nothing new."""
    failures = 0
    while True:
        before = part.size
        try:
            _receive(transfer, part)
        except _Broken as broken:
            failures = 1 if part.size > before else failures + 1
            if failures > transfer.connection.pip.retries:
                raise unreachable(transfer.wanted, transfer.candidate.url, broken.reason) from None
            transfer.connection.pause(failures)
        else:
            return


def _receive(transfer: Transfer, part: _Part) -> None:
    """One request for what is missing, and its body."""
    import requests  # noqa: PLC0415 - start-up time

    url = transfer.candidate.url
    try:
        response = transfer.connection.get(url, _headers(transfer, part), stream=True)
    except requests.RequestException as error:
        raise unreachable(transfer.wanted, url, error) from None
    with response:
        if part.size and not continues(response, part.size):
            part.restart()
            if response.status_code in {206, 416}:
                # Another range than the one asked for, or none: ask again, now for all of it.
                response.close()
                _receive(transfer, part)
                return
        if response.status_code not in {200, 206}:
            raise refused(transfer.wanted, url, response)
        length = response.headers.get("Content-Length", "")
        total = part.size + int(length) if length.isdigit() else transfer.candidate.size
        with storing(transfer.cache, transfer.file, total or 0):
            part.expect(total)
            _write_note(transfer, response)
            try:
                part.extend(response.iter_content(_RECEIVED))
            except requests.RequestException as error:
                raise _Broken(error) from None


def _headers(transfer: Transfer, part: _Part) -> dict[str, str]:
    # A compressed transfer would make byte ranges mean something else.
    headers = {"Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
        if validator := _note(transfer).get("validator"):
            headers["If-Range"] = validator
    return headers


def _note_path(transfer: Transfer) -> Path:
    return transfer.part.with_name(transfer.part.name + ".json")


def _note(transfer: Transfer) -> dict[str, str]:
    """What is known of the part: the sha256 it is to have, and the server's validator."""
    try:
        fields = json.loads(_note_path(transfer).read_bytes())
    except (OSError, ValueError):
        return {}
    return {key: str(value) for key, value in fields.items() if value} if isinstance(fields, dict) else {}


def _write_note(transfer: Transfer, response: requests.Response) -> None:
    etag = response.headers.get("ETag", "")
    # A weak validator must not be used in If-Range (RFC 9110, section 13.1.5).
    validator = response.headers.get("Last-Modified", "") if etag.startswith("W/") or not etag else etag
    fields = {"sha256": transfer.candidate.sha256, "validator": validator}
    _note_path(transfer).write_text(json.dumps(fields), encoding="utf-8")


def _wrong_hash(transfer: Transfer, digest: str) -> DpackError:
    return DpackError(
        f"cannot fetch {transfer.wanted}",
        f"{transfer.file} is not the file that the index describes",
        tried=(
            f"expected sha256 {transfer.candidate.sha256}",
            f"got      sha256 {digest}",
            f"from {redact(transfer.candidate.url)}",
        ),
        next="the bad file is removed; try again; if it stays so, a proxy or mirror changes the file",
    )
