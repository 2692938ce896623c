"""Whether a plan fits its destination: symbol versions, the base's C library, the GPU code of each file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from packager.cuda.scan import read_gpu_code
from packager.destination import Destination
from packager.gpu import Slicer, unfit
from packager.ground import Ground
from packager.plan import Action, Conflict, Decision, Plan
from packager.request import Slicing
from packager.resolve.versions import Unmet, unmet

VENDOR_NOTE = (
    "--slice vendor changes files of NVIDIA's. Its licences for CUDA (section 2.3) and cuDNN (section 2.2) let you "
    "redistribute these libraries only as they are, not modified in any way. So a bundle with sliced ones is for "
    "machines of your own, unless NVIDIA allows you more; dpack.json names each changed file."
)
"""In our own words; the licences are the texts in the wheels of cuBLAS 12.9.1.4 and cuDNN 9.27."""


def fitted(plan: Plan, ground: Ground, slicing: Slicing) -> Plan:
    """``plan`` with what its destination adds: conflicts where it does not fit, and slices for its GPUs.

    Raises ElfError where a file is damaged.
    """
    conflicts = tuple(_too_old(plan, ground.destination))
    if ground.base is not None and ground.base.root is not None:
        from packager.oci.base import conflicts as with_base  # noqa: PLC0415 - most plans have no base

        conflicts += with_base(plan, ground.base)
    plan = replace(plan, conflicts=(*plan.conflicts, *conflicts))
    return _for_gpus(plan, ground, slicing) if ground.destination.gpus else plan


def _too_old(plan: Plan, destination: Destination) -> Iterator[Conflict]:
    """A conflict for each library that the destination's profile has, but older than the bundle wants it."""
    if destination.host is None:
        return
    kept = [d.object for d in plan.of(Action.KEEP) if d.object]
    own = {name for d in plan.of(Action.KEEP) for name in d.file_names}
    lacks: dict[str, list[Unmet]] = {}
    for lack in unmet(kept, destination):
        if lack.library not in own:
            lacks.setdefault(lack.library, []).append(lack)
    for library, each in lacks.items():
        yield Conflict(
            f"{library} of {destination.host.title} is too old",
            "; ".join(map(str, each)),
            (
                f"build {each[0].file} on a system as old as {destination.host.title}",
                "name a newer system: --host NAME (dpack targets --hosts)",
                "make an image with a C library of its own: --format oci --base scratch",
            ),
        )


def _for_gpus(plan: Plan, ground: Ground, slicing: Slicing) -> Plan:
    gpus = ground.destination.gpus
    kept = plan.of(Action.KEEP)
    codes = {d.path: read_gpu_code(Path(d.object.host)) for d in kept if d.object}
    slicer = Slicer(gpus, slicing.which, slicing.ptx)

    def sliced(d: Decision) -> Decision:
        code = codes.get(d.path) if d.action is Action.KEEP else None
        return slicer.sliced(d, code, ground.recipes) if code else d

    decisions = tuple(map(sliced, plan.decisions))
    return replace(
        plan,
        decisions=decisions,
        conflicts=(*plan.conflicts, *unfit(kept, codes, gpus)),
        notes=(*plan.notes, *_on_slicing(decisions, ground)),
    )


def _on_slicing(decisions: Sequence[Decision], ground: Ground) -> Iterator[str]:
    """What the licences say of files that are sliced, or what slicing them would save."""
    uncut = [d for d in decisions if d.uncut]
    if uncut:
        files = "1 file" if len(uncut) == 1 else f"{len(uncut)} files"
        yield (
            f"slicing {files} whose licence forbids changes, too, would save "
            f"{sum(d.uncut for d in uncut) / 1e6:,.0f} MB: --slice vendor tells what that means"
        )
    forbidden = [
        d for d in decisions if d.change.slice and d.family and not ground.recipes.licence(d.family).modify
    ]
    if forbidden:
        yield f"{VENDOR_NOTE} Files: {', '.join(d.name for d in forbidden)}."
