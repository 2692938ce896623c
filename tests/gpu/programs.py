"""The examples with their libraries whole, sliced for this GPU, and sliced for another."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compare import clear_failure, same_end, same_results, same_speed
from findings import Finding
from kernels import Tracer, same_kernels
from observe import Run, run
from run import Bench, bundle

from packager.cuda.scan import read_gpu_code

PROGRAMS = {"mnist": "cnn", "mnist-graph": "cnn", "rnn": "rnn"}
LOADINGS = ("LAZY", "EAGER")
"""Values of CUDA_MODULE_LOADING: a module is loaded when it is first used, or all of them at the start."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What every step works with: a bench, the device's SM, another SM, and what lists kernels, or why nothing."""

    bench: Bench
    own: str
    other: str
    tracer: Tracer | str


def examine(program: Path, model: str, stage: Stage) -> Iterator[Finding]:
    """All findings about one example."""
    bench = stage.bench
    sliced, manifest = _sliced(program, model, stage, stage.own)
    yield _size(manifest, sliced)
    yield _emptied(sliced / "lib")
    ours = sliced / "bin" / program.name
    originals, slices = side_by_side(program, ours, bench)
    yield same_results(originals, slices)
    yield same_speed(originals, slices)
    yield traced(stage.tracer, (program, bench.with_libraries), (ours, bench.environment))
    for mode in LOADINGS:
        setting = {"CUDA_MODULE_LOADING": mode}
        original = run(program, {**bench.with_libraries, **setting})
        other = run(ours, {**bench.environment, **setting})
        yield same_end(original, other, f"CUDA_MODULE_LOADING={mode}", may_fail=mode == "EAGER")
    wrong, _ = _sliced(program, model, stage, stage.other, "--ptx", "drop")
    ended = run(wrong / "bin" / program.name, bench.environment)
    yield clear_failure(originals[0], ended, f"sliced for {stage.other}", exact=False)


def _sliced(program: Path, model: str, stage: Stage, gpu: str, *options: str) -> tuple[Path, dict[str, Any]]:
    output = stage.bench.work / f"{program.name}-{gpu}"
    cut = ["--gpu", gpu, "--slice", "vendor", *options]
    return output, bundle(program, model, stage.bench.libraries, output, cut)


def side_by_side(program: Path, ours: Path, bench: Bench) -> tuple[list[Run], list[Run]]:
    """The runs of original and slice, in turn; a first of each, in a cold cache, does not count."""
    pairs = [
        (run(program, bench.with_libraries), run(ours, bench.environment)) for _ in range(1 + bench.runs)
    ]
    return [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]]


Start = tuple[Path, Mapping[str, str]]


def traced(tracer: Tracer | str, original: Start, sliced: Start, arguments: Sequence[str] = ()) -> Finding:
    """Whether both launch the same kernels; each is a program with its environment."""
    if isinstance(tracer, str):
        return Finding.skipped("kernels", tracer)
    first, other = tracer(*original, arguments), tracer(*sliced, arguments)
    if first.trouble or other.trouble or first.launches.keys() == other.launches.keys():
        return same_kernels(first, other)
    return same_kernels(first, other, tracer(*original, arguments))


def _size(manifest: Mapping[str, Any], sliced: Path) -> Finding:
    files = {
        file["name"]: {"before": file["bytes_original"], "after": file["bytes"], "changes": file["changes"]}
        for file in manifest["files"]
        if file["kind"] == "library"
    }
    before, after = (sum(file[key] for file in files.values()) for key in ("before", "after"))
    wrong = [name for name, file in files.items() if (sliced / "lib" / name).stat().st_size != file["after"]]
    words = f"libraries {before / 1e6:.1f} MB, sliced {after / 1e6:.1f} MB"
    if wrong:
        words += f"; of another size than the manifest says: {', '.join(wrong)}"
    return Finding.promise("size", words, held=not wrong and after < before, files=files)


def _emptied(folder: Path) -> Finding:
    """How many containers of the sliced libraries hold nothing any more."""
    counts = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
            containers = read_gpu_code(path).containers
            counts[path.name] = (sum(1 for each in containers if not each.members), len(containers))
    empty, whole = (sum(pair[at] for pair in counts.values()) for at in (0, 1))
    words = f"{empty} of {whole} have no member, each a header of size 0"
    return Finding.seen(
        "containers", words, empty_and_all={name: pair for name, pair in counts.items() if pair[1]}
    )
