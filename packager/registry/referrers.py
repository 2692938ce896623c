"""Artifacts that belong to an image: the referrers tag, for registries without the referrers API.

Source: distribution-spec v1.1, "Pushing Manifests with Subject" and "Referrers Tag Schema".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from packager.oci.descriptor import INDEX_TYPE, Descriptor, document, pairs, parsed
from packager.registry.client import Repository
from packager.registry.failure import RefusedError, wrong

# Others may write the same tag at the same time, and the last one wins.
_ATTEMPTS = 4


def referring(descriptor: Descriptor, manifest: dict[str, Any]) -> Descriptor:
    """The descriptor of an artifact as a list of referrers shows it: with its type and its annotations."""
    name = f"the manifest {descriptor.digest}"
    config = Descriptor.from_json(manifest.get("config"), name)
    kind = str(manifest.get("artifactType") or config.media_type)
    annotations = pairs(manifest.get("annotations"), name, "annotations")
    return replace(descriptor, artifact_type=kind, annotations=annotations, platform=None)


def add_referrer(repository: Repository, subject: str, artifact: Descriptor) -> None:
    """Put the artifact on the list that is kept under the subject's own tag, sha256-….

    The list is read again afterwards: it may have been written by someone else in between.
    """
    tag = subject.replace(":", "-")
    for _ in range(_ATTEMPTS):
        listed = _listed(repository, tag)
        if any(entry.get("digest") == artifact.digest for entry in listed):
            return
        content = document(
            {
                "schemaVersion": 2,
                "mediaType": INDEX_TYPE,
                "manifests": [*listed, artifact.to_json()],
            }
        )
        repository.put_manifest(tag, Descriptor.of(INDEX_TYPE, content), content)
    raise wrong(
        repository.remote.purpose,
        f"{repository.remote.reference.host} does not keep the list of what belongs to {subject}",
    )


def _listed(repository: Repository, tag: str) -> list[Any]:
    try:
        content = repository.manifest(tag).content
    except RefusedError as refusal:
        if refusal.status == 404:
            return []
        raise
    name = f"the list of referrers {tag}"
    listed = parsed(content, name).get("manifests")
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
