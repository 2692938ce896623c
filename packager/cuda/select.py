"""What of a file's GPU code stays for some GPUs. Pure: values in, values out.

The CUDA driver loads a container as one module and takes one of its members, the best for the GPU. So the choice
is made container by container, and for several GPUs it is the union of the choices for each:

1. **cubins**: those with the highest SM that runs (CUDA C++ Programming Guide, Binary Compatibility). Where an
   SM stands there twice, plain and with a suffix, both stay: which of them the driver takes is not documented.
   NVIDIA's own libraries have no such container; libtorch_cuda 2.15 has 61, as in sm_100 and sm_100a, with
   kernels of the same names and other code in both.
2. **prior minors**: for cuBLAS every cubin that runs stays, not the best alone. Its documentation, on nvprune, asks
   for the selected architecture and all prior minor ones of its major, and without them cuBLAS failed with status
   13 and 15 on an RTX 3080 (ggml-org/llama-install.sh #125).
3. **PTX**: with "auto" the highest that runs, where no cubin of the container does: the driver compiles PTX only
   then. With "keep" all that runs, with "drop" none.
4. **LTO-IR**: all that runs. It is linked while the program runs (cuFFT's callbacks, cuSPARSE's operators) by
   nvJitLink, whose choice is not documented; so in a container that has some, cubins and PTX that run stay too.
5. **loose cubins**: all that run. They are in no container, and nobody knows who chooses among them, or how.
6. What is of an unknown kind stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from packager.arch import Arch, Gpu, Kind, runs
from packager.cuda.code import Container, GpuCode, Loose, Member

_BINARY, _COMPILED = frozenset({Kind.CUBIN}), frozenset({Kind.PTX, Kind.LTO})

Ptx = Literal["auto", "keep", "drop"]

_Kind = tuple[Kind, Arch]
"""What counts of a member."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How much stays: ``prior_minors`` is rule 2, ``ptx`` rule 3; without ``lto`` no LTO-IR stays."""

    prior_minors: bool = False
    ptx: Ptx = "auto"
    lto: bool = True


@dataclass(frozen=True, slots=True)
class Kept:
    """One container and the members that stay in it, in its order; none may stay."""

    container: Container
    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """What stays: one Kept for each container of the file, in its order, and the loose pieces that stay."""

    code: GpuCode
    containers: tuple[Kept, ...]
    loose: tuple[Loose, ...]

    @property
    def kept_size(self) -> int:
        """Bytes of the members, headers included, and of the loose pieces that stay."""
        members = sum(member.size for kept in self.containers for member in kept.members)
        return members + sum(piece.size for piece in self.loose)

    @property
    def dropped_size(self) -> int:
        """Bytes of the members, headers included, and of the loose pieces that go."""
        return self.code.gpu_size - self.kept_size


def keep(code: GpuCode, gpus: Sequence[Gpu], policy: Policy = Policy()) -> Selection:
    """What of ``code`` stays for all of ``gpus``."""
    known: dict[
        tuple[_Kind, ...], tuple[int, ...]
    ] = {}  # a library has thousands of containers, a few of them new
    kept = []
    for container in code.containers:
        kinds = tuple([member[:2] for member in container.members])
        numbers = known.get(kinds)
        if numbers is None:
            numbers = known[kinds] = _numbers(kinds, gpus, policy)
        kept.append(Kept(container, tuple([container.members[number] for number in numbers])))
    loose = tuple(piece for piece in code.loose if any(runs(piece.kind, piece.arch, gpu) for gpu in gpus))
    return Selection(code, tuple(kept), loose)


def _numbers(kinds: Sequence[_Kind], gpus: Sequence[Gpu], policy: Policy) -> tuple[int, ...]:
    """Which members of a container stay, of which all that counts is given."""
    stay = {number for gpu in gpus for number in _for_one(kinds, gpu, policy)}
    return tuple(n for n, (kind, _) in enumerate(kinds) if n in stay or kind is Kind.OTHER)


def _for_one(kinds: Sequence[_Kind], gpu: Gpu, policy: Policy) -> Iterable[int]:
    """What stays of a container for one GPU."""
    able = [number for number, (kind, arch) in enumerate(kinds) if runs(kind, arch, gpu)]
    cubins, ptx, lto = ([n for n in able if kinds[n][0] is kind] for kind in (Kind.CUBIN, Kind.PTX, Kind.LTO))
    if not policy.lto:
        lto = []
    if policy.ptx == "drop":
        ptx = []
    elif policy.ptx == "auto" and not lto:
        ptx = [] if cubins else _highest(ptx, kinds)
    if not (policy.prior_minors or lto):
        cubins = _highest(cubins, kinds)
    return (*cubins, *ptx, *lto)


def _highest(numbers: Sequence[int], kinds: Sequence[_Kind]) -> list[int]:
    """Those with the highest SM, whatever their suffix."""
    top = max((kinds[number][1].capability for number in numbers), default=None)
    return [number for number in numbers if kinds[number][1].capability == top]


def runnable(code: GpuCode, gpu: Gpu) -> bool:
    """Whether the file's kernels reach ``gpu``; True too where it has none, as there is nothing to miss.

    They do where any cubin runs, or where most containers with PTX (or LTO-IR) have some that runs. Most and not
    any: PTX of the newest architecture in each is how a library reaches GPUs newer than itself, while a stray old
    one reaches nothing (one container of cuBLASLt's 130 with PTX runs on sm_87, three of cuSOLVER's 225).
    """
    members = [each.members for each in code.containers if registered(each)]
    if not members and not code.loose:
        return True
    if any(_runs_any(each, gpu, _BINARY) for each in members) or _runs_any(code.loose, gpu, _BINARY):
        return True
    compiled = [each for each in members if any(member.kind in _COMPILED for member in each)]
    return sum(_runs_any(each, gpu, _COMPILED) for each in compiled) * 2 > len(compiled)


def registered(container: Container) -> bool:
    """False for what nvcc's device link leaves behind: a container in .nv_fatbin that no wrapper points at.

    Such a one holds cubins without any kernel (one in each of cuFFT, cuFFTW, cuRAND, cuSOLVER, cuSPARSE, nvJPEG).
    """
    return bool(container.members) and (container.wrapped or container.section != ".nv_fatbin")


def _runs_any(pieces: Iterable[Member | Loose], gpu: Gpu, kinds: frozenset[Kind]) -> bool:
    return any(piece.kind in kinds and runs(piece.kind, piece.arch, gpu) for piece in pieces)
