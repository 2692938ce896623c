"""What goes into a bundle, and what has been written: Item and Entry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

LAST = "bin"
"""The directory that comes after those beside it, and so does the one that it stands in: the program changes most
often, so two versions of a bundle begin with the same bytes, and rsync moves only the rest."""

Source = Path | bytes | Callable[[], Path]
"""A file to read, the contents themselves, or what waits for a file that is still being made."""


@dataclass(frozen=True, slots=True)
class Item:
    """One file to write.

    ``path``    where it goes: relative to the bundle, with "/", such as "lib/libcudnn.so.9".
    ``mode``    its permission bits: 0o755 or 0o644.
    ``source``  the file to read, or its contents; b"" for a link.
    ``link``    where a symbolic link leads, as the link says it; "" for a file.
    """

    path: str
    mode: int
    source: Source
    link: str = ""

    @property
    def size(self) -> int:
        """Bytes of the source, 0 while it is still being made."""
        if isinstance(self.source, bytes):
            return len(self.source)
        return self.source.stat().st_size if isinstance(self.source, Path) else 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One file as it was written: size in bytes, sha256 in hexadecimal, taken from the bytes on their way.

    A symbolic link has a size of 0 and says in ``link`` where it leads.
    """

    path: str
    mode: int
    size: int
    sha256: str
    link: str = ""


def in_order(items: Sequence[Item]) -> tuple[Item, ...]:
    """The items sorted by their paths, name by name, in the order of bytes; what is in :data:`LAST` at the end.

    Name by name keeps what a directory holds together ("lib/a" before "lib-b"): GNU tar gives a directory
    its time as soon as it meets a member that lies outside.

    Raises ValueError when a path could leave the bundle, stands twice, or is a file and a directory at once.
    """
    taken: set[str] = set()
    for item in items:
        check_path(item.path, taken)
        taken.add(item.path)
    around = directories(taken)
    if both := taken.intersection(around):
        raise ValueError(f"both a file and a directory in the bundle: {min(both)}")
    late = {above for path in around if path.rpartition("/")[2] == LAST for above in _and_above(path)}

    def key(item: Item) -> list[tuple[bool, bytes]]:
        names = _names(item.path)
        return [(step in late, name) for step, name in zip(_and_above(item.path), names, strict=True)]

    return tuple(sorted(items, key=key))


def check_path(path: str, taken: Iterable[str] = ()) -> None:
    """Raise ValueError unless the path is relative, in its plain form, and not yet taken."""
    if (
        path in ("", ".")
        or path.startswith("/")
        or ".." in path.split("/")
        or str(PurePosixPath(path)) != path
    ):
        raise ValueError(f"not a path inside a bundle: {path!r}")
    if path in taken:
        raise ValueError(f"twice in the bundle: {path}")


def directories(paths: Iterable[str]) -> tuple[str, ...]:
    """Every directory that the paths stand in, parents before children, in the same order."""
    found = {str(parent) for path in paths for parent in PurePosixPath(path).parents}
    return tuple(sorted(found - {"."}, key=_names))


def _and_above(path: str) -> list[str]:
    """Every directory that ``path`` stands in, the outermost first, and itself."""
    return [str(parent) for parent in (*reversed(PurePosixPath(path).parents[:-1]), path)]


def _names(path: str) -> list[bytes]:
    """UTF-8 in every locale; a name that is not text keeps its bytes."""
    return path.encode("utf-8", "surrogateescape").split(b"/")
