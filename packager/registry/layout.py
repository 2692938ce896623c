"""What can be pushed: an OCI layout directory, or a tar of one (oci-archive), read in place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from packager.errors import DpackError, usage
from packager.oci.base.archive import Files, files_of
from packager.oci.base.expand import GZIP_MAGIC, ZSTD_MAGIC
from packager.oci.base.image import document_of
from packager.oci.descriptor import Descriptor, malformed, parsed

_AS_IMAGE = "push an image: dpack bundle … --format oci-archive -o app.oci.tar"


@dataclass(frozen=True, slots=True)
class OpenLayout:
    """A layout on disk. ``roots`` is what its index.json lists."""

    path: Path
    roots: tuple[Descriptor, ...]
    _files: Files

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[BinaryIO]:
        """One of its blobs, with seek; DpackError where the layout lacks it."""
        file = self._files.open(f"blobs/sha256/{descriptor.hex}")
        if file is None:
            raise malformed(str(self.path), f"it lacks the blob {descriptor.digest}")
        with file:
            yield file


def open_layout(path: Path) -> OpenLayout:
    """The layout at ``path``; DpackError (exit 2) where there is another thing, such as a tar.zst bundle."""
    files = files_of(_readable(path))
    index = document_of(files, "index.json", str(path))
    if index is None or document_of(files, "oci-layout", str(path)) is None:
        raise _no_image(path)
    name = f"index.json of {path}"
    listed = parsed(index, name).get("manifests")
    if not isinstance(listed, list):
        raise malformed(name, "it has no list of manifests")
    return OpenLayout(path, tuple(Descriptor.from_json(entry, name) for entry in listed), files)


def _readable(path: Path) -> Path:
    """The same path, where it is a directory or a tar that is not compressed: others hold no layout of ours."""
    if path.is_dir():
        return path
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise usage(
            f"cannot read the bundle {path}", error.strerror or str(error), next="check the path"
        ) from None
    if magic.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        raise usage(f"cannot push {path}", "it is a compressed tar of files, and no image", next=_AS_IMAGE)
    return path


def _no_image(path: Path) -> DpackError:
    kind = "directory" if path.is_dir() else "tar"
    return usage(f"cannot push {path}", f"it is a {kind} without an image in OCI's layout", next=_AS_IMAGE)
