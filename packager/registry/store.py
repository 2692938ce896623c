"""Blobs of registries in dpack's cache, each under its digest: <cache>/blobs/sha256/…

A blob grows in a hidden file beside its place, and is renamed when its digest is right; a download that was
interrupted goes on there.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from packager.errors import DpackError
from packager.oci.descriptor import Descriptor
from packager.registry.client import Remote, Repository
from packager.registry.failure import unreachable, wrong
from packager.registry.wire import PASSING, Answer, Broken
from packager.source.cache import check_room, lock, storing, sync_directory
from packager.source.parallel import check
from packager.source.progress import Bar, Progress
from packager.source.transport import continues

if TYPE_CHECKING:
    pass

_READ = 1 << 20
# Small, because what a broken connection leaves of a piece is lost.
_RECEIVED = 1 << 16


@dataclass(frozen=True, slots=True)
class Store:
    """The blobs in a cache directory, filled from one repository."""

    remote: Remote
    cache: Path
    progress: Progress

    def fetch(self, descriptor: Descriptor, stop: threading.Event) -> Path:
        """The blob's file, downloaded where it is not there yet; its size and digest are checked either way."""
        place = self.cache / "blobs" / "sha256" / descriptor.hex
        with storing(self.cache, descriptor.digest, descriptor.size):
            place.parent.mkdir(parents=True, exist_ok=True)
            with lock(self.cache, f"sha256-{descriptor.hex}", stop):
                if not _is(place, descriptor, stop):
                    self._download(descriptor, place, stop)
        return place

    def _download(self, descriptor: Descriptor, place: Path, stop: threading.Event) -> None:
        beside = place.with_name(f".{place.name}.part")
        resumed = self._receive(descriptor, beside, stop)
        if not beside.exists() and resumed:
            # The part may have been damaged long ago; one download from the first byte tells.
            self._receive(descriptor, beside, stop)
        if not beside.exists():
            raise _other_content(self.remote, descriptor)
        beside.rename(place)
        sync_directory(place.parent)

    def _receive(self, descriptor: Descriptor, beside: Path, stop: threading.Event) -> bool:
        """Complete the part; one with another digest is removed. Returns whether an older part was built on."""
        bar = self.progress.start(f"blob {descriptor.hex[:12]}", descriptor.size)
        try:
            with self.remote.connect(stop) as repository, _Part(beside, descriptor, bar, stop) as part:
                older = part.size > 0
                check_room(self.cache, beside.parent, descriptor.digest, part.missing)
                _receive_all(repository, part)
                correct = part.settled()
        finally:
            bar.finish()
        if not correct:
            beside.unlink()
        return older


class _Part:
    """A blob as far as it has come, hashed as it grows."""

    def __init__(self, path: Path, descriptor: Descriptor, bar: Bar, stop: threading.Event) -> None:
        self.descriptor = descriptor
        self.size = 0
        self._bar = bar
        self._stop = stop
        self._hash = hashlib.sha256()
        self._file = path.open("r+b" if path.exists() else "w+b")

    def __enter__(self) -> Self:
        try:
            while piece := self._file.read(_READ):
                self._count(piece)
            if self.size > self.descriptor.size:
                self.restart()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def missing(self) -> int:
        """Bytes that have not come yet."""
        return self.descriptor.size - self.size

    def restart(self) -> None:
        """Forget what is there."""
        self._file.seek(0)
        self._file.truncate()
        self._bar.advance(-self.size)
        self._hash, self.size = hashlib.sha256(), 0

    def extend(self, pieces: Iterable[bytes]) -> None:
        """Write the pieces as they come, and stop where there is more than the descriptor says."""
        for piece in pieces:
            self._file.write(piece)
            self._count(piece)
            if self.missing < 0:
                return

    def settled(self) -> bool:
        """Whether this is the blob; it is then safe on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self.missing == 0 and self._hash.hexdigest() == self.descriptor.hex

    def _count(self, piece: bytes) -> None:
        check(self._stop)
        self._hash.update(piece)
        self.size += len(piece)
        self._bar.advance(len(piece))


def _receive_all(repository: Repository, part: _Part) -> None:
    """Ask until the part is whole; gives up after some breaks in a row that brought nothing new."""
    failures, furthest = 0, part.size
    while part.missing > 0:
        try:
            _receive_rest(repository, part)
        except Broken as broken:
            failures = 1 if part.size > furthest else failures + 1
            furthest = max(furthest, part.size)
            if failures >= repository.wire.patience.attempts:
                remote = repository.remote
                raise unreachable(remote.purpose, remote.reference.host, broken) from None
            repository.wire.pause(failures, broken.headers)


def _receive_rest(repository: Repository, part: _Part) -> None:
    """One request for what is missing, and its body. Broken where it ends early."""
    import requests  # noqa: PLC0415 - start-up time

    with repository.blob(part.descriptor, part.size) as response:
        if response.status_code in PASSING:
            reason = requests.HTTPError(f"it answers {response.status_code}")
            raise Broken(reason, response.headers)
        if part.size and not continues(response, part.size):
            part.restart()
            if response.status_code in {206, 416}:
                raise Broken(requests.HTTPError("it answers with another range than the one asked for"))
        if response.status_code not in {200, 206}:
            body = next(response.iter_content(_RECEIVED), b"")
            raise repository.refusal(
                Answer(response.status_code, response.reason or "", response.headers, body, response.url)
            )
        length = response.headers.get("Content-Length", "")
        if length.isdigit() and int(length) != part.missing:
            raise _other_content(repository.remote, part.descriptor)
        try:
            part.extend(response.iter_content(_RECEIVED))
        except requests.RequestException as error:
            raise Broken(error) from None
        if part.missing > 0:
            raise Broken(requests.ConnectionError("the answer ends early"))


def _other_content(remote: Remote, descriptor: Descriptor) -> DpackError:
    return wrong(
        remote.purpose, f"{remote.reference.host} sends another content for the blob {descriptor.digest}"
    )


def _is(path: Path, descriptor: Descriptor, stop: threading.Event) -> bool:
    """Whether a file is there and is the blob."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != descriptor.size:
                return False
            hashed = hashlib.sha256()
            while piece := file.read(_READ):
                check(stop)
                hashed.update(piece)
    except FileNotFoundError:
        return False
    return hashed.hexdigest() == descriptor.hex
