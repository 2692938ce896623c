"""Whether a plan fits its destination: symbol versions, the base's C library, the GPU code of each file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from packager.arch import TEGRA
from packager.destination import Destination
from packager.ground import Ground
from packager.plan import Action, Conflict, Decision, Plan
from packager.recipes.host import split_version
from packager.request import Slicing
from packager.resolve.versions import Unmet, unmet
from packager.worker import spread

if TYPE_CHECKING:
    from packager.cuda.question import Answer

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
    plan = replace(
        plan,
        conflicts=(*plan.conflicts, *conflicts),
        warnings=(*plan.warnings, *_passed_over(ground.destination)),
    )
    return _for_gpus(plan, ground, slicing) if ground.destination.gpus else plan


def _passed_over(destination: Destination) -> Iterator[str]:
    for line in destination.device.skipped if destination.device else ():
        yield f"{line} (passed over, as the container runtime does)"


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
    host = destination.host.title
    for library, each in lacks.items():
        yield Conflict(
            f"{library} of {host} is too old",
            "; ".join(
                _wants(file, list(versions)) for file, versions in groupby(each, lambda lack: lack.file)
            ),
            (
                f"build {plan.program.name} on a system as old as {host}",
                "name a newer system: --host NAME (dpack targets --hosts)",
                "make an image with a C library of its own: --format oci --base scratch",
            ),
        )


def _wants(file: str, lacks: Sequence[Unmet]) -> str:
    """What one file wants, oldest first: "mnist wants GLIBC_2.32 (pthread_sigmask), GLIBC_2.34 (dlsym, …)"."""
    ordered = sorted(lacks, key=lambda lack: split_version(lack.version))
    return f"{file} wants {', '.join(lack.words for lack in ordered)}"


def _for_gpus(plan: Plan, ground: Ground, slicing: Slicing) -> Plan:
    from packager.cuda.question import aims, answer  # noqa: PLC0415 - most plans name no GPU
    from packager.gpu import Slicer, unfit  # noqa: PLC0415 - as above

    destination = ground.destination
    slicer = Slicer(destination.gpus, ground.recipes, slicing.which, slicing.ptx)
    read = [d for d in plan.decisions if d.object and _runs_there(d, destination)]
    questions = [slicer.question(d, Path(d.object.host)) for d in read if d.object]
    answers = spread(answer, questions, [d.size for d in read], part=aims)
    found = {d.path: each for d, each in zip(read, answers, strict=True)}
    conflicts = tuple(unfit(read, found, destination, ground.recipes))
    plan = replace(
        plan,
        conflicts=(*plan.conflicts, *conflicts),
        warnings=(*plan.warnings, *_unheard_of(ground, answers)),
    )
    if conflicts:  # what could be cut out of it is no question then
        return plan
    decisions = tuple(slicer.sliced(d, found[d.path]) if d.path in found else d for d in plan.decisions)
    return replace(plan, decisions=decisions, notes=(*plan.notes, *_on_slicing(decisions, ground)))


def _runs_there(d: Decision, destination: Destination) -> bool:
    """Whether it is this very file that is loaded: one that is kept, or one of the base image."""
    return d.action is Action.KEEP or bool(d.object and destination.in_base(d.object.host))


def _unheard_of(ground: Ground, answers: Iterable[Answer]) -> Iterator[str]:
    """A word on GPUs that may be slips of the pen: code for sm_90 "runs" on an sm_98, too."""
    known = TEGRA | {target.arch.capability for target in ground.recipes.targets}
    known |= {arch.capability for each in answers for arch in each.arches}
    for gpu in ground.destination.gpus:
        if gpu.arch.capability not in known:
            yield f"no device that dpack knows is {gpu}, and no library here has code for just that"


def _on_slicing(decisions: Sequence[Decision], ground: Ground) -> Iterator[str]:
    """What the licences say of files that are sliced, or what slicing them would save."""
    uncut = [d for d in decisions if d.uncut]
    if uncut:
        files = "1 file" if len(uncut) == 1 else f"{len(uncut)} files"
        yield (
            f"slicing {files} whose licence forbids changes, too, would save about "
            f"{sum(d.uncut for d in uncut) / 1e6:,.0f} MB: --slice vendor tells what that means"
        )
    forbidden = [
        d for d in decisions if d.change.slice and d.family and not ground.recipes.licence(d.family).modify
    ]
    if forbidden:
        yield f"{VENDOR_NOTE} Files: {', '.join(d.name for d in forbidden)}."
