"""Runs the examples and their bundles on a GPU, side by side, and writes down what happened.

    .venv/bin/python tests/gpu/run.py                    libraries of this Python's nvidia packages, else fetched
    .venv/bin/python tests/gpu/run.py --sdk DIR          those of DIR/include and DIR/lib

It builds examples/mnist and examples/rnn, bundles each for its model type, and runs original and bundle in an
empty environment (the original with LD_LIBRARY_PATH, since it knows no path to its libraries); then the bundle
where the original libraries cannot be reached; then copies of the bundle that lack one library each. Evidence goes
into tests/gpu/evidence/ as JSON and as a page. Exit: 0 all as promised, 1 not; also 0 where there is no GPU, having
said that nothing was checked.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
sys.path[:0] = [path for path in (str(HERE), str(REPOSITORY)) if path not in sys.path]

import device as gpu  # noqa: E402 - siblings of this script, and the packager of this checkout
from evidence import Evidence, Outcome, Subject  # noqa: E402
from observe import Run, can_hide, loaded, run  # noqa: E402

from packager import recipes  # noqa: E402
from packager.errors import DpackError  # noqa: E402
from packager.source import Distribution, fetch, sdk  # noqa: E402

MODELS = {"mnist": "cnn", "rnn": "rnn"}
REMOVED = ("libcudnn_*", "libnvrtc*", "libcublasLt*")
_CUDA_13 = ("cublas==13.10.0.20", "cuda-runtime==13.5.37", "cuda-nvrtc==13.5.37", "cuda-crt==13.5.37")
REQUIREMENTS = {
    12: (
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-cublas-cu12==12.9.1.4",
        "nvidia-cuda-runtime-cu12==12.9.79",
        "nvidia-cuda-nvrtc-cu12==12.9.86",
        "nvidia-cuda-nvcc-cu12==12.9.86",
        "nvidia-cuda-cccl-cu12==12.9.27",
    ),
    13: ("nvidia-cudnn-cu13==9.28.0.42", *(f"nvidia-{name}" for name in _CUDA_13)),
}


@dataclass(frozen=True, slots=True)
class Bench:
    """What all programs are run with: libraries, a folder for bundles, the environment, how many timed runs."""

    libraries: Path
    work: Path
    environment: dict[str, str]
    runs: int

    @property
    def with_libraries(self) -> dict[str, str]:
        """The environment of an original, which finds its libraries through LD_LIBRARY_PATH alone."""
        places = [str(self.libraries), *filter(None, [self.environment.get("LD_LIBRARY_PATH")])]
        return {**self.environment, "LD_LIBRARY_PATH": ":".join(places)}


def installed_sdk(folder: Path) -> Path | None:
    """include/ and lib/ of the nvidia packages of this Python or of ``python3``; None where there are none."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    sites = [sysconfig.get_path("purelib")]
    if python := shutil.which("python3"):
        answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
        sites.append(answer.stdout.strip())
    for site in filter(None, sites):
        root = Path(site)
        if any(root.glob("nvidia/*/lib/libcudnn.so.*")):
            return sdk([Distribution("installed", "0", "any", "", root, 0)], folder)
    return None


def fetched_sdk(folder: Path, device: gpu.Device) -> Path:
    """The same of the wheels for the newest CUDA that the driver can run."""
    major = 13 if int(device.cuda.partition(".")[0]) >= 13 else 12
    return sdk(fetch(REQUIREMENTS[major], machine=platform.machine()), folder)


def build(libraries: Path, folder: Path, names: Iterable[str] = MODELS) -> dict[str, Path]:
    """The example programs by name. What the packages lack of CUDA's headers comes from an installed toolkit."""
    toolkits = [Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")), *Path("/usr/local").glob("cuda-*")]
    found = [path / "include" for path in toolkits if (path / "include/crt/host_defines.h").is_file()]
    flags = "-O2 -g " + " ".join(f"-idirafter {path}" for path in found[:1])
    arguments = [f"CUDA={libraries.resolve()}", f"BUILD={folder.resolve()}", f"CXXFLAGS={flags}"]
    subprocess.run(["make", "-C", str(REPOSITORY / "examples"), *names, *arguments], check=True)
    return {name: folder.resolve() / name for name in names}


def bundle(
    program: Path, model: str, libraries: Path, output: Path, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Bundle ``program`` into the directory ``output``; the manifest."""
    request = ["bundle", str(program), "--model", model, f"--library-path={libraries}"]
    form = ["--format", "dir", "--force", "--json", "--output", str(output)]
    manifest: dict[str, Any] = json.loads(dpack(*request, *options, *form))
    return manifest


def dpack(*arguments: str) -> str:
    """What a command of this checkout's dpack prints. CalledProcessError, with its words, where it fails."""
    command = [sys.executable, "-c", "from packager.cli import main; main()", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *_python_path()])}
    answer = subprocess.run(command, env=environment, capture_output=True, check=False, text=True)
    sys.stderr.write(answer.stderr)
    answer.check_returncode()
    return answer.stdout


def _python_path() -> list[str]:
    return list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


def examine(program: Path, model: str, bench: Bench) -> Subject:
    """Everything that is to be seen of one program and its bundle."""
    bench.work.mkdir(parents=True, exist_ok=True)
    output = bench.work / f"{program.name}-{model}"
    manifest = bundle(program, model, bench.libraries, output)
    members = {Path(file["path"]).name for file in manifest["files"] if file["kind"] == "library"}
    ours = output / "bin" / program.name
    originals, bundles = _side_by_side(program, ours, bench)
    original, from_bundle = originals[0], bundles[0]
    mapped = tuple(sorted({path for each in bundles for path in each.mapped}))
    traced = loaded(ours, bench.environment)
    inside = {Path(path).name for path in mapped if Path(path).is_relative_to(output.resolve())}
    elsewhere = [path for path in mapped if not Path(path).is_relative_to(output.resolve())]
    astray = (*elsewhere, *(name for name in traced if name not in members))
    outside = tuple(path for path in astray if not provided_by_host(path))
    # A user who may not mount runs the same variants in sight of the originals; the page says so.
    hidden = tuple(original_places(bench.libraries, members)) if can_hide() else ()
    return Subject(
        program=program.name,
        model=model,
        platform=original.platform,
        versions=versions(manifest),
        bundle_bytes=manifest["totals"]["bytes"],
        dropped={file["name"]: file["bytes"] for file in manifest["dropped"]},
        mapped=tuple(sorted(inside)),
        never_mapped=tuple(sorted(members - inside)),
        outside=outside,
        host=tuple(path for path in elsewhere if path not in outside),
        unsampled=tuple(sorted((set(traced) & members) - inside)),
        original=Outcome.of("the original", original, original),
        bundle=Outcome.of("as bundled", from_bundle, original),
        speeds=_speeds(originals, bundles),
        hidden=tuple(str(path) for path in hidden),
        without_originals=tuple(_without_originals(ours, original, bench, hidden)),
        removed=tuple(_removed(output, ours.name, original, bench, hidden)),
    )


def _side_by_side(program: Path, ours: Path, bench: Bench) -> tuple[list[Run], list[Run]]:
    """The runs of original and bundle, in turn; a first of each, in a cold cache, does not count."""
    pairs = [
        (run(program, bench.with_libraries), run(ours, bench.environment)) for _ in range(1 + bench.runs)
    ]
    return [pair[0] for pair in pairs[1:]], [pair[1] for pair in pairs[1:]]


def _without_originals(ours: Path, original: Run, bench: Bench, hidden: Sequence[Path]) -> Iterator[Outcome]:
    where = "originals hidden" if hidden else "originals in reach"
    yield Outcome.of(where, run(ours, bench.environment, hidden=hidden), original)
    full = {**bench.environment, "CUDNN_LIB_CONFIG": "FULL"}
    yield Outcome.of(f"{where}, CUDNN_LIB_CONFIG=FULL", run(ours, full, hidden=hidden), original)


def _removed(
    output: Path, name: str, original: Run, bench: Bench, hidden: Sequence[Path]
) -> Iterator[Outcome]:
    """One outcome for each library that is opened while the program runs, with it taken out of the bundle."""
    for library in sorted(path.name for path in (output / "lib").iterdir()):
        if not any(fnmatchcase(library, pattern) for pattern in REMOVED):
            continue
        copy = bench.work / "lacking"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(
            output, copy, symlinks=True, copy_function=os.link, ignore=shutil.ignore_patterns(library)
        )
        yield Outcome.of(
            f"without {library}", run(copy / "bin" / name, bench.environment, hidden=hidden), original
        )
        shutil.rmtree(copy)


def _speeds(originals: Sequence[Run], bundles: Sequence[Run]) -> dict[str, dict[str, float]]:
    """The medians of what all runs report."""
    names = [
        name for name in originals[0].speeds if all(name in each.speeds for each in (*originals, *bundles))
    ]
    return {
        name: {
            "original": statistics.median(each.speeds[name] for each in originals),
            "bundle": statistics.median(each.speeds[name] for each in bundles),
        }
        for name in names
    }


def provided_by_host(path: str) -> bool:
    """True for what the recipes leave to the host: the C library, the GPU driver."""
    family = recipes.load().family_of(Path(path).name)
    return family is not None and family.provided_by == "host"


def original_places(libraries: Path, names: Iterable[str]) -> list[Path]:
    """The directories from which the loader could take what the bundle holds, without the C library's own."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    known = [Path(path) for path in re.findall(r"=> (/\S+)", listing)]
    wanted = set(names)
    files = [*libraries.glob("*.so*"), *(path for path in known if path.name in wanted)]
    folders = {folder for file in files for folder in (file.parent.resolve(), file.resolve().parent)}
    return sorted(folder for folder in folders if not (folder / "libc.so.6").exists())


def versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The packages that the bundle's files come from, with their versions."""
    origins = [file["origin"] for file in manifest["files"]]
    return {each["name"]: each["version"] for each in origins if each["version"]}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sdk", type=Path, metavar="DIR", help="include/ and lib/ with CUDA and cuDNN")
    parser.add_argument(
        "--program", type=Path, metavar="FILE", help="a program of yours instead of the examples"
    )
    parser.add_argument(
        "--model", default="cnn", metavar="TYPE", help="the model type of --program (default cnn)"
    )
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="timed runs of each (default 3)")
    parser.add_argument(
        "--work", type=Path, default=REPOSITORY / "build/gpu", metavar="DIR", help="for bundles"
    )
    parser.add_argument(
        "--evidence", type=Path, default=HERE / "evidence", metavar="DIR", help="what is written"
    )
    return parser.parse_args(argv)


def collect(options: argparse.Namespace, device: gpu.Device) -> Evidence:
    """Build, bundle, run. CalledProcessError and DpackError where a step before the runs fails."""
    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    libraries = options.sdk or installed_sdk(work / "sdk") or fetched_sdk(work / "sdk", device)
    if options.program:
        programs = {options.program.resolve(): options.model}
    else:
        built = build(libraries, work / "bin")
        programs = {built[name]: model for name, model in MODELS.items()}
    bench = Bench((libraries / "lib").resolve(), work, gpu.environment(), options.runs)
    return Evidence(
        device=device,
        date=time.strftime("%Y-%m-%d"),
        kernel=platform.release(),
        glibc=os.confstr("CS_GNU_LIBC_VERSION") or "unknown",
        environment=bench.environment,
        subjects=tuple(examine(program, model, bench) for program, model in programs.items()),
    )


def main(argv: Sequence[str] | None = None) -> int:
    options = arguments(argv)
    device = gpu.find()
    if isinstance(device, str):
        sys.stdout.write(f"tests/gpu: nothing was checked, since there is no GPU here: {device}\n")
        return 0
    try:
        evidence = collect(options, device)
    except (DpackError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"tests/gpu: {error}\n")
        return 1
    record, page = evidence.write(options.evidence)
    sys.stdout.write(f"{evidence.page()}\nwrote {record} and {page}\n")
    return 1 if evidence.problems else 0


if __name__ == "__main__":
    sys.exit(main())
