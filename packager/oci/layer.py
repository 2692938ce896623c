"""One layer: a deterministic tar, compressed, whose digest and diff_id are taken while it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from packager.emit.archive import Form, Last, write_stream
from packager.emit.format import Format, level_of
from packager.emit.item import Entry, Item
from packager.oci.descriptor import LAYER_GZIP, LAYER_TAR, LAYER_ZSTD, Descriptor
from packager.oci.layout import Layout

Progress = Callable[[int], None]
"""Called with the bytes of each piece of an item that was read."""


class Compression(StrEnum):
    """How layers are compressed; the values are what ``--compression`` takes."""

    ZSTD = "zstd"
    GZIP = "gzip"
    NONE = "none"

    @property
    def archive(self) -> Format:
        """The archive that a layer is."""
        return _FORMS[self][0]

    @property
    def media_type(self) -> str:
        """What a layer's descriptor says ("Layer Filesystem Changeset", media types)."""
        return _FORMS[self][1]


_FORMS = {
    Compression.ZSTD: (Format.TAR_ZST, LAYER_ZSTD),
    Compression.GZIP: (Format.TAR_GZ, LAYER_GZIP),
    Compression.NONE: (Format.TAR, LAYER_TAR),
}


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """A layer to write: what it is in words ("vendor libraries") and what it holds, in the order to write.

    Paths are those inside the image, without the "/" in front: "opt/mnist/lib/libcudnn.so.9".
    """

    name: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer as it was written.

    ``descriptor``  of the blob: its digest and size are those of the compressed tar.
    ``diff_id``     digest of the tar itself ("Image Configuration", layer DiffID).
    ``entries``     its files and links, in their order.
    """

    name: str
    descriptor: Descriptor
    diff_id: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class LayerForm:
    """How layers are written: compression, its level (None: the usual one), file times, threads."""

    compression: Compression
    epoch: int
    level: int | None = None
    threads: int | None = None

    def archive_form(self) -> Form:
        """The same for a tar; DpackError (exit 2) for a level that the compression has not."""
        kind = self.compression.archive
        return Form("", self.epoch, kind, level_of(kind, self.level), self.threads, hash_tar=True)


def write_layer(
    layout: Layout, spec: LayerSpec, last: Last | None, form: LayerForm, progress: Progress | None = None
) -> Layer:
    """Write a layer's blob into the layout: its items, then what ``last`` makes of their entries."""
    layer = stream_layer(layout.begin(), spec.name, spec.items, last, form, progress)
    layout.end(layer.descriptor)
    return layer


def stream_layer(  # noqa: PLR0913, PLR0917 - an archive's arguments and a name
    descriptor: int,
    name: str,
    items: Sequence[Item],
    last: Last | None,
    form: LayerForm,
    progress: Progress | None,
) -> Layer:
    """Write a layer's blob at the position of an open file."""
    archive = write_stream(descriptor, items, last, form.archive_form(), progress)
    blob = Descriptor(form.compression.media_type, f"sha256:{archive.sha256}", archive.size)
    return Layer(name, blob, f"sha256:{archive.tar_sha256}", archive.entries)
