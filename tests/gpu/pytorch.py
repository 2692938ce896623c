"""PyTorch as installed, and a copy of it whose GPU libraries are sliced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare import clear_failure, same_end, same_results, same_speed
from findings import Finding
from observe import Run, run
from programs import Stage, Start, traced
from run import dpack

PACKAGES = ("torch", "nvidia")
SLICED = ("torch/lib/libtorch_cuda*.so", "nvidia/*/lib/libcudnn*.so.*", "nvidia/*/lib/libcublas*.so.*")
WORK = Path(__file__).with_name("torch_work.py")
# cuBLAS repeats itself only with a workspace of fixed size (its documentation, Results Reproducibility).
_REPEATABLE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@dataclass(frozen=True, slots=True)
class Installed:
    """A Python that has torch: its executable, and the directory of its packages."""

    python: Path
    site: Path


def installed() -> Installed | str:
    """PyTorch of this Python or of ``python3``, or why there is none."""
    ask = "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0])"
    candidates = [sys.executable, shutil.which("python3")]
    for python in filter(None, candidates):
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            return Installed(Path(python), Path(answer.stdout.strip()).parent)
    return "no Python here has torch"


def mirror(site: Path, target: Path, packages: Sequence[str] = PACKAGES) -> None:
    """A copy of these packages: directories of its own, with symbolic links to the files.

    Python and ld.so take both __file__ and $ORIGIN from the path that led them to a file, not from where a link
    at its end leads, so everything in the copy finds the rest of the copy.
    """
    shutil.rmtree(target, ignore_errors=True)
    for package in packages:
        for folder, _, names in os.walk(site / package, followlinks=True):
            made = target / Path(folder).relative_to(site)
            made.mkdir(parents=True)
            for name in names:
                (made / name).symlink_to(Path(folder) / name)


def slice_in(target: Path, site: Path, gpu: str, options: Sequence[str] = ()) -> dict[str, tuple[int, int]]:
    """Put slices for ``gpu`` in the place of the links in ``target``; bytes before and after by path."""
    sizes = {}
    for path in sorted(found for pattern in SLICED for found in target.glob(pattern)):
        name = path.relative_to(target)
        path.unlink()
        dpack("slice", str(site / name), "--gpu", gpu, "--vendor", "-o", str(path), *options)
        sizes[str(name)] = ((site / name).stat().st_size, path.stat().st_size)
    return sizes


def examine(
    stage: Stage, place: Installed | str, work: Path = WORK, arguments: Sequence[str] = ()
) -> Iterator[Finding]:
    """All findings about PyTorch."""
    if isinstance(place, str):
        yield Finding.skipped("torch", place)
        return
    copy = stage.bench.work / f"torch-{stage.own}"
    mirror(place.site, copy)
    sizes = slice_in(copy, place.site, stage.own)
    yield _size(sizes)
    starts = {key: _start(stage, place, path) for key, path in (("original", None), ("sliced", copy))}
    command = [str(work), *arguments]
    originals, slices = _in_turn(
        starts["original"], starts["sliced"], command, max(2, (stage.bench.runs + 1) // 2)
    )
    yield same_results(originals, slices)
    yield _mapped(slices, copy, sizes)
    yield same_speed(originals, slices)
    yield traced(stage.tracer, starts["original"], starts["sliced"], command)
    yield _eager(starts["original"], starts["sliced"], command)
    shutil.rmtree(copy)
    wrong = stage.bench.work / f"torch-{stage.other}"
    mirror(place.site, wrong)
    slice_in(wrong, place.site, stage.other, ["--ptx", "drop"])
    ended = run(*_start(stage, place, wrong), arguments=command)
    yield clear_failure(originals[0], ended, f"sliced for {stage.other}", exact=True)
    shutil.rmtree(wrong)


def _start(stage: Stage, place: Installed, copy: Path | None) -> Start:
    path = {"PYTHONPATH": str(copy)} if copy else {}
    return place.python, {**stage.bench.environment, **_REPEATABLE, **path}


def _in_turn(
    original: Start, sliced: Start, command: Sequence[str], runs: int
) -> tuple[list[Run], list[Run]]:
    pairs = [(run(*original, arguments=command), run(*sliced, arguments=command)) for _ in range(runs)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _eager(original: Start, sliced: Start, command: Sequence[str]) -> Finding:
    setting = {"CUDA_MODULE_LOADING": "EAGER"}
    ends = [run(path, {**env, **setting}, arguments=command) for path, env in (original, sliced)]
    return same_end(ends[0], ends[1], "CUDA_MODULE_LOADING=EAGER", may_fail=True)


def _size(sizes: dict[str, tuple[int, int]]) -> Finding:
    before, after = (sum(pair[at] for pair in sizes.values()) for at in (0, 1))
    words = f"{len(sizes)} libraries, {before / 1e6:.1f} MB, sliced {after / 1e6:.1f} MB"
    return Finding.promise("size", words, held=after < before, files=sizes)


def _mapped(slices: Sequence[Run], copy: Path, sizes: dict[str, tuple[int, int]]) -> Finding:
    """Whether the libraries that were cut are those that the process mapped."""
    names = {Path(name).name for name in sizes}
    mapped = sorted({path for each in slices for path in each.mapped if Path(path).name in names})
    astray = [path for path in mapped if not Path(path).is_relative_to(copy.resolve())]
    words = f"{len(mapped)} of the sliced libraries are mapped"
    words += f", from elsewhere {', '.join(astray)}" if astray else ", none of them from elsewhere"
    return Finding.promise("what is mapped", words, held=bool(mapped) and not astray, mapped=mapped)
