"""The form of a bundle on disk: a directory, or a tar that is plain or compressed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from packager.errors import usage

EPOCH = 315_532_800
"""The time that files in a bundle carry where SOURCE_DATE_EPOCH is not set: 1980-01-01 00:00:00 UTC.

Not 0, because some versions of GNU tar warn about files from 1970."""

_LATEST = 0o77777777777
"""The last second that a tar header holds in octal (2242-03-16); some readers know no other notation."""


class Format(StrEnum):
    """The form of a bundle; the values are what ``--format`` takes."""

    DIR = "dir"
    TAR = "tar"
    TAR_GZ = "tar.gz"
    TAR_ZST = "tar.zst"


_SUFFIXES = {
    ".tar": Format.TAR,
    ".tar.gz": Format.TAR_GZ,
    ".tgz": Format.TAR_GZ,
    ".tar.zst": Format.TAR_ZST,
    ".tzst": Format.TAR_ZST,
}

_FOREIGN = (".xz", ".bz2", ".lz4", ".lzma", ".txz", ".tbz2", ".tbz", ".zip", ".7z", ".gz", ".zst")
"""Suffixes that promise what dpack does not write (".gz" and ".zst" here are those without ".tar")."""

_OF_IMAGES = {".oci": "oci", ".layer": "layer"}
"""Suffixes that promise an image, or a part of one; the values are what ``--format`` takes for them."""

_LEVELS = {Format.TAR_GZ: (1, 9, 6), Format.TAR_ZST: (1, 19, 3)}
"""Lowest, highest and usual compression level."""


def format_of(output: Path | str, format: str | None = None) -> Format:  # noqa: A002 - the option's own name
    """The format that the user asks for.

    The one that is named wins. Then the suffix of the output decides: .tar, .tar.gz or .tgz, .tar.zst or
    .tzst. A name that ends with "/" (give it as str, Path drops the slash) or that is a directory already
    means a directory. Every other name gets a tar.zst, except a suffix that promises another archive or
    an image.

    Raises DpackError (exit 2) for an unknown format and for such a suffix.
    """
    if format is not None:
        if format not in set(Format):
            raise usage(
                f"cannot write a bundle as {format}",
                "unknown format",
                next="choose one of " + ", ".join(Format),
            )
        return Format(format)
    name = os.fspath(output)
    if name.endswith("/") or os.path.isdir(name):  # noqa: PTH112 - which knows names that are too long
        return Format.DIR
    if suffix := _suffix(name):
        return _SUFFIXES[suffix.lower()]
    if name.lower().endswith(_FOREIGN):
        raise usage(f"cannot write {name}", f"dpack does not write {Path(name).suffix} files", next=_known())
    if form := _OF_IMAGES.get(Path(name).suffix.lower()):
        raise usage(f"cannot write {name}", "the name alone makes no image", next=f"add --format {form}")
    return Format.TAR_ZST


def top_of(output: Path | str) -> str:
    """The directory that a tar unpacks to: the output's name without its archive suffix."""
    name = Path(output).name
    return name.removesuffix(_suffix(name)) or "bundle"


def level_of(format: Format, level: int | None = None) -> int:  # noqa: A002 - as above
    """The compression level, the usual one for None; DpackError (exit 2) for one that is out of range."""
    if format not in _LEVELS:
        if level is not None:
            raise usage(
                f"cannot compress with level {level}", f"{format} is not compressed", next="leave out --level"
            )
        return 0
    lowest, highest, usual = _LEVELS[format]
    if level is not None and not lowest <= level <= highest:
        raise usage(
            f"cannot compress with level {level}",
            f"{format} has no such level",
            next=f"choose one from {lowest} to {highest}",
        )
    return usual if level is None else level


def epoch_of(environ: Mapping[str, str]) -> int:
    """The time for every file of a bundle, in seconds since 1970: SOURCE_DATE_EPOCH, else :data:`EPOCH`.

    https://reproducible-builds.org/specs/source-date-epoch/ asks for a decimal integer and for an error
    where there is something else. Raises DpackError (exit 2).
    """
    text = environ.get("SOURCE_DATE_EPOCH", "")
    if not text:
        return EPOCH
    if not (text.isascii() and text.isdigit() and len(text) <= 11 and int(text) <= _LATEST):
        raise usage(
            f"cannot use SOURCE_DATE_EPOCH={text}",
            f"not a whole number of seconds from 0 to {_LATEST}",
            next="set it to the output of `git log -1 --format=%ct`, or unset it",
        )
    return int(text)


def _suffix(name: str) -> str:
    """The archive suffix that the name ends with, as it is written there, or nothing."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            return name[-len(suffix) :]
    return ""


def _known() -> str:
    """The values of ``--format``, those for images included."""
    return "choose one of " + ", ".join([*Format, "oci", "oci-archive", "layer"]) + " with --format"
