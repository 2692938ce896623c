"""GPU code in a plan: whether each file has some that the destination's GPUs run, and what may be cut out of it.

Pure: what a file holds is answered elsewhere (:mod:`packager.cuda.question`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packager.arch import Gpu
from packager.cuda.question import Answer, Question, policy_of
from packager.cuda.select import Policy, Ptx
from packager.destination import Destination
from packager.plan import Action, Conflict, Decision, Slice
from packager.recipes import Recipes

TEGRA_PLATFORM = "linux/arm64"

Which = Literal["auto", "vendor", "no"]


@dataclass(frozen=True, slots=True)
class Slicer:
    """What is cut for which GPUs: ``which`` files, and what becomes of their PTX."""

    gpus: tuple[Gpu, ...]
    recipes: Recipes
    which: Which = "auto"
    ptx: Ptx = "auto"

    def question(self, d: Decision, file: Path) -> Question:
        """What to ask of the file of a decision."""
        if self.which == "no" or d.action is not Action.KEEP:
            return Question(file, self.gpus)
        # The bytes that the others would save are known only by following their pointers, which takes as long as
        # all else; so those are an estimate, what would go.
        return Question(file, self.gpus, self._policy(d.name), self.which == "vendor" or self._free(d))

    def sliced(self, d: Decision, found: Answer) -> Decision:
        """``d`` with its slice, where cutting saves anything, or with the bytes that it would save."""
        if self.which == "no" or d.action is not Action.KEEP or not found.sizes:
            return d
        if found.cut is None:
            return replace(d, uncut=found.dropped)
        cut = Slice(self.gpus, self._policy(d.name), found.cut)
        return replace(d, change=replace(d.change, slice=cut)) if found.cut.removed else d

    def _free(self, d: Decision) -> bool:
        """Whether the licence lets a changed file be passed on."""
        return d.family is None or self.recipes.licence(d.family).modify

    def _policy(self, name: str) -> Policy:
        return policy_of(name, self.ptx)


def unfit(
    decisions: Sequence[Decision], found: Mapping[str, Answer], destination: Destination, recipes: Recipes
) -> Iterator[Conflict]:
    """Files with kernels of which none runs on one of the GPUs; ``found`` by the path of the decision."""
    majors = recipes.cuda_majors(d.name for d in decisions)
    for d in decisions:
        lacking = found[d.path].lacking if d.path in found else ()
        if lacking:
            has = ", ".join(map(str, found[d.path].arches)) or "PTX of newer architectures alone"
            yield Conflict(
                f"{d.name} has no code that runs on {' or '.join(map(str, lacking))}",
                f"it has {has}"
                + ("; a Tegra GPU runs machine code of exactly its own" if _exact(lacking) else ""),
                tuple(_ways(d, lacking, destination, _package(recipes, d.name, majors))),
            )


def _exact(gpus: Sequence[Gpu]) -> bool:
    return any(gpu.exact for gpu in gpus)


def _package(recipes: Recipes, soname: str, majors: frozenset[int]) -> str:
    """The distribution that has the library, for the CUDA version that the others are of; "" where none has it."""
    found = recipes.packages_for(soname)
    fitting = [each for each in found if each.cuda in majors] or found
    return fitting[0].name if fitting else ""


def _ways(d: Decision, lacking: Sequence[Gpu], destination: Destination, package: str) -> Iterator[str]:
    if d.action is Action.HOST:
        yield "choose a base whose libraries have it"
    elif _exact(lacking) and destination.platform != TEGRA_PLATFORM:
        yield f"build the program for {TEGRA_PLATFORM}, as every Jetson is"
    elif _exact(lacking) and package:
        yield "take the device's own libraries, JetPack's: --root DIR with a copy of its file system"
        yield "build on an image that has them: --base IMAGE"
    elif package:
        yield f"choose a release that has it: --require {package}==VERSION"
    else:
        yield f"build {d.name} with code for it (nvcc -gencode)"
