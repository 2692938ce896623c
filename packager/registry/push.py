"""An image to a registry: first the blobs, several at once, then the manifests, and the tag last.

So whoever pulls the tag finds either the image that it named before, or all of this one. Nothing is sent that the
registry has; a push that was interrupted is completed by pushing again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from packager.errors import DpackError, usage
from packager.oci.descriptor import INDEX_TYPES, Descriptor, digest_of, malformed, parsed
from packager.registry.client import Access, Remote, Repository
from packager.registry.reference import Reference
from packager.registry.referrers import add_referrer, referring
from packager.registry.upload import Blobs, Outcome, upload
from packager.source.parallel import each
from packager.source.progress import Bar, NoProgress, Progress

# More do not make a thin link faster, and lose more when it breaks.
_THREADS = 3
_DEEPEST = 4
_LARGEST_MANIFEST = 4 << 20
_BASE_NAME = "org.opencontainers.image.base.name"


class Layout(Blobs, Protocol):
    """An image layout, whether a directory or an archive."""

    @property
    def roots(self) -> tuple[Descriptor, ...]:
        """What its index.json lists."""


@dataclass(frozen=True, slots=True)
class PushedBlob:
    """A blob of the image and what became of it."""

    descriptor: Descriptor
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push did: the image's own manifest or index, its blobs, and the artifacts that belong to it."""

    reference: Reference
    descriptor: Descriptor
    blobs: tuple[PushedBlob, ...]
    attached: tuple[Descriptor, ...]

    def of(self, outcome: Outcome) -> tuple[Descriptor, ...]:
        """The blobs with that outcome."""
        return tuple(blob.descriptor for blob in self.blobs if blob.outcome is outcome)


@dataclass(frozen=True, slots=True)
class _Document:
    """A manifest or an index, with the documents that it lists."""

    descriptor: Descriptor
    content: bytes
    fields: dict[str, Any]
    children: tuple[_Document, ...]

    @property
    def subject(self) -> str:
        """The digest of the image that this belongs to, "" for an image of its own."""
        subject = self.fields.get("subject")
        return str(subject.get("digest", "")) if isinstance(subject, dict) else ""

    def blobs(self) -> Iterator[Descriptor]:
        """The layers and the config, of its own and of all below it."""
        for child in self.children:
            yield from child.blobs()
        if self.descriptor.media_type not in INDEX_TYPES:
            name = f"the manifest {self.descriptor.digest}"
            for entry in (*_listed(self.fields, "layers", name), self.fields.get("config")):
                yield Descriptor.from_json(entry, name)

    def documents(self) -> Iterator[_Document]:
        """This and all below it; what a registry must have first comes first."""
        for child in self.children:
            yield from child.documents()
        yield self


def push(
    layout: Layout,
    reference: Reference,
    *,
    access: Access | None = None,
    mount_from: Sequence[str] = (),
    progress: Progress | None = None,
) -> Pushed:
    """Push the image of a layout, and the artifacts in it that belong to the image.

    ``mount_from`` are repositories of the same registry that may have some of the blobs; the image's base, where
    its annotations name one there, is tried as well. Raises DpackError; nothing is tagged then.
    """
    image, attached = _contents(layout)
    if reference.digest not in {None, image.descriptor.digest}:
        raise usage(
            f"cannot push {reference}",
            f"the image's digest is {image.descriptor.digest}",
            next="leave the digest out, or correct it",
        )
    remote = Remote.of(reference, access or Access(), push=True)
    with remote.connect(threading.Event()) as repository:
        repository.ping()
    found = {blob.digest: blob for document in (image, *attached) for blob in document.blobs()}
    others = tuple(_other_repositories(image, reference, mount_from))

    def one(blob: Descriptor, stop: threading.Event) -> PushedBlob:
        bar = _LateBar(progress or NoProgress(), blob)
        try:
            with remote.connect(stop) as repository:
                return PushedBlob(blob, upload(repository, blob, layout, bar, others))
        finally:
            bar.finish()

    blobs = tuple(each(one, list(found.values()), _THREADS))
    with remote.connect(threading.Event()) as repository:
        _put_manifests(repository, image, attached)
    return Pushed(reference, image.descriptor, blobs, tuple(document.descriptor for document in attached))


def _put_manifests(repository: Repository, image: _Document, attached: Sequence[_Document]) -> None:
    for document in image.documents():
        digest = document.descriptor.digest
        if repository.manifest_digest(digest) != digest:
            repository.put_manifest(digest, document.descriptor, document.content)
    for document in attached:
        descriptor = document.descriptor
        if repository.put_manifest(descriptor.digest, descriptor, document.content) != document.subject:
            add_referrer(repository, document.subject, referring(descriptor, document.fields))
    if tag := repository.remote.reference.push_tag:
        repository.put_manifest(tag, image.descriptor, image.content)


def _contents(layout: Layout) -> tuple[_Document, tuple[_Document, ...]]:
    """The one image of a layout, and the artifacts that belong to it."""
    found = [_read(layout, root) for root in layout.roots]
    images = [document for document in found if not document.subject]
    if len(images) != 1:
        raise DpackError(
            "cannot push the layout",
            f"it holds {len(images)} images, and one reference names one",
            next="give a layout with one image, or with one index of the images for all platforms",
        )
    inside = {document.descriptor.digest for document in images[0].documents()}
    return images[0], tuple(document for document in found if document.subject in inside)


def _read(layout: Layout, descriptor: Descriptor, depth: int = 0) -> _Document:
    name = f"the manifest {descriptor.digest}"
    if depth > _DEEPEST:
        raise malformed(name, f"indexes are nested more than {_DEEPEST} deep")
    with layout.blob(descriptor) as file:
        content = file.read(_LARGEST_MANIFEST + 1)
    if len(content) != descriptor.size or digest_of(content) != descriptor.digest:
        raise malformed(name, "its content has another digest")
    fields = parsed(content, name)
    children = _listed(fields, "manifests", name) if descriptor.media_type in INDEX_TYPES else []
    listed = tuple(_read(layout, Descriptor.from_json(child, name), depth + 1) for child in children)
    return _Document(descriptor, content, fields, listed)


def _listed(fields: dict[str, Any], key: str, name: str) -> list[object]:
    """The list that a document must have under ``key``."""
    value = fields.get(key)
    if not isinstance(value, list):
        raise malformed(name, f"it has no list of {key}")
    return value


def _other_repositories(image: _Document, reference: Reference, named: Sequence[str]) -> Iterator[str]:
    """The repositories of the same registry to mount blobs from, each once."""
    bases = [
        base
        for document in image.documents()
        if isinstance(annotations := document.fields.get("annotations"), dict)
        and (base := _repository_on(reference.host, str(annotations.get(_BASE_NAME, ""))))
    ]
    yield from (name for name in dict.fromkeys((*named, *bases)) if name != reference.repository)


def _repository_on(host: str, name: str) -> str:
    """The repository of an image's name where it is on that host, else ""."""
    try:
        reference = Reference.parse(name)
    except DpackError:
        return ""
    return reference.repository if reference.host == host else ""


class _LateBar:
    """A bar that appears with its blob's first byte: blobs that are not sent have none."""

    def __init__(self, progress: Progress, blob: Descriptor) -> None:
        self._progress = progress
        self._blob = blob
        self._bar: Bar | None = None

    def advance(self, n: int) -> None:
        if n and self._bar is None:
            self._bar = self._progress.start(f"blob {self._blob.hex[:12]}", self._blob.size)
        if self._bar:
            self._bar.advance(n)

    def finish(self) -> None:
        if self._bar:
            self._bar.finish()
