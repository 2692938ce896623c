"""Small images for registries, held in memory and written as layouts for others to read."""

from __future__ import annotations

import io
import json
import random
from contextlib import contextmanager
from dataclasses import dataclass, field

from packager.oci.descriptor import (
    CONFIG_TYPE,
    EMPTY,
    EMPTY_TYPE,
    INDEX_TYPE,
    LAYER_TAR,
    MANIFEST_TYPE,
    Descriptor,
    Platform,
    digest_of,
    document,
)


@dataclass
class MemoryLayout:
    """What ``push`` takes: the roots of an index.json, and blobs by their digest."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    listed: list[Descriptor] = field(default_factory=list)

    @property
    def roots(self):
        return tuple(self.listed)

    @contextmanager
    def blob(self, descriptor):
        yield io.BytesIO(self.blobs[descriptor.digest])

    def add(self, media_type, content, **more):
        descriptor = Descriptor(media_type, digest_of(content), len(content), **more)
        self.blobs[descriptor.digest] = content
        return descriptor

    def image(self, *layers, architecture="amd64", annotations=None):
        """A manifest over these layers (bytes); it is not listed."""
        config = {
            "architecture": architecture,
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]},
        }
        fields = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "config": self.add(CONFIG_TYPE, document(config)).to_json(),
            "layers": [self.add(LAYER_TAR, layer).to_json() for layer in layers],
        }
        if annotations:
            fields["annotations"] = annotations
        return self.add(MANIFEST_TYPE, document(fields), platform=Platform("linux", architecture))

    def index(self, *manifests):
        listed = [manifest.to_json() for manifest in manifests]
        return self.add(
            INDEX_TYPE, document({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": listed})
        )

    def artifact(self, subject, content, kind="application/vnd.example.sizes"):
        """A manifest that belongs to another one; it is listed."""
        fields = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": kind,
            "config": self.add(EMPTY_TYPE, EMPTY).to_json(),
            "layers": [self.add("application/json", content).to_json()],
            "subject": {key: subject.to_json()[key] for key in ("mediaType", "digest", "size")},
            "annotations": {"com.example.made": "yes"},
        }
        descriptor = self.add(MANIFEST_TYPE, document(fields))
        self.listed.append(descriptor)
        return descriptor

    def write(self, folder):
        """The layout as a directory, each root named by its place: 0, 1, …"""
        (folder / "blobs" / "sha256").mkdir(parents=True)
        for digest, content in self.blobs.items():
            (folder / "blobs" / "sha256" / digest.removeprefix("sha256:")).write_bytes(content)
        (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
        listed = [
            {**root.to_json(), "annotations": {"org.opencontainers.image.ref.name": str(place)}}
            for place, root in enumerate(self.listed)
        ]
        (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": listed}))
        return folder


def noise(size, seed=0):
    """Bytes that stand for a layer; the registry does not look into them."""
    return random.Random(seed).randbytes(size)


def simple(*layers, **more):
    """A layout with one image of these layers."""
    layout = MemoryLayout()
    layout.listed.append(layout.image(*(layers or (noise(1000),)), **more))
    return layout
