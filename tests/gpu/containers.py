"""A library of nvcc's whose slice leaves containers without a member, loaded lazily and eagerly.

Of its three objects one has code for this GPU and another, two have code for the other alone; cut for this GPU, the
containers of the two are empty. dpack writes an empty container in one form, a header of size 0, and has two ways
to get there (packager/cuda/rebuild.py): packed, and in place, which a second pointer to the first container forces.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare import clear_failure, same_end
from findings import Finding
from observe import Run, run
from programs import LOADINGS, Stage
from run import dpack

from packager.cuda.code import Container
from packager.cuda.scan import read_gpu_code

_HERE = Path(__file__).parent
_LIBRARY = "libcontainers.so"
_OBJECTS = {"everywhere": True, "elsewhere_a": False, "elsewhere_b": False}
_SECOND_POINTER = """\
.section .nv_fatbin,"a",%progbits
.balign 8
.Lfirst:
.section .data.rel.ro,"aw",%progbits
.balign 8
.quad .Lfirst
.section .note.GNU-stack,"",%progbits
"""


@dataclass(frozen=True, slots=True)
class Built:
    """The program, and its library in each way of cutting: {"packed": path, "in place": path}."""

    program: Path
    libraries: dict[str, Path]


def compiler() -> Path | None:
    """nvcc of the path or of a toolkit."""
    toolkits = [
        Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")),
        *sorted(Path("/usr/local").glob("cuda-*")),
    ]
    named = [Path(found) for found in filter(None, [shutil.which("nvcc")])]
    return next(
        (path for path in (*named, *(root / "bin/nvcc" for root in toolkits)) if path.is_file()), None
    )


def build(nvcc: Path, folder: Path, own: str, other: str) -> Built:
    """Compile everything into ``folder``. CalledProcessError where nvcc fails."""
    folder.mkdir(parents=True, exist_ok=True)
    run_nvcc = [str(nvcc), "-O2", "-Xcompiler", "-fPIC", "--no-compress"]
    objects = []
    for name, here in _OBJECTS.items():
        codes = [arch for arch in (own, other) if here or arch == other]
        flags = [f"-gencode=arch={arch.replace('sm', 'compute')},code={arch}" for arch in codes]
        objects.append(str(folder / f"{name}.o"))
        source = [f"-DKERNEL={name}", "-c", str(_HERE / "containers.cu"), "-o", objects[-1]]
        _call(*run_nvcc, *flags, *source)
    pointer = folder / "pointer.s"
    pointer.write_text(_SECOND_POINTER, encoding="utf-8")
    libraries = {}
    for way, first in (("packed", []), ("in place", [str(pointer)])):
        libraries[way] = folder / way.replace(" ", "-") / _LIBRARY
        libraries[way].parent.mkdir(exist_ok=True)
        _call(*run_nvcc, "-shared", *first, *objects, "-o", str(libraries[way]))
    program = folder / "containers"
    _call(*run_nvcc, str(_HERE / "containers.cpp"), str(libraries["packed"]), "-o", str(program))
    return Built(program, libraries)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def examine(stage: Stage) -> Iterator[Finding]:
    """All findings about containers that hold nothing."""
    nvcc = compiler()
    if nvcc is None:
        yield Finding.skipped("nvcc", "no nvcc on the path or in a toolkit")
        return
    built = build(nvcc, stage.bench.work / "containers", stage.own, stage.other)
    yield Finding.seen(
        "forms", "dpack writes one, a header of size 0; two ways lead there, packed and in place"
    )
    for way, library in built.libraries.items():
        yield from _way(stage, built.program, way, library)


def _way(stage: Stage, program: Path, way: str, library: Path) -> Iterator[Finding]:
    """One way of cutting: what it did, and how the slice and its variants run in either mode."""
    cut, wrong, wiped = (library.parent / name / _LIBRARY for name in ("own", "other", "wiped"))
    yield _as_meant(way, _slice(library, cut, stage.own), cut)
    _slice(library, wrong, stage.other)
    wipe(cut, wiped)
    for mode in LOADINGS:
        whole, sliced, zeros, foreign = (
            _run(stage, program, path, mode) for path in (library, cut, wiped, wrong)
        )
        yield same_end(whole, sliced, f"{way}, {mode}", may_fail=mode == "EAGER")
        alike = (
            "as the original" if (zeros.code, zeros.out) == (whole.code, whole.out) else "NOT as the original"
        )
        words = f"exit code {zeros.code}, {alike}: {zeros.out.strip() or zeros.words}"
        yield Finding.seen(f"{way}, {mode}, the empty headers wiped too", words)
        yield clear_failure(whole, foreign, f"{way}, {mode}, sliced for {stage.other}", exact=True)


def _slice(library: Path, output: Path, gpu: str) -> list[str]:
    """Cut the library for one GPU; the ways in which its sections were cut."""
    output.parent.mkdir(exist_ok=True)
    told = dpack("slice", str(library), "--gpu", gpu, "--force", "--json", "-o", str(output))
    [file] = json.loads(told)["files"]
    return [each["technique"] for each in file["sections"] if each["technique"]]


def _as_meant(way: str, ways: Sequence[str], cut: Path) -> Finding:
    # nvcc's link adds a container of its own, for its default architecture.
    empty, foreign = len(empty_containers(cut)), list(_OBJECTS.values()).count(False)
    words = f"cut {' and '.join(ways) or 'nowhere'}, {empty} containers are empty"
    return Finding.promise(f"{way}: the cut", words, held=ways == [way] and empty >= foreign)


def empty_containers(path: Path) -> tuple[Container, ...]:
    """The containers of a file that have no member."""
    return tuple(each for each in read_gpu_code(path).containers if not each.members)


def wipe(source: Path, target: Path) -> None:
    """A copy whose empty containers have no header either: zeros, to learn whether the header is needed."""
    target.parent.mkdir(exist_ok=True)
    shutil.copyfile(source, target)
    with target.open("r+b") as file:
        for each in empty_containers(source):
            file.seek(each.offset)
            file.write(bytes(each.header_size))


def _run(stage: Stage, program: Path, library: Path, mode: str) -> Run:
    places = [str(library.parent), *filter(None, [stage.bench.environment.get("LD_LIBRARY_PATH")])]
    settings = {"LD_LIBRARY_PATH": ":".join(places), "CUDA_MODULE_LOADING": mode}
    return run(program, {**stage.bench.environment, **settings})
