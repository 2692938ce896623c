"""Writes an assembled file: copies in the kernel, zeros that are written and not skipped, patches last."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from packager.cuda.assemble import Assembly
from packager.errors import DpackError

_PIECE = 1 << 16


def changed(source: Path) -> DpackError:
    """The error for a file that is not what it was when it was read."""
    return DpackError(f"cannot cut {source}", "the file changed after it was read", next="run dpack again")


def write_file(source: Path, target: Path, size: int, assembly: Assembly | None) -> None:
    """Write the new file, or a copy without an assembly; mode 0755. ``size`` is that of ``source``."""
    with source.open("rb") as old, target.open("wb") as new:
        if os.fstat(old.fileno()).st_size != size:
            raise changed(source)
        try:
            if assembly is None:
                _copy(old, new, 0, 0, size)
            else:
                _write(old, new, assembly)
        except EOFError as error:
            raise changed(source) from error
        os.fchmod(new.fileno(), 0o755)


def _write(old: BinaryIO, new: BinaryIO, assembly: Assembly) -> None:
    at = 0
    for offset, source, size in assembly.copies():
        _zeros(new, at, offset)
        _copy(old, new, source, offset, size)
        at = offset + size
    _zeros(new, at, assembly.layout.size)
    for offset, content in assembly.patches:
        os.pwrite(new.fileno(), content, offset)


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
