"""A root file system in memory, as layers make it: what stands where, and nothing of what it holds.

The rules are those of the image specification ("Image Layer Filesystem Changeset") and, where it is silent, of
containerd's pkg/archive: parents are looked up with links followed inside the root, as chroot would; what comes
replaces what is there, a directory alone is merged with a directory. As nothing is written by a layer's paths
until all layers are read, no layer can lead out of the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

WHITEOUT = ".wh."
"""A file of this prefix removes the sibling that the rest of its name names."""

OPAQUE = ".wh..wh..opq"
"""A file of this name removes everything that lower layers have in its directory."""

_MOST_LINKS = 40
_DEEPEST = 256


class OutsideError(ValueError):
    """A path that leads out of the root, or nowhere: the message says which."""


@dataclass(eq=False, slots=True)
class File:
    """A regular file that is kept; ``number`` is where its contents lie. Hard links share one."""

    number: int


@dataclass(eq=False, slots=True)
class Link:
    """A symbolic link."""

    target: str


@dataclass(eq=False, slots=True)
class Directory:
    """A directory: its entries, and for each the layer that it is from."""

    entries: dict[str, Node] = field(default_factory=dict)
    layers: dict[str, int] = field(default_factory=dict)

    def put(self, name: str, node: Node, layer: int) -> None:
        """Set an entry, whatever was there."""
        self.entries[name], self.layers[name] = node, layer

    def drop(self, name: str) -> None:
        """Remove an entry, if it is there."""
        self.entries.pop(name, None)
        self.layers.pop(name, None)


Node = File | Link | Directory


class Tree:
    """The file system so far. Paths are a layer's: relative to the root, with or without "/" or "./" before."""

    def __init__(self) -> None:
        self.root = Directory()
        self.layer = 0

    def directory(self, path: str) -> None:
        """A directory; one that is there keeps its entries, a link to one does not stand for it."""
        parent, name = self._place(path)
        if not name:
            return
        there = parent.entries.get(name)
        parent.put(name, there if isinstance(there, Directory) else Directory(), self.layer)

    def link(self, path: str, target: str) -> None:
        """A symbolic link, wherever it leads."""
        if not target or "\0" in target:
            raise OutsideError(f"{path!r} is a link to {target!r}")
        self._put(path, Link(target))

    def file(self, path: str, number: int) -> None:
        """A regular file that is kept."""
        self._put(path, File(number))

    def other(self, path: str) -> None:
        """Something that is not kept: a device, a FIFO, a file of no use here. What was there is gone."""
        parent, name = self._place(path)
        parent.drop(name)

    def hard_link(self, path: str, target: str) -> None:
        """Another name for a file; where that is not kept, neither is this."""
        parent, name = self._place(target)
        there = parent.entries.get(name)
        if isinstance(there, Directory):
            raise OutsideError(f"{path!r} is a hard link to the directory {target!r}")
        if there is None:
            self.other(path)
        else:
            self._put(path, there)

    def whiteout(self, path: str) -> bool:
        """Apply ``path`` if it is a whiteout: what this layer itself brings stays ("Whiteouts")."""
        directory, _, name = path.rstrip("/").rpartition("/")
        if not name.startswith(WHITEOUT):
            return False
        if name == OPAQUE:
            self._clear(self._directory(_parts(directory)))
            return True
        victim = name.removeprefix(WHITEOUT)
        if victim in {"", ".", ".."}:
            raise OutsideError(f"{path!r} is a whiteout of no file")
        parent = self._directory(_parts(directory))
        if not self._keeps(parent, victim):
            parent.drop(victim)
        return True

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Every entry with its path, parents before children."""
        waiting: list[tuple[str, Node]] = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            if path:
                yield path, node
            if isinstance(node, Directory):
                base = f"{path}/" if path else ""
                waiting += [
                    (base + name, child) for name, child in sorted(node.entries.items(), reverse=True)
                ]

    def _put(self, path: str, node: Node) -> None:
        parent, name = self._place(path)
        if not name:
            raise OutsideError(f"{path!r} would replace the root itself")
        parent.put(name, node, self.layer)

    def _clear(self, directory: Directory) -> bool:
        """Remove what lower layers have below ``directory``; True where something of this layer is left."""
        for name in list(directory.entries):
            if not self._keeps(directory, name):
                directory.drop(name)
        return bool(directory.entries)

    def _keeps(self, parent: Directory, name: str) -> bool:
        """Whether an entry, or something below it, is this layer's own; the rest below it is removed."""
        node = parent.entries.get(name)
        below = isinstance(node, Directory) and self._clear(node)
        return below or parent.layers.get(name) == self.layer

    def _place(self, path: str) -> tuple[Directory, str]:
        """The directory that ``path`` stands in, links followed, and its name there; "" for the root."""
        parts = _parts(path)
        return (self._directory(parts[:-1]), parts[-1]) if parts else (self.root, "")

    def _directory(self, parts: list[str]) -> Directory:
        """The directory at ``parts``, links followed inside the root; what is missing is made."""
        at, rest, links = [self.root], parts[::-1], 0
        while rest:
            part = rest.pop()
            if part == "..":
                at = at[:-1] or at
                continue
            there = at[-1].entries.get(part)
            if isinstance(there, Link):
                links += 1
                if links > _MOST_LINKS:
                    raise OutsideError(f"{'/'.join(parts)!r} is a circle of links")
                steps = [step for step in there.target.split("/") if step not in {"", "."}]
                rest += steps[::-1]
                at = at[:1] if there.target.startswith("/") else at
                continue
            if not isinstance(there, Directory):
                there = Directory()
                at[-1].put(part, there, self.layer)
            at.append(there)
            if len(at) > _DEEPEST or len(rest) > 2 * _DEEPEST:
                raise OutsideError(f"{'/'.join(parts)[:80]!r}… is deeper than {_DEEPEST} directories")
        return at[-1]


def _parts(path: str) -> list[str]:
    """The names of a layer's path. It is the root's, with or without "/" in front; it has no ".." in it."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in path:
        raise OutsideError(f"{path!r} leads out of the root")
    return parts
