"""A wheel file into a directory: streamed, checked, and never outside of it."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from threading import Event

from packager.errors import DpackError
from packager.source.cache import sync_directory
from packager.source.parallel import check

_CHUNK = 1 << 20


class DamagedWheelError(DpackError):
    """A wheel that is the file its index means, and still cannot be unpacked."""


def unpacked_size(wheel: Path) -> int:
    """Bytes of all files in the wheel, as its directory states them."""
    with _opened(wheel) as archive:
        return sum(member.file_size for member in archive.infolist())


def unpack(wheel: Path, root: Path, stop: Event) -> None:
    """Unpack a wheel into ``root``, which must not exist, and fsync all of it.

    Links in the archive become plain files with the link's text, so nothing can lead out of ``root``.
    DamagedWheelError where a member's name leads out of it, a CRC is wrong, or the archive is damaged.
    """
    with _opened(wheel) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            _check_name(member, wheel)
        root.mkdir(parents=True)
        try:
            for member in members:
                _write(archive, member, root / member.filename, stop)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise _damaged(wheel, f"{member.filename}: {error}") from None
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise _damaged(wheel, f"two members are named {member.filename}") from None
    for directory in _directories(root, members):
        sync_directory(directory)


def _opened(wheel: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(wheel)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise _damaged(wheel, str(error)) from None


def _check_name(member: zipfile.ZipInfo, wheel: Path) -> None:
    path = PurePosixPath(member.filename)
    if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
        raise DamagedWheelError(
            f"cannot unpack {wheel.name.removesuffix('.part')}",
            f"its member {member.filename!r} would land outside of the directory",
            next="do not use this wheel; tell whoever runs the index that it came from",
        )


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, stop: Event) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("xb") as out:
        while chunk := source.read(_CHUNK):
            check(stop)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    target.chmod(0o755 if (member.external_attr >> 16) & stat.S_IXUSR else 0o644)


def _directories(root: Path, members: Iterable[zipfile.ZipInfo]) -> list[Path]:
    below = {PurePosixPath(parent) for member in members for parent in PurePosixPath(member.filename).parents}
    return [root / directory for directory in sorted(below, reverse=True)]


def _damaged(wheel: Path, reason: str) -> DamagedWheelError:
    return DamagedWheelError(
        f"cannot unpack {wheel.name.removesuffix('.part')}",
        f"the wheel is damaged: {reason}",
        next="its hash is as the index states it, so the index has a bad file: pin another version",
    )
