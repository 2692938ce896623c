"""The size tables as values: a bundle component by component, and beside the frameworks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from packager.account.size import TIMES, human, ratio
from packager.account.table import Table
from packager.account.totals import Counted, GroupTotal, in_order, totals
from packager.emit import Format
from packager.plan import Action, Plan
from packager.recipes import Footprint, Framework

_GPU_GROUPS = frozenset({"CUDA runtime", "cuBLAS", "cuDNN"})
"""A bundle with files of one of these groups is compared with what the frameworks ship for a GPU."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of one bundle in bytes; ``archive`` is (format, bytes) where the bundle was packed.

    ``sliced`` and ``stripped`` are what the kept files lost of their bytes by each. ``added`` are the bytes of the
    layers where an image stands on the layers of a base, which the archive holds, too.
    """

    groups: tuple[GroupTotal, ...]
    archive: tuple[str, int] | None = None
    sliced: int = 0
    stripped: int = 0
    added: int | None = None

    @property
    def bytes(self) -> int:
        """What the files take on disk."""
        return sum(row.bytes for row in self.groups)

    @property
    def dropped_bytes(self) -> int:
        """What the files that were left out would take."""
        return sum(row.dropped_bytes for row in self.groups)

    @property
    def gpu(self) -> bool:
        """True when CUDA libraries are in the bundle."""
        return any(row.group in _GPU_GROUPS and row.files for row in self.groups)


def sizes_of_plan(plan: Plan) -> Sizes:
    """The sizes before anything is written: those of the original files."""
    decided = (*plan.of(Action.KEEP), *plan.of(Action.DROP))
    counted = (Counted(d.group, d.packed_size, d.action is Action.KEEP) for d in decided)
    return Sizes(totals(counted), sliced=sum(d.size - d.packed_size for d in plan.of(Action.KEEP)))


def sizes_of_manifest(manifest: Mapping[str, Any]) -> Sizes:
    """The sizes of what was shipped; with the archive's where the manifest is the copy that tells it."""
    rows = [GroupTotal(group, **counts) for group, counts in manifest["totals"]["by_group"].items()]
    archive = manifest.get("archive")
    packed = archive is not None and archive["format"] != Format.DIR
    saved = manifest["totals"]["saved"]
    image = manifest.get("image", {})
    return Sizes(
        in_order(rows),
        (archive["format"], archive["bytes"]) if archive and packed else None,
        saved["slicing"],
        saved["stripping"],
        sum(layer["bytes"] for layer in image["layers"]) if image.get("base") else None,
    )


def size_table(sizes: Sizes) -> Table:
    """Component by component: what is kept and what is dropped, then all of it, on disk and packed."""
    rows = [(row.group, _shown(row.bytes), _shown(row.dropped_bytes)) for row in sizes.groups]
    rows.append(("total on disk", human(sizes.bytes), _shown(sizes.dropped_bytes)))
    if sizes.archive is not None:
        form, size = sizes.archive
        rows.append((f"as {form}", human(size), ""))
        rows += [] if sizes.added is None else [("added to the base", human(sizes.added), "")]
    rows += [(f"saved by {how}", human(size), "") for how, size in _savings(sizes) if size > 0]
    return Table(("component", "kept", "dropped"), tuple(rows))


def _savings(sizes: Sizes) -> tuple[tuple[str, int], ...]:
    """What each step takes off, in its order, in bytes."""
    whole = sizes.archive[1] if sizes.archive else sizes.bytes
    packed = sizes.bytes - (whole if sizes.added is None else sizes.added)
    return (
        ("dropping", sizes.dropped_bytes),
        ("slicing", sizes.sliced),
        ("stripping", sizes.stripped),
        ("compressing", packed),
    )


def framework_table(sizes: Sizes, frameworks: Sequence[Framework]) -> Table:
    """This bundle, then the frameworks by size: GPU figures for a bundle with CUDA libraries, else CPU ones.

    The last column divides each by the bundle. The footnotes say what each counts, and who measured it.
    """
    published = [(framework, framework.gpu if sizes.gpu else framework.cpu) for framework in frameworks]
    known = [(framework, footprint) for framework, footprint in published if footprint is not None]
    known.sort(key=lambda pair: (pair[1].bytes, pair[0].name))
    rows = [("this bundle", human(sizes.bytes), f"1{TIMES}")]
    rows += [
        (f"{framework.title} [{number}]", human(footprint.bytes), ratio(footprint.bytes, sizes.bytes))
        for number, (framework, footprint) in enumerate(known, 1)
    ]
    header = ("deployed on a GPU" if sizes.gpu else "deployed on a CPU", "on disk", "beside this bundle")
    return Table(header, tuple(rows), tuple(_footnote(*pair) for pair in known))


def _shown(size: int) -> str:
    return human(size) if size else ""


def _footnote(framework: Framework, footprint: Footprint) -> str:
    return f"{framework.title}: {footprint.counts}. Source: {footprint.source}, {footprint.date}."
