"""Image layouts for tests: a tiny image, a base in memory, and readers that know nothing of the writer."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import jsonschema
import zstandard
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT4

from builders.bundles import EPOCH, manifest
from builders.oracle import missing
from packager.emit import Item
from packager.oci.descriptor import (
    CONFIG_TYPE,
    LAYER_GZIP,
    MANIFEST_TYPE,
    Descriptor,
    Platform,
    digest_of,
    document,
)
from packager.oci.documents import ImageOptions
from packager.oci.layer import Compression, LayerForm, LayerSpec
from packager.oci.write import ImageForm, WrittenImage, write_oci

SCHEMAS = Path("/usr/share/gocode/src/github.com/opencontainers/image-spec/schema")
"""Debian's golang-github-opencontainers-image-spec-dev."""

OPTIONS = ImageOptions(
    platform=Platform("linux", "amd64"),
    entrypoint=("/opt/app/bin/app",),
    working_directory="/opt/app",
    environment=(("PATH", "/usr/bin:/bin"), ("NVIDIA_VISIBLE_DEVICES", "all")),
    labels=(("org.opencontainers.image.title", "app"),),
    annotations=(("io.dpack.model", "cnn"),),
    name="app:1.2",
    created_by="dpack bundle app",
)

LAYERS = (
    LayerSpec(
        "vendor libraries", (Item("opt/app/lib/libvendor.so.9", 0o755, b"\x7fELF" + b"vendor" * 9000),)
    ),
    LayerSpec(
        "other libraries",
        (
            Item("opt/app/lib/libother.so.1", 0o755, b"other" * 100),
            Item("lib64", 0o777, b"", "usr/lib64"),
            Item("usr/lib64/ld-linux-x86-64.so.2", 0o755, b"loader"),
        ),
    ),
    LayerSpec("program", (Item("opt/app/bin/app", 0o755, b"\x7fELFapp"),)),
)


def last(entries: Any) -> Item:
    """dpack.json, where the image has it."""
    return Item("opt/app/dpack.json", 0o644, manifest(entries).source)


def form(compression: str = "gzip", **options: Any) -> LayerForm:
    return LayerForm(Compression(compression), EPOCH, **options)


def image(output: Path, kind: str = "oci", compression: str = "gzip", **options: Any) -> WrittenImage:
    """Write the tiny image."""
    arguments = {"form": ImageForm(kind), "layer_form": form(compression), **options}
    layers, said = arguments.pop("layers", LAYERS), arguments.pop("options", OPTIONS)
    return write_oci(output, layers, last, said, **arguments)


def files(layout: Path) -> dict[str, bytes]:
    """Every file of a layout, or of a tar of one, by its name."""
    if layout.is_dir():
        return {
            path.relative_to(layout).as_posix(): path.read_bytes()
            for path in layout.rglob("*")
            if path.is_file()
        }
    with tarfile.open(layout) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


@dataclass(frozen=True, slots=True)
class ReadImage:
    """An image read back by following its descriptors from index.json, each digest and size checked."""

    files: dict[str, bytes]

    def blob(self, descriptor: dict[str, Any]) -> bytes:
        algorithm, _, digits = descriptor["digest"].partition(":")
        content = self.files[f"blobs/{algorithm}/{digits}"]
        assert hashlib.new(algorithm, content).hexdigest() == digits
        assert len(content) == descriptor["size"]
        return content

    @property
    def index(self) -> dict[str, Any]:
        return json.loads(self.files["index.json"])

    @property
    def manifest(self) -> dict[str, Any]:
        return json.loads(self.blob(self.index["manifests"][0]))

    @property
    def account(self) -> dict[str, Any]:
        return json.loads(self.blob(self.index["manifests"][1]))

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(self.blob(self.manifest["config"]))

    @property
    def tars(self) -> list[bytes]:
        """The layers without their compression."""
        return [plain(self.blob(layer), layer["mediaType"]) for layer in self.manifest["layers"]]

    @property
    def tree(self) -> dict[str, str]:
        """What the layers hold together, in the words of :func:`told`."""
        found: dict[str, str] = {}
        for raw in self.tars:
            with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
                for member in tar:
                    content = tar.extractfile(member).read() if member.isfile() else b""
                    found[member.name] = told(member.mode, content, member.linkname, directory=member.isdir())
        return found


def read(layout: Path) -> ReadImage:
    return ReadImage(files(layout))


def plain(blob: bytes, media_type: str) -> bytes:
    if media_type.endswith("+zstd"):
        return zstandard.ZstdDecompressor().decompressobj().decompress(blob)
    return gzip.decompress(blob) if media_type.endswith(("+gzip", ".gzip")) else blob


def told(mode: int, content: bytes, link: str = "", *, directory: bool = False) -> str:
    if link:
        return f"-> {link}"
    return f"{mode:o}" if directory else f"{mode:o} {hashlib.sha256(content).hexdigest()}"


def expected(written: WrittenImage) -> dict[str, str]:
    """The tree that the entries promise."""
    found = {}
    for entry in written.entries:
        for parent in Path(entry.path).parents[:-1]:
            found[parent.as_posix()] = "755"
        found[entry.path] = f"-> {entry.link}" if entry.link else f"{entry.mode:o} {entry.sha256}"
    return found


def check_schema(name: str, value: Any, folder: Path = SCHEMAS) -> None:
    """Validate by one of image-spec's own schemas, such as "image-manifest"."""
    if not folder.is_dir():
        missing(f"{folder} is not there")

    def retrieve(uri: str) -> Resource[Any]:
        text = (folder / uri.rpartition("/")[2]).read_text()
        return Resource(json.loads(text), DRAFT4)

    path = folder / (f"{name}.json" if name == "content-descriptor" else f"{name}-schema.json")
    registry: Registry[Any] = Registry(retrieve=retrieve)
    jsonschema.Draft4Validator(json.loads(path.read_text()), registry=registry).validate(value)


@dataclass(frozen=True, slots=True)
class MemoryBase:
    """A base image in memory, with one layer for each tree of files."""

    name: str
    config: bytes
    layers: tuple[Descriptor, ...]
    blobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def descriptor(self) -> Descriptor:
        config = Descriptor.of(CONFIG_TYPE, self.config).to_json()
        layers = [layer.to_json() for layer in self.layers]
        return Descriptor.of(MANIFEST_TYPE, document({"config": config, "layers": layers}))

    @contextmanager
    def blob(self, descriptor: Descriptor) -> Iterator[BinaryIO]:
        yield io.BytesIO(self.blobs[descriptor.digest])


def base(
    config: dict[str, Any] | None = None,
    *,
    media_type: str = LAYER_GZIP,
    trees: tuple[dict[str, bytes], ...] = ({"etc/os-release": b"ID=tiny\n"}, {"usr/lib/libc.so.6": b"libc"}),
    **replaced: Any,
) -> MemoryBase:
    """A base with two layers; ``replaced`` are keys of its config, None to leave one out."""
    tars = [_tar(tree) for tree in trees]
    blobs = [gzip.compress(tar, mtime=0) for tar in tars]
    document = {
        "architecture": "amd64",
        "os": "linux",
        "config": config or {},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(tar) for tar in tars]},
        "history": [
            {"created_by": "debootstrap"},
            {"created_by": "ENV", "empty_layer": True},
            {"comment": "libc"},
        ],
        **replaced,
    }
    text = json.dumps({key: value for key, value in document.items() if value is not None})
    layers = tuple(Descriptor.of(media_type, blob) for blob in blobs)
    return MemoryBase("tiny:1", text.encode(), layers, {digest_of(blob): blob for blob in blobs})


def _tar(tree: dict[str, bytes]) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as tar:
        for name, content in tree.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return output.getvalue()
