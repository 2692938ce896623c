"""A whole image: layers, config, manifest, the attached account, and the layout that holds them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packager.emit.archive import Last
from packager.emit.item import Entry, Item, check_path, in_order
from packager.emit.pipeline import write_all
from packager.oci import documents
from packager.oci.below import BaseImage
from packager.oci.descriptor import (
    CONFIG_TYPE,
    EMPTY,
    EMPTY_TYPE,
    MANIFEST_TYPE,
    Base,
    Descriptor,
    document,
)
from packager.oci.documents import ACCOUNT_TYPE, ImageOptions
from packager.oci.layer import Layer, LayerForm, LayerSpec, Progress, stream_layer, write_layer
from packager.oci.layout import Layout, LayoutArchive, LayoutDirectory, copy, put
from packager.place import cannot_write, check_output, placed


class ImageForm(StrEnum):
    """How an image lies on disk; the values are what ``--format`` takes."""

    OCI = "oci"
    OCI_ARCHIVE = "oci-archive"


@dataclass(frozen=True, slots=True)
class WrittenImage:
    """An image on disk.

    ``size``      bytes of the archive, or of all files of the layout together.
    ``manifest``  the descriptor in index.json, with platform and name.
    ``account``   of the artifact that attaches dpack.json.
    ``layers``    those that were added, the lowest first; ``base`` those below them.
    """

    output: Path
    form: ImageForm
    size: int
    manifest: Descriptor
    config: Descriptor
    account: Descriptor
    layers: tuple[Layer, ...]
    base: tuple[Descriptor, ...]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every file that was added, dpack.json last."""
        return tuple(entry for layer in self.layers for entry in layer.entries)


@dataclass(frozen=True, slots=True)
class WrittenLayer:
    """A layer on disk, and beside it its descriptor and diff_id in JSON."""

    output: Path
    document: Path
    layer: Layer


def write_oci(  # noqa: PLR0913 - the options of `dpack bundle --format oci`
    output: Path,
    layers: Sequence[LayerSpec],
    last: Last,
    options: ImageOptions,
    *,
    form: ImageForm,
    layer_form: LayerForm,
    base: Base | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> WrittenImage:
    """Write an image: the base's layers, then these, each in the order of its paths, the lowest first.

    ``last`` makes dpack.json of the entries of all layers; it goes to the end of the last one. Other layers
    without items are left out. ``progress`` is called with the bytes of each piece of an item that was read.

    Raises DpackError when an item or a blob of the base cannot be read, or the output cannot be written;
    whatever is raised, nothing is left behind and an output that existed is untouched.
    """
    layer_form.archive_form()
    check_output(output, force=force)
    specs = _checked(layers)
    below = BaseImage.of(base, options.platform) if base else None
    open_layout = LayoutDirectory if form is ImageForm.OCI else LayoutArchive
    with (
        _telling(output, specs),
        placed(output, force=force) as beside,
        open_layout(beside, layer_form.epoch) as layout,
    ):
        image = _Image(layout, options, layer_form, form)
        if base and below:
            image.copy_base(base, below)
        image.write_layers(specs, last, progress)
        return image.finish(output)


def write_layer_file(  # noqa: PLR0913 - the options of `dpack bundle --format layer`
    output: Path,
    items: Sequence[Item],
    last: Last,
    *,
    layer_form: LayerForm,
    name: str = "",
    force: bool = False,
    progress: Progress | None = None,
) -> WrittenLayer:
    """Write one layer as a file, and OUTPUT.json with mediaType, digest, size and diff_id beside it.

    Raises as :func:`write_oci` does.
    """
    layer_form.archive_form()
    beside_it = output.with_name(f"{output.name}.json")
    for path in (output, beside_it):
        check_output(path, force=force)
    (spec,) = _checked([LayerSpec(name, tuple(items))])
    with (
        _telling(output, [spec]),
        placed(output, force=force) as blob,
        placed(beside_it, force=force) as text,
    ):
        with _created(blob) as descriptor:
            layer = stream_layer(descriptor, name, spec.items, last, layer_form, progress)
        with _created(text) as descriptor:
            told = {**layer.descriptor.to_json(), "diff_id": layer.diff_id}
            write_all(descriptor, memoryview(json.dumps(told, indent=2).encode() + b"\n"))
            os.fsync(descriptor)
    return WrittenLayer(output, beside_it, layer)


class _Image:
    """An image while it is written: blobs first, then the documents that name them."""

    def __init__(self, layout: Layout, options: ImageOptions, layer_form: LayerForm, form: ImageForm) -> None:
        self._layout, self._options, self._layer_form, self._form = layout, options, layer_form, form
        self._base: BaseImage | None = None
        self._layers: list[Layer] = []
        self._account = b""
        layout.file("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')

    def copy_base(self, base: Base, below: BaseImage) -> None:
        self._base = below
        for descriptor in base.layers:
            with base.blob(descriptor) as stream:
                copy(self._layout, descriptor, stream, base.name)

    def write_layers(self, specs: Sequence[LayerSpec], last: Last, progress: Progress | None) -> None:
        *lower, top = specs
        paths = [item.path for spec in specs for item in spec.items]
        for spec in lower:
            if spec.items:
                self._layers.append(write_layer(self._layout, spec, None, self._layer_form, progress))

        def final(entries: tuple[Entry, ...]) -> Item:
            written = tuple(entry for layer in self._layers for entry in layer.entries)
            item = last((*written, *entries))
            check_path(item.path, paths)
            self._account = item.source if isinstance(item.source, bytes) else b""
            return item

        self._layers.append(write_layer(self._layout, top, final, self._layer_form, progress))

    def finish(self, output: Path) -> WrittenImage:
        options, base, epoch = self._options, self._base, self._layer_form.epoch
        config = self._put(CONFIG_TYPE, document(documents.config(options, self._layers, base, epoch)))
        manifest = documents.manifest(options, config, self._layers, base, epoch)
        image = self._put(MANIFEST_TYPE, document(manifest))
        attached = self._attach(image)
        named = documents.named(image, options, base)
        if self._form is ImageForm.OCI_ARCHIVE:
            told = documents.docker_manifest(options, manifest)
            self._layout.file("manifest.json", json.dumps(told, separators=(",", ":")).encode())
        self._layout.file("index.json", document(documents.index(named, attached)))
        size = self._layout.finish()
        below = base.layers if base else ()
        return WrittenImage(output, self._form, size, named, config, attached, tuple(self._layers), below)

    def _attach(self, image: Descriptor) -> Descriptor:
        self._put(EMPTY_TYPE, EMPTY)
        content = self._put(ACCOUNT_TYPE, self._account)
        title = self._layers[-1].entries[-1].path.rpartition("/")[2]
        return self._put(
            MANIFEST_TYPE, document(documents.account(image, content, title, self._layer_form.epoch))
        )

    def _put(self, media_type: str, content: bytes) -> Descriptor:
        descriptor = Descriptor.of(media_type, content)
        put(self._layout, descriptor, content)
        return descriptor


def _checked(layers: Sequence[LayerSpec]) -> list[LayerSpec]:
    """The same layers with their items in order; ValueError when two items cannot stand together."""
    in_order([item for layer in layers for item in layer.items])
    return [LayerSpec(layer.name, in_order(layer.items)) for layer in layers]


@contextmanager
def _telling(output: Path, specs: Sequence[LayerSpec]) -> Iterator[None]:
    """Turn an OSError into a DpackError about the output."""
    try:
        yield
    except OSError as error:
        most = sum(item.size for spec in specs for item in spec.items)
        raise cannot_write(output, error, most) from error


@contextmanager
def _created(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
