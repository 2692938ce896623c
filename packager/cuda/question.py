"""One question about one file: whether its GPU code runs on some GPUs, and what of it they do not need.

Values in and out that travel to another process and back: the answer has figures for the code, not the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from packager.arch import Arch, Gpu, Kind
from packager.cuda.code import Loose, Member
from packager.cuda.cut import Aims, Cut, code_aims, plan_cut
from packager.cuda.scan import read_gpu_code
from packager.cuda.select import Policy, Ptx, keep, runnable

PRIOR_MINORS = ("libcublas*",)
"""Files that keep the code of all lower minor architectures too: cuBLAS documents it, on pruning its static
libraries ("a selected architecture and all prior minor architectures in its major")."""


Sizes = Mapping[tuple[Arch, Kind], int]
"""Bytes of GPU code by architecture and kind."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a file: whether its GPU code runs on ``gpus``; with a ``policy``, what else goes; and with
    ``cut``, how it is cut out.
    """

    path: Path
    gpus: tuple[Gpu, ...]
    policy: Policy | None = None
    cut: bool = False

    def __str__(self) -> str:
        return str(self.path)


@dataclass(frozen=True, slots=True)
class Answer:
    """The bytes of a file's GPU code by architecture and kind, the GPUs that run none of it, the bytes of what
    goes, and how that is cut out.
    """

    sizes: Sizes
    lacking: tuple[Gpu, ...]
    dropped: int = 0
    cut: Cut | None = None

    @property
    def arches(self) -> tuple[Arch, ...]:
        """The architectures that there is machine code for, ascending."""
        return tuple(sorted(arch for arch, kind in self.sizes if kind is Kind.CUBIN))


def aims(question: Question) -> Aims:
    """The part of an answer that needs nothing else: what the machine code refers to, where that will be asked."""
    return code_aims(question.path) if question.policy and question.cut else frozenset()


def answer(question: Question, result: Callable[[], Aims] | None = None) -> Answer:
    """Read the file; ``result`` gives its :func:`aims`, which are found here without. Raises ElfError where the
    file is damaged.
    """
    code = read_gpu_code(question.path)
    sizes = sizes_of(code.pieces)
    lacking = tuple(gpu for gpu in question.gpus if code and not runnable(code, gpu))
    if lacking or question.policy is None:
        return Answer(sizes, lacking)
    selection = keep(code, question.gpus, question.policy)
    cut = plan_cut(code, selection, aims=result) if question.cut else None
    return Answer(sizes, lacking, selection.dropped_size, cut)


def sizes_of(pieces: Iterable[Member | Loose]) -> Sizes:
    """The bytes of some GPU code by architecture and kind."""
    sizes: Counter[tuple[Arch, Kind]] = Counter()
    for piece in pieces:
        sizes[piece.arch, piece.kind] += piece.size
    return dict(sizes)


def policy_of(name: str, ptx: Ptx = "auto", minors: bool | None = None) -> Policy:  # noqa: FBT001 - one of three
    """The rules for the file of this name; ``minors`` where the user says whether lower minors stay."""
    prior = any(fnmatchcase(name, glob) for glob in PRIOR_MINORS) if minors is None else minors
    return Policy(prior_minors=prior, ptx=ptx)
