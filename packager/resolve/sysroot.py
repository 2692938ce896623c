"""The input file system: every question that resolving asks of it, under one root.

Paths are those that the target will see (absolute, as text). ``host()`` gives the file on this machine. With
the root ``/`` they are the same; with another root, symbolic links that leave it are resolved inside it, as
``chroot`` would. Directories named in ``outside`` (a build directory, the package cache) keep their own paths
and are seen beside the root.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packager.errors import usage

_LINK_LIMIT = 40
"""As many symbolic links as Linux follows in one path (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class Sysroot:
    """A root directory and the directories outside it that are seen at their own paths."""

    root: str = "/"
    outside: tuple[str, ...] = ()
    _seen: dict[str, str | None] = field(default_factory=dict, repr=False, compare=False)
    _elsewhere: set[str] = field(default_factory=set, repr=False, compare=False)

    @staticmethod
    def at(root: Path | str, outside: tuple[Path | str, ...] = ()) -> Sysroot:
        """The sysroot in the directory ``root``; DpackError (usage) when there is none."""
        real = os.path.realpath(root)
        if not Path(real).is_dir():
            raise usage(
                f"cannot use {root} as the root", "no such directory", next="name the sysroot's directory"
            )
        others = [os.path.realpath(path) for path in outside] if real != "/" else []
        return Sysroot(real, tuple(o for o in others if o != real and not o.startswith(real + "/")))

    def seeing(self, more: Sequence[str]) -> Sysroot:
        """The same root, with more directories outside it."""
        return self if self.root == "/" else Sysroot(self.root, (*self.outside, *more))

    def inside(self, path: Path | str) -> str:
        """How the target sees this machine's ``path``: without the root, or as it is when outside."""
        absolute = os.path.abspath(path)
        if self.root == "/" or any(absolute == o or absolute.startswith(o + "/") for o in self.outside):
            return absolute
        above = Path(absolute)
        for parent in (above, *above.parents):  # the root may have been named through a link
            if os.path.realpath(parent) == self.root:
                return "/" + str(above.relative_to(parent)).removeprefix(".")
        return absolute

    def real(self, path: str) -> str | None:
        """``path`` with every symbolic link resolved, as the target sees it; None when it does not exist."""
        if path not in self._seen:
            self._seen[path] = self._walk(path) if self.root != "/" else _as_the_kernel(path)
        return self._seen[path]

    def host(self, path: str) -> str | None:
        """The file on this machine behind ``path``; None when it does not exist."""
        real = self.real(path)
        return None if real is None else self._on_host(real)

    def is_file(self, path: str) -> bool:
        """True for a regular file, or a link to one."""
        host = self.host(path)
        return host is not None and stat.S_ISREG(os.stat(host).st_mode)

    def is_directory(self, path: str) -> bool:
        """True for a directory, or a link to one."""
        host = self.host(path)
        return host is not None and stat.S_ISDIR(os.stat(host).st_mode)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Device and inode behind ``path``, by which ld.so tells that two names are one file; None when absent."""
        host = self.host(path)
        if host is None:
            return None
        status = os.stat(host)
        return status.st_dev, status.st_ino

    def names(self, directory: str) -> tuple[str, ...]:
        """The sorted names in ``directory``; none when it is not there or may not be read."""
        host = self.host(directory)
        try:
            return tuple(sorted(os.listdir(host))) if host is not None else ()
        except OSError:
            return ()

    def read(self, path: str) -> bytes | None:
        """The contents of a small file; None when it is not there or may not be read."""
        host = self.host(path)
        try:
            return Path(host).read_bytes() if host is not None else None
        except OSError:
            return None

    def _on_host(self, path: str) -> str:
        return path if self.root == "/" or self._is_outside(path) else self.root + path

    def _is_outside(self, path: str) -> bool:
        return path in self._elsewhere or any(path == o or path.startswith(o + "/") for o in self.outside)

    def _walk(self, path: str) -> str | None:
        at, directory, rest, links = "/", True, _parts(path), 0
        while rest:
            part = rest.pop()
            if not directory:
                return None
            if part in {".", ".."}:
                at = posixpath.dirname(at) if part == ".." else at
                continue
            step = posixpath.join(at, part)
            kind = self._kind(step)
            if kind is None:
                return None
            if not stat.S_ISLNK(kind):
                at, directory = step, stat.S_ISDIR(kind)
                continue
            if self._is_outside(step) and (here := self._beside("/".join([step, *reversed(rest)]))):
                return here
            links += 1
            if links > _LINK_LIMIT:
                return None
            target = os.readlink(self._on_host(step))
            rest.extend(_parts(target))
            at = "/" if target.startswith("/") else at
        return at

    def _beside(self, path: str) -> str | None:
        """A link beside the root is this machine's, and so is what it leads to; None where that is not here."""
        real = _as_the_kernel(path)
        if real is not None:
            self._elsewhere.add(real)
        return real

    def _kind(self, path: str) -> int | None:
        """st_mode of ``path`` itself; a directory on the way to one of ``outside`` always exists."""
        if any(o.startswith(path + "/") for o in self.outside):
            return stat.S_IFDIR
        try:
            return os.lstat(self._on_host(path)).st_mode
        except (OSError, ValueError):
            return None


def _as_the_kernel(path: str) -> str | None:
    """The real path on this machine. realpath(3) alone also takes "file/../other" and any count of links."""
    try:
        os.stat(path)
        return os.path.realpath(path, strict=True)
    except (OSError, ValueError):  # absent, a loop, or a name that no file system takes
        return None


def _parts(path: str) -> list[str]:
    """The names in ``path``, last first. A slash at the end asks for a directory, as "/." does."""
    names = [part for part in path.split("/") if part]
    return [*([] if not path.endswith("/") else ["."]), *reversed(names)]
