"""Where the files of an image lie: in a directory, or in a tar that is read in place and never unpacked.

A tar that is compressed as a whole cannot be read in place: it is expanded once, into a temporary file without
a name, which is gone with the process.
"""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from packager.errors import DpackError, usage
from packager.oci.base.expand import BROKEN, expanded
from packager.oci.descriptor import malformed

_CHUNK = 1 << 20
_MOST_LINKS = 8


class Files(Protocol):
    """The files of one image archive or layout, by their paths inside it."""

    def open(self, name: str) -> BinaryIO | None:
        """The file from its first byte, seekable; None where there is none."""


def files_of(path: Path) -> Files:
    """The files of the layout or archive at ``path``; DpackError (exit 2) where it is neither."""
    if path.is_dir():
        return _Directory(path)
    try:
        return _archive(path)
    except OSError as error:
        raise usage(
            f"cannot read the image {path}", error.strerror or str(error), next="check the path"
        ) from None


@dataclass(frozen=True, slots=True)
class _Directory:
    root: Path

    def open(self, name: str) -> BinaryIO | None:
        try:
            return (self.root / name).open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise DpackError(
                f"cannot read {self.root / name}", error.strerror or str(error), next="check its permissions"
            ) from None


@dataclass(frozen=True, slots=True)
class _Member:
    """One file of a tar: where its bytes are, or the other member that it is a link to."""

    offset: int
    size: int
    link: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Archive:
    descriptor: int
    members: Mapping[str, _Member] = field(repr=False)

    def open(self, name: str) -> BinaryIO | None:
        for _ in range(_MOST_LINKS):
            member = self.members.get(name)
            if member is None:
                return None
            if not member.link:
                return cast(
                    "BinaryIO", io.BufferedReader(_Slice(self.descriptor, member.offset, member.size), _CHUNK)
                )
            name = member.link
        return None


class _Slice(io.RawIOBase):
    """A part of an open file, with a position of its own."""

    def __init__(self, descriptor: int, offset: int, size: int) -> None:
        self._descriptor, self._offset, self._size, self._at = descriptor, offset, size, 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]  # what BufferedReader passes
        """Fill ``buffer`` from the position; 0 at the end of the part, also where the file ends before it."""
        whole = memoryview(buffer).cast("B")
        part = whole[: max(0, self._size - self._at)]
        read = os.preadv(self._descriptor, [part], self._offset + self._at)
        self._at += read
        return read

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position; it is never before the part's first byte."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at


def _archive(path: Path) -> Files:
    file = path.open("rb")
    with file:
        magic = file.read(4)
        file.seek(0)
        plain = expanded(file, magic)
        descriptor = os.dup(file.fileno()) if plain is None else _spooled(path, plain)
    try:
        archive = _Archive(descriptor, _members(path, descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    weakref.finalize(archive, os.close, descriptor)
    return archive


def _spooled(path: Path, plain: io.BufferedIOBase) -> int:
    """A descriptor of a temporary file with everything that ``plain`` yields."""
    with tempfile.TemporaryFile(prefix="dpack-") as spool:
        try:
            while part := plain.read(_CHUNK):
                spool.write(part)
        except BROKEN as error:
            raise malformed(str(path), f"its compression is damaged ({error})") from None
        except OSError as error:
            raise DpackError(
                f"cannot expand {path} in {tempfile.gettempdir()}",
                error.strerror or str(error),
                next="make room there, set TMPDIR to a directory that has it, or expand the archive yourself",
            ) from None
        spool.flush()
        return os.dup(spool.fileno())


def _members(path: Path, descriptor: int) -> dict[str, _Member]:
    members, end = {}, os.fstat(descriptor).st_size
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        with (
            os.fdopen(os.dup(descriptor), "rb") as file,
            tarfile.open(fileobj=file, mode="r:", errors="surrogateescape") as tar,
        ):
            for member in tar:
                name = posixpath.normpath(member.name).lstrip("/")
                if member.isreg() and not member.issparse():
                    if member.offset_data + member.size > end:
                        raise malformed(str(path), f"it is cut off: it ends in {name}, at {end:,} bytes")
                    members[name] = _Member(member.offset_data, member.size)
                elif member.islnk():
                    members[name] = _Member(0, 0, posixpath.normpath(member.linkname).lstrip("/"))
                elif member.issym():
                    beside = posixpath.join(posixpath.dirname(name), member.linkname)
                    members[name] = _Member(0, 0, posixpath.normpath(beside).lstrip("/"))
    except (tarfile.TarError, ValueError, EOFError, OverflowError) as error:
        raise usage(
            f"cannot read the image {path}",
            f"neither a directory nor a tar archive ({error})",
            next="give an OCI layout, an oci-archive or a docker-archive",
        ) from None
    return members
