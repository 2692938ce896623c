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
from packager.cuda.cut import Cut, plan_cut
from packager.cuda.select import Policy, Ptx, keep, runnable
from packager.plan import Conflict, Decision, Slice
from packager.recipes import Recipes

PRIOR_MINORS = ("libcublas*",)
"""Files that keep the code of all lower minor architectures too: cuBLAS documents it, on pruning its static
libraries ("a selected architecture and all prior minor architectures in its major")."""

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

    def cut(self, code: GpuCode, policy: Policy) -> Cut:
        """How the file is cut. Raises ElfError for a damaged file."""
        return plan_cut(code, keep(code, self.gpus, policy))

    def sliced(self, d: Decision, code: GpuCode, recipes: Recipes) -> Decision:
        """``d`` with its slice, where cutting saves anything, or with the bytes that it would save."""
        policy = self.policy(d.name)
        cut = self.cut(code, policy)
        if not cut.removed:
            return d
        allowed = d.family is None or recipes.licence(d.family).modify
        if self.which == "no" or (self.which == "auto" and not allowed):
            return replace(d, uncut=cut.removed)
        return replace(d, change=replace(d.change, slice=Slice(self.gpus, policy, cut)))


def unfit(kept: Sequence[Decision], codes: Mapping[str, GpuCode], gpus: Sequence[Gpu]) -> Iterator[Conflict]:
    """Kept files with kernels of which none runs on one of the GPUs; ``codes`` by the path of the decision."""
    for d in kept:
        code = codes.get(d.path)
        lacking = [gpu for gpu in gpus if code and not runnable(code, gpu)]
        if code and lacking:
            has = ", ".join(map(str, code.arches)) or "PTX of newer architectures alone"
            yield Conflict(
                f"{d.name} has no code that runs on {' or '.join(map(str, lacking))}",
                f"it has {has}"
                + ("; a Tegra GPU runs machine code of exactly its own" if _exact(lacking) else ""),
                tuple(_ways(d, lacking)),
            )


def _exact(gpus: Sequence[Gpu]) -> bool:
    return any(gpu.exact for gpu in gpus)


def _ways(d: Decision, lacking: Sequence[Gpu]) -> Iterator[str]:
    if _exact(lacking):
        yield "take the device's own libraries, JetPack's: --root DIR with a copy of its file system"
    elif d.family is not None and d.family.packages:
        yield f"choose a release that has it: --require {d.family.packages[0].name}==VERSION"
    else:
        yield f"build {d.name} with code for it (nvcc -gencode)"
    yield f"leave it to the host: --exclude {d.name}"
