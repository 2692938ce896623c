"""Layers to a sysroot: what resolving asks of a root file system, and no more.

Kept are directories, symbolic links, ELF files that can be libraries (ET_DYN), and the small files below etc/ and
usr/lib/os-release. The rest of an image (programs that are no PIE, headers, archives, documentation) answers no
question of the dynamic loader. Owners and modes are not kept: everything is readable by the one who unpacks.

A sysroot stands in the cache under the chain of its layers' diff_ids ("Layer ChainID" in the image specification),
so an image is unpacked once, and images that share all layers share it:

    <cache>/roots/<64 hexadecimal digits>-1/    the number is that of these rules
    <cache>/roots/.<the same>/                  under way
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO, BinaryIO, cast

from packager.errors import DpackError
from packager.oci.base.expand import BROKEN, expanded
from packager.oci.base.image import diff_ids_of
from packager.oci.base.tree import File, Link, OutsideError, Tree
from packager.oci.descriptor import Base as Image
from packager.oci.descriptor import Descriptor, malformed
from packager.resolve.elf import ET_DYN

_RULES = 1
"""Goes up when other files are kept than before, so that older sysroots are not taken for new ones."""

_CHUNK = 1 << 20
_HEAD = 18
"""Bytes of an ELF header up to its type."""

_SMALL = 4 << 20
_KEPT = ("etc/", "usr/etc/")
_KEPT_FILES = frozenset({"usr/lib/os-release"})
_NOTHING = f"sha256:{hashlib.sha256().hexdigest()}"


def chain_id(diff_ids: Sequence[str]) -> str:
    """The digest of a stack of layers, the lowest first, in hexadecimal; of no layers, that of nothing."""
    chain = diff_ids[0] if diff_ids else _NOTHING
    for diff_id in diff_ids[1:]:
        chain = f"sha256:{hashlib.sha256(f'{chain} {diff_id}'.encode()).hexdigest()}"
    return chain.removeprefix("sha256:")


def sysroot_of(image: Image, cache: Path) -> Path:
    """The directory with the image's sysroot, unpacked into ``cache`` where it is not there yet.

    Raises DpackError where a layer is damaged, leads out of the root, or is not the one that the config names.
    """
    diff_ids = diff_ids_of(image.config, len(image.layers), image.name)
    name = f"{chain_id(diff_ids)}-{_RULES}"
    root = cache / "roots" / name
    if root.is_dir():
        return root
    from packager.source.cache import lock, storing  # noqa: PLC0415 - what is cached needs none of it

    with storing(cache, image.name, sum(layer.size for layer in image.layers)):
        root.parent.mkdir(parents=True, exist_ok=True)
        with lock(cache, f"root-{name}", Event()):
            if not root.is_dir():
                _make(image, diff_ids, root)
    return root


def _make(image: Image, diff_ids: Sequence[str], root: Path) -> None:
    """Unpack into ``root``; call with the lock held. What a killed process left behind goes first."""
    beside = root.with_name(f".{root.name}")
    spool = beside / "spool"
    shutil.rmtree(beside, ignore_errors=True)
    try:
        spool.mkdir(parents=True)
        unpacking = _Unpacking(image.name, Tree(), spool)
        for layer, diff_id in zip(image.layers, diff_ids, strict=True):
            unpacking.apply(image, layer, diff_id)
        (beside / "root").mkdir()
        _write(unpacking.tree, spool, beside / "root", image.name)
        os.sync()  # thousands of files: one wait for the disk instead of one for each
        (beside / "root").rename(root)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


@dataclass(slots=True)
class _Unpacking:
    """The layers of one image on their way: the tree so far, and the contents of kept files by number."""

    name: str
    tree: Tree
    spool: Path
    _files: int = 0

    def apply(self, image: Image, layer: Descriptor, diff_id: str) -> None:
        """Apply one layer, its uncompressed bytes compared with the config's diff_id."""
        what = f"the layer {layer.digest} of {self.name}"
        self.tree.layer += 1
        with image.blob(layer) as blob:
            magic = blob.read(4)
            blob.seek(0)
            stream = _Hashed(expanded(blob, magic) or blob)
            try:
                self._entries(stream)
                stream.drain()
            except (tarfile.TarError, *BROKEN) as error:
                raise malformed(what, f"it is damaged ({error})") from None
            except OutsideError as error:
                raise DpackError(
                    f"cannot unpack {what}",
                    f"its entry {error}",
                    next="do not use this image; tell whoever built it",
                ) from None
        if stream.digest != diff_id:
            raise malformed(what, f"uncompressed, its digest is {stream.digest}; the config says {diff_id}")

    def _entries(self, stream: _Hashed) -> None:
        if stream.at_end:
            return  # a layer of no bytes at all, which Go's tar reader takes for an empty one
        source = cast("IO[bytes]", stream)
        with tarfile.open(fileobj=source, mode="r|", bufsize=_CHUNK, errors="surrogateescape") as tar:
            while (member := tar.next()) is not None:
                self._entry(tar, member)
                vars(tar)["members"].clear()  # it would keep every entry of the layer

    def _entry(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        path, tree = member.name, self.tree
        if tree.whiteout(path):
            return
        if member.isdir():
            tree.directory(path)
        elif member.issym():
            tree.link(path, member.linkname)
        elif member.islnk():
            tree.hard_link(path, member.linkname)
        elif member.isreg() and self._keep(tar, member):
            tree.file(path, self._files)
        else:
            tree.other(path)

    def _keep(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> bool:
        """Store the contents of a file that is worth it, under the next number."""
        contents = tar.extractfile(member)
        if contents is None:
            return False
        head = contents.read(_HEAD)
        if not (_may_be_library(head) or _is_small_and_kept(member)):
            return False
        self._files += 1
        with (self.spool / str(self._files)).open("wb") as file:
            file.write(head)
            shutil.copyfileobj(contents, file, _CHUNK)
        return True


class _Hashed:
    """A stream that takes the sha256 of what is read of it."""

    def __init__(self, stream: BinaryIO | io.BufferedIOBase) -> None:
        self._stream, self._hash = stream, hashlib.sha256()
        self._first = self._take(_CHUNK)
        self.at_end = not self._first

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if self._first:
            part, self._first = self._first[:size], self._first[size:]
            return part
        return self._take(size)

    def drain(self) -> None:
        """Read what is left."""
        while self._take(_CHUNK):
            pass

    @property
    def digest(self) -> str:
        """The digest of everything read so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def _take(self, size: int) -> bytes:
        part = self._stream.read(size)
        self._hash.update(part)
        return part


def _may_be_library(head: bytes) -> bool:
    return head[:4] == b"\x7fELF" and len(head) == _HEAD and ET_DYN in head[16:18]


def _is_small_and_kept(member: tarfile.TarInfo) -> bool:
    path = member.name.removeprefix("./").lstrip("/")
    return member.size <= _SMALL and (path.startswith(_KEPT) or path in _KEPT_FILES)


def _write(tree: Tree, spool: Path, root: Path, name: str) -> None:
    """Put the tree on the disk. Every parent is a directory made here, so no link is ever followed."""
    placed: dict[int, Path] = {}
    try:
        for path, node in tree.walk():
            place = root / path
            if isinstance(node, Link):
                place.symlink_to(node.target)
            elif not isinstance(node, File):
                place.mkdir()
            elif node.number in placed:
                place.hardlink_to(placed[node.number])
            else:
                (spool / str(node.number)).rename(place)
                placed[node.number] = place
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DpackError(
            f"cannot unpack {name}", f"{path}: {reason}", next="check the cache's file system (DPACK_CACHE)"
        ) from None
