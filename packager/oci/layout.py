"""Where an image's blobs go: a directory in the image layout, or a tar of it, written once, front to back.

The layout is "OCI Image Layout Specification" of image-spec 1.1: oci-layout, index.json, blobs/sha256/….
"""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from packager.emit.archive import header
from packager.emit.pipeline import write_all
from packager.errors import DpackError
from packager.oci.descriptor import Descriptor

_DIRECTORIES = ("blobs", "blobs/sha256")
_PIECE = 4 << 20
_MODE = 0o644


class Layout(Protocol):
    """A layout that is being written, one blob after the other."""

    def begin(self) -> int:
        """An open file, at the place where the next blob's bytes go."""

    def end(self, blob: Descriptor) -> None:
        """Give the blob that was begun its name, and know it from now on."""

    def has(self, blob: Descriptor) -> bool:
        """Whether the layout has the blob."""

    def file(self, name: str, content: bytes) -> None:
        """Add a file beside the blobs."""

    def finish(self) -> int:
        """Bring everything to the disk, and return its size: of the archive, or of all files together."""


def put(layout: Layout, blob: Descriptor, content: bytes) -> None:
    """Add a blob from memory, unless it is there."""
    if not layout.has(blob):
        write_all(layout.begin(), memoryview(content))
        layout.end(blob)


def copy(layout: Layout, blob: Descriptor, stream: BinaryIO, source: str) -> None:
    """Add a blob from a stream, unless it is there.

    Raises DpackError, naming the source, when the bytes are not those that the descriptor promises.
    """
    if layout.has(blob):
        return
    digest, size, output = hashlib.sha256(), 0, layout.begin()
    while piece := stream.read(min(_PIECE, blob.size - size + 1)):
        digest.update(piece)
        write_all(output, memoryview(piece))
        size += len(piece)
    if (digest.hexdigest(), size) != (blob.hex, blob.size):
        raise DpackError(
            f"cannot copy a layer of {source}",
            f"{blob.digest} has {blob.size:,} bytes, but what came are {size:,} of sha256:{digest.hexdigest()}",
            next="get the image anew",
        )
    layout.end(blob)


class _Writing:
    """What both forms of a layout share: which blobs are there, and the one open file."""

    def __init__(self, path: Path, epoch: int) -> None:
        self._path, self._epoch = path, epoch
        self._known: set[str] = set()
        self._open: int | None = None
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            os.close(self._open)
            self._open = None

    def has(self, blob: Descriptor) -> bool:
        """Whether the layout has the blob."""
        return blob.digest in self._known


class LayoutDirectory(_Writing):
    """A layout as a new directory, with exact modes and times.

    A blob is written under a name of its own and renamed when its digest is known.
    """

    def __enter__(self) -> Self:
        self._path.mkdir(mode=0o700)
        for name in _DIRECTORIES:
            (self._path / name).mkdir()
        return self

    def begin(self) -> int:
        """Open a new file for the next blob."""
        self._open = os.open(self._new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MODE)
        return self._open

    def end(self, blob: Descriptor) -> None:
        """Name the file by the blob's digest."""
        self._end(self._path / "blobs" / "sha256" / blob.hex)
        if not self.has(blob):
            self._size += blob.size
        self._known.add(blob.digest)

    def file(self, name: str, content: bytes) -> None:
        """Write a file beside the blobs."""
        write_all(self.begin(), memoryview(content))
        self._end(self._path / name)
        self._size += len(content)

    def finish(self) -> int:
        """Give the directories their modes and times; the bytes of all files."""
        for name in (*reversed(_DIRECTORIES), "."):
            self._open = os.open(self._path / name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._close(0o755)
        return self._size

    @property
    def _new(self) -> Path:
        return self._path / "new"

    def _end(self, path: Path) -> None:
        self._close(_MODE)
        self._new.rename(path)

    def _close(self, mode: int) -> None:
        """Give the open file its mode and time, and close it when the disk has it."""
        if self._open is not None:
            os.fchmod(self._open, mode)
            os.utime(self._open, (self._epoch, self._epoch))
            os.fsync(self._open)
            os.close(self._open)
            self._open = None


class LayoutArchive(_Writing):
    """A layout as a tar, in a new file.

    A blob's header has the blob's digest and size, which are known after it: room is left in front of the
    blob, and filled then. So no byte is written twice, and the tar is the same as if all had been known.
    """

    def __enter__(self) -> Self:
        self._open = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
        return self

    def begin(self) -> int:
        """Leave room for the blob's header; the first blob comes after the directories."""
        if not self._known:
            for name in _DIRECTORIES:
                self._append(header(name, 0o755, self._epoch, kind=tarfile.DIRTYPE))
        write_all(self._file, memoryview(bytes(tarfile.BLOCKSIZE)))
        return self._file

    def end(self, blob: Descriptor) -> None:
        """Fill the room, or take a blob back that is there already."""
        if self.has(blob):
            os.ftruncate(self._file, self._size)
            os.lseek(self._file, self._size, os.SEEK_SET)
            return
        front = header(f"blobs/sha256/{blob.hex}", _MODE, self._epoch, size=blob.size)
        os.pwrite(self._file, front, self._size)
        self._size += len(front) + blob.size
        self._append(bytes(-self._size % tarfile.BLOCKSIZE))
        self._known.add(blob.digest)

    def file(self, name: str, content: bytes) -> None:
        """Append a member beside the blobs."""
        self._append(header(name, _MODE, self._epoch, size=len(content)) + content)
        self._append(bytes(-self._size % tarfile.BLOCKSIZE))

    def finish(self) -> int:
        """End the tar; its bytes."""
        self._append(bytes(2 * tarfile.BLOCKSIZE))
        self._append(bytes(-self._size % tarfile.RECORDSIZE))
        os.fsync(self._file)
        return self._size

    @property
    def _file(self) -> int:
        if self._open is None:
            raise ValueError("the archive is closed")
        return self._open

    def _append(self, part: bytes) -> None:
        write_all(self._file, memoryview(part))
        self._size += len(part)
