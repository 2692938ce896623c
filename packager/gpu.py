"""GPU code in a plan: whether each file has some that the destination's GPUs run, and what may be cut out of it.

Pure but for :func:`packager.cuda.cut.plan_cut`, which reads where the file's pointers lead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal

from packager.arch import Gpu
from packager.cuda.code import GpuCode
from packager.cuda.cut import plan_cut
from packager.cuda.select import Policy, Ptx, keep, runnable
from packager.destination import Destination
from packager.plan import Action, Conflict, Decision, Slice
from packager.recipes import Recipes

PRIOR_MINORS = ("libcublas*",)
"""Files that keep the code of all lower minor architectures too: cuBLAS documents it, on pruning its static
libraries ("a selected architecture and all prior minor architectures in its major")."""

TEGRA_PLATFORM = "linux/arm64"

Which = Literal["auto", "vendor", "no"]


@dataclass(frozen=True, slots=True)
class Slicer:
    """What is cut for which GPUs: ``which`` files, and what becomes of their PTX."""

    gpus: tuple[Gpu, ...]
    which: Which = "auto"
    ptx: Ptx = "auto"

    def policy(self, name: str) -> Policy:
        """The rules for the file of this name."""
        return Policy(prior_minors=any(fnmatchcase(name, glob) for glob in PRIOR_MINORS), ptx=self.ptx)

    def sliced(self, d: Decision, code: GpuCode, recipes: Recipes) -> Decision:
        """``d`` with its slice, where cutting saves anything, or with the bytes that it would save.

        Raises ElfError for a damaged file.
        """
        if self.which == "no":
            return d
        policy = self.policy(d.name)
        selection = keep(code, self.gpus, policy)
        if self.which == "auto" and d.family is not None and not recipes.licence(d.family).modify:
            # The bytes of the file would be known only by following its pointers, which takes as long as all else.
            return replace(d, uncut=selection.dropped_size)
        cut = plan_cut(code, selection)
        return replace(d, change=replace(d.change, slice=Slice(self.gpus, policy, cut))) if cut.removed else d


def unfit(
    decisions: Sequence[Decision], codes: Mapping[str, GpuCode], destination: Destination, recipes: Recipes
) -> Iterator[Conflict]:
    """Files with kernels of which none runs on one of the GPUs; ``codes`` by the path of the decision."""
    majors = recipes.cuda_majors(d.name for d in decisions)
    for d in decisions:
        code = codes.get(d.path)
        lacking = [gpu for gpu in destination.gpus if code and not runnable(code, gpu)]
        if code and lacking:
            has = ", ".join(map(str, code.arches)) or "PTX of newer architectures alone"
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
