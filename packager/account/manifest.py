"""The manifest: ``dpack.json``, which accounts for every file that a bundle holds or leaves out.

It depends on the input alone: no path of this machine, no name of a user, no time stands in it. Its form is
``manifest.schema.json`` in this directory.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from packager import __version__
from packager.account.chain import chain
from packager.account.licence import LicenceText
from packager.account.origin import Origin
from packager.account.report import destination_json
from packager.account.requirements import Floor, Requirements, requirements
from packager.account.totals import LICENCE_GROUP, Counted, totals
from packager.destination import platform_of
from packager.emit.item import Entry, Item
from packager.errors import DpackError
from packager.oci.descriptor import Descriptor
from packager.plan import Action, Decision, Plan
from packager.recipes import Licence
from packager.resolve.provided import C_LIBRARY_GROUP

FILE_NAME = "dpack.json"
SCHEMA_ID = "urn:dpack:manifest:1"
VERSION = 1

Json = dict[str, Any]

LayerDigests = tuple[str, Descriptor, str]
"""The name of a layer, the descriptor of its blob, and its diff_id."""


@dataclass(frozen=True, slots=True)
class Placed:
    """One kept file of the plan and where it stands in the bundle; ``changes`` says how it was modified."""

    path: str
    decision: Decision
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contents:
    """What is put into a bundle, before it is written.

    ``origins``   of the files kept and dropped, by their path on this machine (``Object.host``).
    ``licences``  the classes that the recipes know; the manifest lists those that occur.
    ``added``     files that dpack itself makes; one that is a directory is not in the manifest.
    """

    placed: tuple[Placed, ...]
    texts: tuple[LicenceText, ...]
    origins: Mapping[str, Origin]
    licences: tuple[Licence, ...] = ()
    added: tuple[Item, ...] = ()


def manifest(plan: Plan, entries: Sequence[Entry], contents: Contents) -> Json:
    """Account for ``entries``, every file of the bundle but the manifest itself, and for what ``plan`` drops.

    Raises ValueError when entries and contents are not the same files, and DpackError when a file that is said
    to be unmodified has another size than the plan saw.
    """
    files = _files(plan, entries, contents)
    dropped = [_dropped(plan, d, contents) for d in sorted(plan.of(Action.DROP), key=lambda d: d.name)]
    needs = requirements(plan)
    return {
        "$schema": SCHEMA_ID,
        "version": VERSION,
        "tool": {"name": "dpack", "version": __version__},
        "request": _request(plan, needs),
        "files": files,
        "links": [{"path": entry.path, "target": entry.link} for entry in entries if entry.link],
        "dropped": dropped,
        "host": _host(needs),
        "licences": _licences([*files, *dropped], contents.licences),
        "misses": _misses(plan),
        "possible_misses": _possible_misses(plan),
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "totals": {**_totals(files, dropped), "saved": _saved(plan, files, dropped)},
    }


def with_archive(manifest: Mapping[str, Any], form: str, size: int, sha256: str | None) -> Json:
    """The manifest with what only its outside can tell: format, bytes and sha256 (None for a directory)."""
    return {**manifest, "archive": {"format": form, "bytes": size, "sha256": sha256}}


def with_image(manifest: Mapping[str, Any], *, layers: Sequence[LayerDigests], **digests: Any) -> Json:
    """The manifest with the digests of the image or the layer that holds the files."""
    rows = [
        {"name": name, "digest": blob.digest, "diff_id": diff_id, "bytes": blob.size}
        for name, blob, diff_id in layers
    ]
    return {**manifest, "image": {**digests, "layers": rows}}


def to_json(manifest: Mapping[str, Any]) -> bytes:
    """The manifest as it is written: sorted keys, two spaces, ASCII, one newline at the end."""
    return (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode("ascii")


def _request(plan: Plan, needs: Requirements) -> Json:
    choice = plan.choice
    return {
        **destination_json(choice.destination),
        "program": plan.program.name,
        "models": [model.name for model in choice.models],
        "platform": choice.destination.platform or platform_of(needs.machine),
        "include": list(choice.include),
        "exclude": list(choice.exclude),
        "strict": choice.strict,
    }


def _files(plan: Plan, entries: Sequence[Entry], contents: Contents) -> list[Json]:
    placed = {one.path: one for one in contents.placed}
    texts = {text.path: text for text in contents.texts}
    added = {item.path for item in contents.added}
    written = [entry.path for entry in entries if not entry.link]
    if sorted(written) != sorted([*placed, *texts, *added]):
        odd = set(written).symmetric_difference([*placed, *texts, *added])
        raise ValueError(
            f"in the bundle or in its contents, not in both: {', '.join(sorted(odd)) or written}"
        )
    return [
        _library(plan, placed[entry.path], entry, contents)
        if entry.path in placed
        else _text(texts[entry.path], entry)
        if entry.path in texts
        else _added(entry)
        for entry in sorted(entries, key=lambda entry: entry.path)
        if not entry.link and not stat.S_ISDIR(entry.mode)
    ]


def _library(plan: Plan, placed: Placed, entry: Entry, contents: Contents) -> Json:
    decision = placed.decision
    if not placed.changes and entry.size != decision.size:
        raise DpackError(
            f"cannot account for {entry.path}",
            f"it changed since it was planned ({decision.size:,} bytes then, {entry.size:,} bytes now)",
            next="run dpack again when nothing writes the file",
        )
    return {
        **_fate(plan, decision, contents),
        "path": entry.path,
        "kind": "executable" if decision is plan.program else "library",
        "soname": decision.object.elf.soname if decision.object else None,
        "bytes": entry.size,
        "bytes_original": decision.size,
        "sha256": entry.sha256,
        "modified": bool(placed.changes),
        "changes": list(placed.changes),
    }


def _text(text: LicenceText, entry: Entry) -> Json:
    return _plain(entry, "licence", _origin(text.origin, ""), LICENCE_GROUP, f"licence text of {text.origin}")


def _added(entry: Entry) -> Json:
    origin = {"kind": "dpack", "name": "dpack", "version": __version__, "path": ""}
    return _plain(entry, "configuration", origin, C_LIBRARY_GROUP, "configures the dynamic loader")


def _plain(entry: Entry, kind: str, origin: Json, group: str, reason: str) -> Json:
    """A file that is kept as a whole for a reason of its own."""
    return {
        "path": entry.path,
        "kind": kind,
        "name": entry.path.rpartition("/")[2],
        "names": [],
        "soname": None,
        "bytes": entry.size,
        "bytes_original": entry.size,
        "sha256": entry.sha256,
        "origin": origin,
        "component": None,
        "group": group,
        "action": Action.KEEP.value,
        "reason": reason,
        "rule": "",
        "chain": [],
        "licence": None,
        "modified": False,
        "changes": [],
    }


def _dropped(plan: Plan, decision: Decision, contents: Contents) -> Json:
    return {
        **_fate(plan, decision, contents),
        "bytes": decision.size,
        "without": decision.component.without if decision.component else "",
    }


def _fate(plan: Plan, decision: Decision, contents: Contents) -> Json:
    """What is said of every file that the plan decides on."""
    if decision.object is None:
        raise ValueError(f"{decision.name} is neither kept nor dropped: it has no file")
    return {
        "name": decision.name,
        "names": list(decision.also_asked_as),
        "origin": _origin(contents.origins[decision.object.host]),
        "component": decision.component.id if decision.component else None,
        "group": decision.group,
        "action": decision.action.value,
        "reason": decision.reason,
        "rule": decision.rule,
        "chain": list(chain(plan, decision)),
        "licence": decision.family.licence if decision.family else None,
    }


def _origin(origin: Origin, path: str | None = None) -> Json:
    return {
        "kind": origin.kind.value,
        "name": origin.name,
        "version": origin.version,
        "path": origin.path if path is None else path,
    }


def _host(needs: Requirements) -> Json:
    return {
        "machine": needs.machine,
        "loader": needs.loader,
        "glibc": _floor(needs.glibc),
        "glibcxx": _floor(needs.glibcxx),
        "cxxabi": _floor(needs.cxxabi),
        "markers": [{"name": m.name, "wanted_by": list(m.wanted_by)} for m in needs.markers],
        "driver": list(needs.driver),
        "libraries": [{**asdict(library), "asked_by": list(library.asked_by)} for library in needs.libraries],
    }


def _floor(floor: Floor | None) -> Json | None:
    return None if floor is None else {**asdict(floor), "wanted_by": list(floor.wanted_by)}


def _licences(files: Sequence[Json], known: Sequence[Licence]) -> list[Json]:
    used = {file["licence"] for file in files}
    return [asdict(licence) for licence in sorted(known, key=lambda one: one.name) if licence.name in used]


def _misses(plan: Plan) -> list[Json]:
    names = {d.path: d.name for d in plan.decisions}
    rows = {(m.name, names.get(m.source, ""), m.evidence.need.value) for m in plan.misses}
    return [{"name": name, "asked_by": by, "need": need} for name, by, need in sorted(rows)]


def _possible_misses(plan: Plan) -> list[Json]:
    names = {d.path: d.name for d in plan.decisions}
    rows = {(m.name, names.get(m.source, "")) for m in plan.mentions}
    return [{"name": name, "mentioned_by": by} for name, by in sorted(rows)]


def _saved(plan: Plan, files: Sequence[Json], dropped: Sequence[Json]) -> Json:
    """What each step took off. What a file lost beside its slice, it lost by stripping, its new rpath set off."""
    slicing = sum(d.size - d.packed_size for d in plan.of(Action.KEEP))
    lost = sum(file["bytes_original"] - file["bytes"] for file in files)
    return {
        "dropping": sum(file["bytes"] for file in dropped),
        "slicing": slicing,
        "stripping": lost - slicing,
    }


def _totals(files: Sequence[Json], dropped: Sequence[Json]) -> Json:
    counted = [Counted(file["group"], file["bytes"], kept=True) for file in files]
    counted += [Counted(file["group"], file["bytes"], kept=False) for file in dropped]
    return {
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files),
        "bytes_original": sum(file["bytes_original"] for file in files),
        "dropped_files": len(dropped),
        "dropped_bytes": sum(file["bytes"] for file in dropped),
        "by_group": {
            row.group: {
                "files": row.files,
                "bytes": row.bytes,
                "dropped_files": row.dropped_files,
                "dropped_bytes": row.dropped_bytes,
            }
            for row in totals(counted)
        },
    }
