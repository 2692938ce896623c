"""Runs libraries whole, sliced for this machine's GPU and sliced for another, and writes down what happened.

    .venv/bin/python tests/gpu/slices.py                    everything
    .venv/bin/python tests/gpu/slices.py --only torch       one step; repeatable: containers, the examples, torch

README.md beside it says what is promised. Evidence goes into tests/gpu/evidence/ as JSON and as a page, anew after
every step. Exit: 0 all as promised, 1 not; also 0 where there is no GPU, having said that nothing was checked.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [path for path in (str(HERE), str(REPOSITORY)) if path not in sys.path]

import containers  # noqa: E402 - siblings of this script, and through them the packager of this checkout
import device as gpu  # noqa: E402
import programs  # noqa: E402
import pytorch  # noqa: E402
from findings import Finding, Report, Step  # noqa: E402
from kernels import own_site, tracer  # noqa: E402
from programs import PROGRAMS, Stage  # noqa: E402
from run import Bench, build, fetched_sdk, installed_sdk  # noqa: E402

STEPS = ("containers", *PROGRAMS, "torch")
_OTHERS = ("sm_86", "sm_90", "sm_100", "sm_120")
_Look = Callable[[], Iterator[Finding]]


def own_sm(device: gpu.Device) -> str:
    """The device's architecture as nvcc spells it: "sm_90"."""
    return f"sm_{device.capability.replace('.', '')}"


def foreign(own: str) -> str:
    """An architecture whose machine code does not run on ``own``: that of another major compute capability."""
    return next(each for each in _OTHERS if each[:-1] != own[:-1])


def perform(name: str, look: _Look, deadline: float) -> Step:
    """One step. Its failure is a finding, and so is the end of the time, which ``deadline`` is on the clock."""
    start, findings = time.monotonic(), list[Finding]()
    late = Finding.promise("time", "none was left for this, or for the rest of it", held=False)
    try:
        if start > deadline:
            findings.append(late)
        else:
            for finding in look():
                findings.append(finding)
                sys.stderr.write(
                    f"{name}: {finding.what}: {finding.verdict}, {' '.join(finding.words.split())}\n"
                )
                if time.monotonic() > deadline:
                    findings.append(late)
                    break
    except Exception as error:  # noqa: BLE001 - the other steps are to run, whatever it was
        findings.append(Finding.promise("the step itself", _told(error), held=False))
    return Step(name, round(time.monotonic() - start, 1), tuple(findings))


def _told(error: Exception) -> str:
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, subprocess.CalledProcessError) and error.stderr:
        words += f": {error.stderr.strip()[-600:]}"
    return words


def libraries(options: argparse.Namespace, device: gpu.Device) -> Path:
    """The directory with the libraries that the examples run on."""
    folder = options.work / "sdk"
    root = options.sdk or installed_sdk(folder) or fetched_sdk(folder, device)
    return (root / "lib").resolve()


def example(name: str, stage: Stage, find: Callable[[], Path]) -> Iterator[Finding]:
    """Build one example, and everything about it. ``find`` gives the libraries."""
    bench = replace(stage.bench, libraries=find())
    program = build(bench.libraries.parent, bench.work / "bin", (name,))[name]
    yield from programs.examine(program, PROGRAMS[name], replace(stage, bench=bench))


def steps(options: argparse.Namespace, device: gpu.Device) -> Iterator[tuple[str, _Look]]:
    """The chosen steps by name, in the order in which they cost time."""
    place = pytorch.installed()
    sites = [own_site(), *([] if isinstance(place, str) else [place.site])]
    bench = Bench(options.work / "sdk/lib", options.work, gpu.environment(), options.runs)
    own = own_sm(device)
    stage = Stage(bench, own, foreign(own), tracer(options.work, sites))
    looks: dict[str, _Look] = {"containers": partial(containers.examine, stage)}
    for name in PROGRAMS:
        looks[name] = partial(example, name, stage, partial(libraries, options, device))
    looks["torch"] = partial(pytorch.examine, stage, place)
    yield from ((name, looks[name]) for name in STEPS if name in (options.only or STEPS))


def started(options: argparse.Namespace, device: gpu.Device) -> Report:
    """The report before the first step."""
    chosen = [name for name in STEPS if name in options.only]
    return Report(
        device=device,
        date=time.strftime("%Y-%m-%d"),
        kernel=platform.release(),
        glibc=os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        own=own_sm(device),
        other=foreign(own_sm(device)),
        environment=gpu.environment(),
        name="-".join([device.slug, "slices", *chosen]),
    )


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--only", action="append", default=[], choices=STEPS, help="this step alone; repeatable"
    )
    parser.add_argument("--sdk", type=Path, metavar="DIR", help="include/ and lib/ with CUDA and cuDNN")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="timed runs of each (default 5)")
    parser.add_argument(
        "--limit", type=float, default=510, metavar="S", help="seconds after which no more is begun (510)"
    )
    parser.add_argument(
        "--work", type=Path, default=REPOSITORY / "build/gpu", metavar="DIR", help="for slices"
    )
    parser.add_argument(
        "--evidence", type=Path, default=HERE / "evidence", metavar="DIR", help="what is written"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    deadline = time.monotonic()
    options = arguments(argv)
    deadline += options.limit
    device = gpu.find()
    if isinstance(device, str):
        sys.stdout.write(f"tests/gpu/slices: nothing was checked, since there is no GPU here: {device}\n")
        return 0
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    report = started(options, device)
    for name, look in steps(options, device):
        report = replace(report, steps=(*report.steps, perform(name, look, deadline)))
        report.write(options.evidence)
    record, page = report.write(options.evidence)
    sys.stdout.write("\n".join(report.page()) + f"\nwrote {record} and {page}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
