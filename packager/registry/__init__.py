"""Images on registries: pushed to them and read from them, by the OCI distribution specification.

reference    HOST/REPOSITORY:TAG@DIGEST
credentials  what docker and podman keep ─► program: docker-credential-NAME
wire         HTTP: TLS, retries, redirects ─► challenge, tokens: what a registry wants to see first
client       one repository: manifests, blobs ─► failure: what to say when it says no
push         an image in the right order ─► upload: one blob ─► session: an upload on the registry, body
             ─► referrers: artifacts that belong to an image
layout       what can be pushed: an OCI layout, or a tar of one
pull         an image to build on ─► store: blobs in the cache
"""

from __future__ import annotations

from packager.registry.client import Access
from packager.registry.pull import RegistryImage, pull
from packager.registry.push import Pushed, PushedBlob, push
from packager.registry.reference import Reference, parse_repository
from packager.registry.upload import Outcome

__all__ = [
    "Access",
    "Outcome",
    "Pushed",
    "PushedBlob",
    "Reference",
    "RegistryImage",
    "parse_repository",
    "pull",
    "push",
]
