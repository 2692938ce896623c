"""Names of GPU architectures, and which kernel code runs on which GPU.

An architecture is a compute capability, 8.7, spelt sm_87 for machine code and compute_87 for PTX, with a suffix
where the code asks for more than the number says: ``a`` for what exactly this chip has, ``f`` for what its
family shares. The rules stand in :data:`RULES`, each with its source.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import NamedTuple

from packager.errors import usage

_NAME = re.compile(r"(?:(?:sm|compute|lto)_)?(?P<major>[1-9]\d?)\.?(?P<minor>\d)(?P<suffix>[af]?)", re.ASCII)
_GUIDE = "CUDA C++ Programming Guide"


class Arch(NamedTuple):
    """A compute capability, and the suffix of code made for it: "", "a" (this chip alone) or "f" (its family)."""

    major: int
    minor: int
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Arch:
        """The architecture that ``sm_87``, ``sm_90a``, ``compute_80``, ``87`` or ``8.7`` names.

        Raises DpackError (usage) for anything else.
        """
        hit = _NAME.fullmatch(text.strip())
        if hit is None:
            raise usage(
                f"cannot read the GPU architecture {text!r}",
                "it is not a compute capability",
                next="write it as in sm_86 or 8.6; `nvidia-smi --query-gpu=compute_cap --format=csv` shows yours",
            )
        return cls(int(hit["major"]), int(hit["minor"]), hit["suffix"])

    @classmethod
    @cache
    def of(cls, number: int, suffix: str = "") -> Arch:
        """The architecture with the number that fatbins and cubins hold: 87, 90, 120."""
        return cls(number // 10, number % 10, suffix)

    @property
    def number(self) -> int:
        """Major and minor as one number: 87, 120."""
        return self.major * 10 + self.minor

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor as the driver of today counts them.

        Thor's chip is sm_101 until CUDA 12.9 and sm_110 from CUDA 13.0 on (PTX ISA 9.0, "sm_101 renamed to
        sm_110"); both names mean the same chip here.
        """
        return (11, 0) if (self.major, self.minor) == (10, 1) else (self.major, self.minor)

    def __str__(self) -> str:
        return f"sm_{self.number}{self.suffix}"


TEGRA = frozenset({(3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (8, 8), (11, 0)})
"""The compute capabilities of integrated GPUs (Jetson and its kin), where machine code fits exactly or not."""


@dataclass(frozen=True, slots=True, order=True)
class Gpu:
    """A device. ``exact`` is True for Tegra, which runs machine code of its very own architecture only."""

    arch: Arch
    exact: bool

    @classmethod
    def of(cls, text: str) -> Gpu:
        """The device with this compute capability, as :meth:`Arch.parse` reads it; a suffix means nothing here."""
        arch = Arch.parse(text)
        return cls(Arch(arch.major, arch.minor), arch.capability in TEGRA)

    def __str__(self) -> str:
        return str(self.arch)


class Kind(StrEnum):
    """What a piece of kernel code is; ``OTHER`` is what dpack has no rule for."""

    CUBIN = "cubin"
    PTX = "ptx"
    LTO = "lto-ir"
    OTHER = "other"


_PREFIX = {Kind.PTX: "compute", Kind.LTO: "lto"}


def spelling(kind: Kind, arch: Arch) -> str:
    """The architecture as nvcc spells it for this kind of code: sm_90a, compute_120f, lto_50."""
    return f"{_PREFIX.get(kind, 'sm')}_{arch.number}{arch.suffix}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which GPUs run code of some kinds and one suffix; ``says`` and ``source`` are for people."""

    kinds: frozenset[Kind]
    suffix: str
    says: str
    source: str
    holds: Callable[[Arch, Gpu], bool]


def _same_major(code: Arch, gpu: Gpu) -> bool:
    (major, minor), (own_major, own_minor) = code.capability, gpu.arch.capability
    return major == own_major and minor <= own_minor


def _same_chip(code: Arch, gpu: Gpu) -> bool:
    return code.capability == gpu.arch.capability


def _binary(code: Arch, gpu: Gpu) -> bool:
    if gpu.exact or code.capability in TEGRA:
        return _same_chip(code, gpu)
    return _same_major(code, gpu)


def _forward(code: Arch, gpu: Gpu) -> bool:
    # By its own number: compute_101 was older than compute_103, whatever Thor is called today.
    return (code.major, code.minor) <= gpu.arch.capability


_CODE = frozenset({Kind.CUBIN})
_JIT = frozenset({Kind.PTX, Kind.LTO})

RULES = (
    Rule(
        _CODE,
        "",
        "a cubin for X.y runs on X.z where z is not less than y; on Tegra, and from Tegra, on X.y alone",
        f"{_GUIDE}, Binary Compatibility: supported only for the desktop, not for Tegra, nor between the two",
        _binary,
    ),
    Rule(
        _CODE,
        "f",
        "a family-specific cubin runs on its family: 100f on 10.0 and 10.3, 103f on 10.3, 120f on 12.0 and 12.1",
        f"{_GUIDE}, Family-Specific Features: the same major, a minor not less",
        _binary,
    ),
    Rule(
        _CODE | _JIT,
        "a",
        "architecture-specific code runs on that one compute capability",
        f"{_GUIDE}, Architecture-Specific Features: neither forward nor backward compatible",
        _same_chip,
    ),
    Rule(
        _JIT,
        "f",
        "family-specific PTX and LTO-IR are compiled for the GPUs of the family",
        f"{_GUIDE}, Family-Specific Features, for compute_100f as for sm_100f",
        _same_major,
    ),
    Rule(
        _JIT,
        "",
        "plain PTX and LTO-IR are compiled for any compute capability not below their own",
        f"{_GUIDE}, PTX Compatibility (the driver's JIT compiler); nvJitLink, -arch (LTO-IR)",
        _forward,
    ),
)

_BY_CASE = {(kind, rule.suffix): rule for rule in RULES for kind in rule.kinds}


def runs(kind: Kind, code: Arch, gpu: Gpu) -> bool:
    """Whether ``gpu`` can run code of this kind and architecture, PTX and LTO-IR by compiling it.

    False where no row of :data:`RULES` speaks of the kind and suffix.
    """
    rule = _BY_CASE.get((kind, code.suffix))
    return rule is not None and rule.holds(code, gpu)
