"""Writes an assembled file from front to back: copies in the kernel, zeros that are written and not skipped, and
patches over what was just copied.
"""

from __future__ import annotations

import os
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from packager.cuda.assemble import Assembly
from packager.errors import DpackError

_PIECE = 1 << 16
_STRIDE = 32 << 20  # what the disk is sent at a time


def changed(source: Path) -> DpackError:
    """The error for a file that is not what it was when it was read."""
    return DpackError(f"cannot cut {source}", "the file changed after it was read", next="run dpack again")


def write_file(
    source: Path, target: Path, planned: tuple[int, int], assembly: Assembly | None, *, to_disk: bool = False
) -> None:
    """Write the new file, or a copy without an assembly; mode 0755. ``planned`` are the size and the time of
    ``source`` when its bytes were read.

    ``to_disk`` lets the disk begin before all is written, for a file that fsync follows.
    """
    with source.open("rb") as old, target.open("wb") as new:
        _check(old, source, planned)
        try:
            if assembly is None:
                _copy(old, new, 0, 0, planned[0])
            else:
                _write(old, new, assembly, to_disk=to_disk)
        except EOFError as error:
            raise changed(source) from error
        _check(old, source, planned)
        os.fchmod(new.fileno(), 0o755)


def _check(file: BinaryIO, source: Path, planned: tuple[int, int]) -> None:
    status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != planned:
        raise changed(source)


def _write(old: BinaryIO, new: BinaryIO, assembly: Assembly, *, to_disk: bool) -> None:
    patches = sorted(assembly.patches, key=itemgetter(0))
    at = patched = sent = 0
    for offset, source, size in (*assembly.copies(), (assembly.layout.size, 0, 0)):
        _zeros(new, at, offset)
        _copy(old, new, source, offset, size)
        at = offset + size
        while patched < len(patches) and patches[patched][0] + len(patches[patched][1]) <= at:
            os.pwrite(new.fileno(), patches[patched][1], patches[patched][0])
            patched += 1
        if to_disk and at - sent >= _STRIDE:
            # Of Linux this asks to begin with what is dirty there, and for nothing to wait (mm/fadvise.c).
            os.posix_fadvise(new.fileno(), sent, at - sent, os.POSIX_FADV_DONTNEED)
            sent = at


def _zeros(new: BinaryIO, start: int, end: int) -> None:
    while start < end:
        start += os.pwrite(new.fileno(), bytes(min(_PIECE, end - start)), start)


def _copy(old: BinaryIO, new: BinaryIO, source: int, target: int, size: int) -> None:
    """Copy ``size`` bytes; EOFError when the old file ends before."""
    while size:
        if size < _PIECE:
            done = os.pwrite(new.fileno(), os.pread(old.fileno(), size, source), target)
        else:
            os.lseek(new.fileno(), target, os.SEEK_SET)
            done = os.sendfile(new.fileno(), old.fileno(), source, size)
        if not done:
            raise EOFError
        source, target, size = source + done, target + done, size - done
