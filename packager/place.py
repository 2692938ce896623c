"""Puts finished output in its place: written beside it, then renamed, so that nothing partial is seen."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from packager.errors import DpackError, usage

MANIFEST = "dpack.json"
"""The file that makes a directory a bundle."""

LAYOUT_MARK = "io.dpack.layout"
"""The annotation in index.json that makes an OCI image layout one that dpack wrote."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_output(output: Path, *, force: bool) -> None:
    """Raise DpackError (exit 2) when the output cannot be put there, before any work is done.

    What exists is replaced only with ``force``; and a directory, even then, only if it is a bundle or
    empty, so that a slip of the pen removes nobody's files.
    """
    what = f"cannot write {output}"
    if str(output) == "-":
        raise usage(what, "dpack does not write to standard output", next="name a file, then read it")
    if output.name in ("", ".."):
        raise usage(what, "it has no name of its own", next="name a file or a directory to make")
    parent = output.parent
    if not parent.is_dir():
        why = f"{parent} is not a directory" if parent.exists() else f"there is no directory {parent}"
        raise usage(what, why, next=f"mkdir -p {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise usage(what, f"no permission to write in {parent}", next="choose another place with -o")
    if not os.path.lexists(output):
        return
    if _is_directory(output) and not _is_bundle(output):
        raise usage(
            what,
            f"it is a directory that is not a bundle (it holds no {MANIFEST}, and is no image of dpack's)",
            next="choose another name with -o, or remove the directory yourself",
        )
    if not force:
        raise usage(what, "it exists already", next="--force replaces it")
    if not (_is_directory(output) or output.is_file() or output.is_symlink()):
        raise usage(what, "it is neither a file nor a directory", next="choose another name with -o")


@contextmanager
def placed(output: Path, *, force: bool) -> Iterator[Path]:
    """Yield a hidden path beside the output to write to; then rename it to the output.

    When the body raises, KeyboardInterrupt included, what it wrote is removed.
    """
    beside = _beside(output)
    try:
        yield beside
        check_output(output, force=force)
        _rename(beside, output)
    except BaseException:
        with contextlib.suppress(OSError):  # what happened first is what counts
            _remove(beside)
        raise
    _sync(output.parent)


def cannot_write(output: Path, error: OSError, most: int) -> DpackError:
    """The error for an output that failed; ``most`` is the bytes that it could take at the most."""
    what = f"cannot write {output}"
    reason = error.strerror or str(error)
    if error.errno not in _FULL:
        return DpackError(what, f"{reason} in {output.parent}", next="choose another place with -o")
    free = shutil.disk_usage(output.parent).free
    return DpackError(
        what,
        f"{reason} in {output.parent}: it takes up to {most:,} bytes, {free:,} bytes are free there",
        next="make room, or choose another place with -o",
    )


def _rename(beside: Path, output: Path) -> None:
    """Rename over a file in one step; whatever else is there first moves aside, and comes back on failure."""
    if not os.path.lexists(output) or not (_is_directory(output) or beside.is_dir()):
        beside.rename(output)
        return
    aside = _beside(output)
    try:
        output.rename(aside)
        beside.rename(output)
    except BaseException:
        if os.path.lexists(aside) and not os.path.lexists(output):
            aside.rename(output)
        raise
    _remove(aside)


def _remove(path: Path) -> None:
    if _is_directory(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    """Make the rename last. The output is in place, so a file system that cannot do this is no error."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _beside(output: Path) -> Path:
    name = os.fsdecode(os.fsencode(output.name)[:200])  # a name has at most 255 bytes
    return output.parent / f".{name}.{os.urandom(4).hex()}.dpack"


def _is_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _is_bundle(path: Path) -> bool:
    """Whether a directory is a bundle, an image layout of ours, or holds nothing at all."""
    return (path / MANIFEST).is_file() or _is_layout(path) or next(path.iterdir(), None) is None


def _is_layout(path: Path) -> bool:
    index = path / "index.json"
    return (path / "oci-layout").is_file() and index.is_file() and LAYOUT_MARK.encode() in index.read_bytes()
