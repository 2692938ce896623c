"""ld.so.cache and ld.so.conf: where the target's loader looks before its default directories.

The cache's layout is glibc's sysdeps/generic/dl-cache.h (struct cache_file_new and its extensions): a header
of 48 bytes, 24 bytes an entry, then strings; glibc-hwcaps sub-directories are named by an extension section.
An older header ("ld.so-1.7.0") may stand before it.
"""

from __future__ import annotations

import fnmatch
import posixpath
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from packager.resolve.sysroot import Sysroot

_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_MAGIC = b"ld.so-1.7.0\0"
_EXTENSION_MAGIC = 0xEAA42174
_HWCAP_EXTENSION = 1 << 62


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One library of the cache. ``hwcaps`` is the glibc-hwcaps sub-directory it stands in, or empty."""

    name: str
    path: str
    flags: int
    hwcaps: str = ""


def parse_cache(content: bytes) -> tuple[CacheEntry, ...]:
    """The entries of an ld.so.cache; none when ``content`` is not one or is damaged."""
    start = _new_header(content)
    if start is None or len(content) < start + 48:
        return ()
    count, _, _, extension = struct.unpack_from("<IIB3xI", content, start + 20)
    if start + 48 + 24 * count > len(content):
        return ()
    subdirectories = _subdirectories(content, start, extension)
    entries = []
    for row in range(count):
        flags, key, value, _, hwcap = struct.unpack_from("<iIIIQ", content, start + 48 + 24 * row)
        number = hwcap & 0xFFFFFFFF
        if hwcap & _HWCAP_EXTENSION:
            if number >= len(subdirectories):
                continue
            hwcaps = subdirectories[number]
        elif hwcap:
            continue  # the legacy capabilities that glibc 2.37 removed
        else:
            hwcaps = ""
        entries.append(CacheEntry(_text(content, start + key), _text(content, start + value), flags, hwcaps))
    return tuple(entries)


def _new_header(content: bytes) -> int | None:
    if content.startswith(_MAGIC):
        return 0
    if content.startswith(_OLD_MAGIC) and len(content) >= 16:
        end = 16 + 12 * struct.unpack_from("<I", content, 12)[0]
        start = end + 7 & ~7
        return start if content[start : start + len(_MAGIC)] == _MAGIC else None
    return None


def _text(content: bytes, offset: int) -> str:
    end = content.find(b"\0", offset)
    return content[offset:end].decode("utf-8", "surrogateescape") if end >= 0 else ""


def _subdirectories(content: bytes, start: int, extension: int) -> tuple[str, ...]:
    at = start + extension
    if not extension or at + 8 > len(content):
        return ()
    magic, count = struct.unpack_from("<II", content, at)
    if magic != _EXTENSION_MAGIC or at + 8 + 16 * count > len(content):
        return ()
    for row in range(count):
        tag, _, offset, size = struct.unpack_from("<IIII", content, at + 8 + 16 * row)
        if tag == 1 and start + offset + size <= len(content):
            indexes = struct.unpack_from(f"<{size // 4}I", content, start + offset)
            return tuple(_text(content, start + index) for index in indexes)
    return ()


def conf_directories(sysroot: Sysroot) -> tuple[str, ...]:
    """The directories of /etc/ld.so.conf, its includes followed (ldconfig(8)); none when there is no such file."""
    return tuple(dict.fromkeys(_conf(sysroot, "/etc/ld.so.conf", set())))


def _conf(sysroot: Sysroot, path: str, seen: set[str]) -> Iterator[str]:
    """As above, with repetitions. A file that is read again has nothing new to add, so each is read once."""
    real = sysroot.real(path) or path
    content = None if real in seen else sysroot.read(real)
    seen.add(real)
    for raw in (content or b"").decode("utf-8", "surrogateescape").splitlines():
        line = raw.partition("#")[0].strip()
        word, *rest = line.split() or [""]
        if word == "include" and rest:
            for pattern in rest:
                for name in _matching(sysroot, posixpath.join(posixpath.dirname(path), pattern)):
                    yield from _conf(sysroot, name, seen)
        elif line and word != "hwcap":
            yield line.partition("=")[0].rstrip("/") or "/"


def _matching(sysroot: Sysroot, pattern: str) -> list[str]:
    """The paths that ``pattern`` matches, in the order of glob(3); it may have wildcards in its directories too."""
    found = ["/"]
    for part in pattern.strip("/").split("/"):
        found = [posixpath.join(at, name) for at in found for name in _names(sysroot, at, part)]
    return found


def _names(sysroot: Sysroot, directory: str, pattern: str) -> list[str]:
    if pattern in {".", ".."}:
        return [pattern]
    names = fnmatch.filter(sysroot.names(directory), pattern)
    return [name for name in names if pattern.startswith(".") or not name.startswith(".")]
