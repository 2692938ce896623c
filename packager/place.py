"""Puts finished output in its place: written beside it, then renamed, so that nothing partial is seen."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from packager.errors import DpackError, usage

MANIFEST = "dpack.json"
"""The file that makes a directory a bundle, where it names what else is in there."""

SCHEMA = "urn:dpack:manifest:"
"""What the "$schema" of a manifest begins with, in every version of dpack."""

LAYOUT_MARK = "io.dpack.layout"
"""The annotation in index.json that makes an OCI image layout one that dpack wrote."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def check_output(output: Path, *, force: bool) -> None:
    """Raise DpackError (exit 2) when the output cannot be put there, before any work is done.

    What exists is replaced only with ``force``; and a directory, even then, only if it is empty, or a bundle or
    an image of dpack's that holds nothing else, so that a slip of the pen removes nobody's files.
    """
    what = f"cannot write {output}"
    if str(output) == "-":
        raise usage(what, "dpack does not write to standard output", next="name a file, then read it")
    if output.name in ("", ".."):
        raise usage(what, "it has no name of its own", next="name a file or a directory to make")
    parent = output.parent
    if not os.path.isdir(parent):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        there = os.path.lexists(parent)
        why = f"{parent} is not a directory" if there else f"there is no directory {parent}"
        raise usage(what, why, next=f"mkdir -p {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise usage(what, f"no permission to write in {parent}", next="choose another place with -o")
    try:
        output.lstat()
        if _is_directory(output):
            _check_ours(output)
    except FileNotFoundError:
        return
    except OSError as error:
        raise usage(what, error.strerror or str(error), next="choose another name with -o") from error
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
        _remove(aside)
    except BaseException as error:
        if os.path.lexists(beside):
            if os.path.lexists(aside) and not os.path.lexists(output):
                aside.rename(output)
            raise
        with contextlib.suppress(OSError):
            shutil.rmtree(aside, ignore_errors=True)
            aside.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        if os.path.lexists(aside):
            raise DpackError(
                f"cannot remove all of the old {output}",
                error.strerror or str(error),
                next=f"the new one is in place; remove {aside} yourself",
            ) from error


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


def _check_ours(directory: Path) -> None:
    """Raise DpackError unless a directory is empty, or dpack wrote every file in it."""
    if next(directory.iterdir(), None) is None:
        return
    if (named := _named(directory)) is not None:
        strangers = (file for file in _files(directory) if file not in named)
    elif _is_layout(directory):
        strangers = (file for file in _files(directory) if not _OF_LAYOUT.fullmatch(file))
    else:
        raise _not_ours(
            directory,
            f"it is a directory that is not a bundle (it has no {MANIFEST} of dpack's, and is no image of dpack's)",
        )
    if (stranger := next(strangers, None)) is not None:
        raise _not_ours(directory, f"it holds {stranger}, which dpack did not write")


def _not_ours(directory: Path, why: str) -> DpackError:
    then = "choose another name with -o, or remove the directory yourself"
    return usage(f"cannot write {directory}", why, next=then)


_OF_LAYOUT = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")


def _files(directory: Path, at: str = "") -> Iterator[str]:
    """The path within a directory of everything below it that is no directory itself, in order."""
    for entry in sorted(os.scandir(directory / at), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(directory, f"{at}{entry.name}/")
        else:
            yield f"{at}{entry.name}"


def _named(directory: Path) -> set[str] | None:
    """The files of the bundle in a directory; None where there is no manifest that dpack wrote."""
    told = _json(directory / MANIFEST)
    if not str(told.get("$schema")).startswith(SCHEMA):
        return None
    try:
        return {MANIFEST, *(row["path"] for kind in ("files", "links") for row in told[kind])}
    except (KeyError, TypeError):
        return None


def _is_layout(directory: Path) -> bool:
    annotations = _json(directory / "index.json").get("annotations")
    return isinstance(annotations, dict) and LAYOUT_MARK in annotations


def _json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; an empty one where the file is not there or holds something else."""
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) else {}
