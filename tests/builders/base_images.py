"""Images built in code: layers of a few entries, layouts and docker-archives of a few layers."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import zstandard

from builders.elf import Tiny
from builders.oracle import require
from packager.oci.descriptor import Platform

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"

LIBRARY = Tiny(soname="libx.so.1").build()
"""The contents of a file that is worth keeping."""


@dataclass(frozen=True, slots=True)
class Hard:
    """A hard link to another entry."""

    target: str


@dataclass(frozen=True, slots=True)
class Special:
    """A device or FIFO, by its tar type."""

    type: bytes


DIRECTORY = None
Entry = tuple[str, bytes | str | Hard | Special | None]
"""Name and contents: bytes are a file, a text is a symbolic link's target, None is a directory."""


def layer(*entries: Entry, tar_format: int = tarfile.PAX_FORMAT) -> bytes:
    """The tar of one layer."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tar_format) as tar:
        for name, what in entries:
            member = tarfile.TarInfo(name)
            member.mode = 0o644
            content = b""
            match what:
                case bytes():
                    member.size, content = len(what), what
                    member.mode = 0o755 if what.startswith(b"\x7fELF") else 0o644
                case str():
                    member.type, member.linkname = tarfile.SYMTYPE, what
                case Hard(target):
                    member.type, member.linkname = tarfile.LNKTYPE, target
                case Special(kind):
                    member.type = kind
                case None:
                    member.type, member.mode = tarfile.DIRTYPE, 0o700
            tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


COMPRESSIONS: Mapping[str, tuple[str, Callable[[bytes], bytes]]] = {
    "tar": (LAYER, lambda content: content),
    "gzip": (f"{LAYER}+gzip", lambda content: gzip.compress(content, 1, mtime=0)),
    "gzip in two members": (
        f"{LAYER}+gzip",
        lambda content: gzip.compress(content[:700], mtime=0) + gzip.compress(content[700:], mtime=0),
    ),
    "zstd": (f"{LAYER}+zstd", zstandard.compress),
    "zstd in two frames": (
        f"{LAYER}+zstd",
        lambda content: zstandard.compress(content[:700]) + zstandard.compress(content[700:]),
    ),
}


@dataclass(slots=True)
class Layout:
    """An OCI layout under construction: its files by name, and the descriptors of its index."""

    files: dict[str, bytes] = field(
        default_factory=lambda: {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
    )
    manifests: list[dict[str, Any]] = field(default_factory=list)

    def blob(self, media_type: str, content: bytes, **more: Any) -> dict[str, Any]:
        self.files[f"blobs/sha256/{hashlib.sha256(content).hexdigest()}"] = content
        return {"mediaType": media_type, "digest": digest(content), "size": len(content)} | more

    def manifest(
        self,
        layers: Sequence[bytes] = (),
        platform: str = "linux/amd64",
        compression: str = "tar",
        settings: Mapping[str, Any] = {},
        **more: Any,
    ) -> dict[str, Any]:
        """Add an image's blobs; its descriptor, without a platform."""
        system, architecture, *variant = platform.split("/")
        kind, compress = COMPRESSIONS[compression]
        config = {
            "os": system,
            "architecture": architecture,
            "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]},
            "config": dict(settings),
        } | ({"variant": variant[0]} if variant else {})
        fields = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.blob(CONFIG, as_json(config)),
            "layers": [self.blob(kind, compress(each)) for each in layers],
        } | more
        return self.blob(MANIFEST, as_json(fields))

    def add(
        self, *layers: bytes, platform: str = "linux/amd64", ref: str = "", **more: Any
    ) -> dict[str, Any]:
        """Add an image to the index, its platform in the descriptor as builders for several of them do."""
        system, architecture, *variant = platform.split("/")
        stated = {"os": system, "architecture": architecture} | ({"variant": variant[0]} if variant else {})
        descriptor = self.manifest(layers, platform, **more) | {"platform": stated}
        if ref:
            descriptor["annotations"] = {"org.opencontainers.image.ref.name": ref}
        self.manifests.append(descriptor)
        return descriptor

    def index(self, manifests: Sequence[Mapping[str, Any]]) -> bytes:
        return as_json({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(manifests)})

    def content(self) -> dict[str, bytes]:
        return self.files | {"index.json": self.index(self.manifests)}

    def write(self, path: Path) -> Path:
        """As a directory."""
        for name, content in self.content().items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(content)
        return path

    def archive(self, path: Path, compress: Callable[[bytes], bytes] = bytes) -> Path:
        """As an oci-archive, compressed as a whole where asked for."""
        path.write_bytes(compress(layer(*self.content().items())))
        return path


def docker_archive(
    path: Path, *layers: bytes, tags: Sequence[str] = (), platform: str = "linux/amd64"
) -> Path:
    """An archive as docker save wrote it before it was a layout too: layers that repeat are links."""
    system, architecture = platform.split("/")
    config = as_json(
        {
            "os": system,
            "architecture": architecture,
            "rootfs": {"type": "layers", "diff_ids": [digest(each) for each in layers]},
        }
    )
    named: dict[bytes, str] = {}
    entries: list[Entry] = []
    for number, each in enumerate(layers):
        name = f"{number:064x}/layer.tar"
        entries.append((name, f"../{named[each]}" if each in named else each))
        named.setdefault(each, name)
    name = f"{digest(config).removeprefix('sha256:')}.json"
    row = {
        "Config": name,
        "RepoTags": list(tags) or None,
        "Layers": [f"{number:064x}/layer.tar" for number in range(len(layers))],
    }
    path.write_bytes(layer(*entries, (name, config), ("manifest.json", as_json([row]))))
    return path


def tree(root: Path) -> dict[str, str]:
    """What stands below ``root``: path to "directory", "-> target", or "file" and the start of its digest."""
    found = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_dir():
            found[name] = "directory"
        else:
            found[name] = f"file {digest(path.read_bytes())[7:15]}"
    return found


def debian(*packages: str) -> list[Entry]:
    """The entries of what these packages of this machine put into a root, with the links of a merged /usr."""
    command = [require("dpkg-query"), "-L", *packages]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    entries: list[Entry] = [("usr", DIRECTORY)]
    for name in ("lib", "lib64"):
        link = Path(f"/{name}").is_symlink()
        entries += [(f"usr/{name}", DIRECTORY), *([(name, f"usr/{name}")] if link else [])]
    entries += [("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n"), ("etc/os-release", b"ID=debian\n")]
    for path in map(Path, sorted(set(listed))):
        if path.is_symlink():
            entries.append((str(path), str(path.readlink())))
        elif path.is_file():
            entries.append((str(path), path.read_bytes()))
    return entries


def old_c_library(folder: Path) -> bytes:
    """A libc.so.6 that knows the oldest version of its symbols alone."""
    script, path = folder / "old.map", folder / "libc.so.6"
    script.write_text("GLIBC_2.2.5 { *; };")
    flags = ["-shared", "-nostdlib", "-Wl,-soname,libc.so.6", f"-Wl,--version-script={script}"]
    subprocess.run([require("gcc"), "-xc", "-", *flags, "-o", path], input="int x;", text=True, check=True)
    return path.read_bytes()


SETTINGS = {
    "Env": ["PATH=/opt/base/bin:/bin", "LANG=C.UTF-8", "NVIDIA_VISIBLE_DEVICES=none"],
    "Cmd": ["sh"],
    "User": "1000:1000",
    "Labels": {"org.example.base": "yes"},
}
"""What a base says of how it is run."""


def platform_here() -> str:
    """The platform of this machine, such as linux/amd64."""
    return str(Platform("linux", os.uname().machine).usual())


def base_layout(*layers: Sequence[Entry], platform: str = "") -> Layout:
    """A layout with the image "1", which has :data:`SETTINGS`."""
    layout = Layout()
    tars = [layer(*entries) for entries in layers]
    layout.add(*tars, platform=platform or platform_here(), ref="1", compression="gzip", settings=SETTINGS)
    return layout
