"""How small a CNN gets: its closure whole, without what it never uses, sliced, and with cuDNN's JIT distribution.

    make bench-size
    .venv/bin/python tests/bench/size.py --torch        and libtorch_cuda: 540 MB more to fetch

Every figure is of a bundle that was written, or of a file in one, for one discrete GPU; "meant" is what the project
aims at. Only the frameworks' sizes were published by others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from libraries import HEADERS, REQUIREMENTS, sdk
from measure import DPACK
from remaining import remaining

from packager import recipes
from packager.account.compare import Sizes, framework_table, sizes_of_manifest
from packager.account.size import ratio
from packager.account.table import Table, markdown

WORK = Path("build/bench-size")
GPUS = ("sm_86", "sm_90")
LIBRARIES = frozenset({"cuDNN", "cuBLAS"})
MEANT_TEN, MEANT_NINE = "<= 620 MB", "<= 580 MB"
MEANT_TORCH = "<= 46 %"
TORCH = "torch==2.15.0"
LEAST = 1_000_000


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to bundle: what the table calls it, which GPUs it is for, the example, and dpack's options."""

    title: str
    gpu: str
    example: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bundled:
    """A variant and the manifest of its bundle, the archive's size included."""

    variant: Variant
    manifest: Mapping[str, Any]

    @property
    def sizes(self) -> Sizes:
        """The sizes of the bundle."""
        return sizes_of_manifest(self.manifest)


def variants() -> Iterator[Variant]:
    """The rows of the table, largest first; those of the JIT distribution where this dpack can choose it."""
    pins = tuple(f"--require={each}" for each in REQUIREMENTS)
    cnn = (*pins, "--model", "cnn")
    yield Variant("whole", "any", "mnist", pins)
    yield Variant("what a CNN never uses dropped: --model cnn", "any", "mnist", cnn)
    for gpu in GPUS:
        yield Variant("and sliced: --slice vendor", gpu, "mnist", (*cnn, "--gpu", gpu, "--slice", "vendor"))
    told = subprocess.run([DPACK, "bundle", "--help"], check=True, capture_output=True, text=True).stdout
    if "--cudnn" not in told:
        return
    others = tuple(pin for pin in pins if "cudnn" not in pin)
    jit = (*others, "--model", "cnn", "--fetch", "--cudnn", "jit")
    yield Variant("the graph example: --cudnn jit", "sm_80 and above", "mnist-graph", jit)
    for gpu in GPUS:
        yield Variant(
            "and sliced: --slice vendor", gpu, "mnist-graph", (*jit, "--gpu", gpu, "--slice", "vendor")
        )


def bundled(variant: Variant, output: Path) -> Bundled:
    """Write the bundle. CalledProcessError where dpack refuses, with its words in ``stderr``."""
    command = [DPACK, "bundle", str(WORK / variant.example), *variant.options]
    command += ["--force", "--json", "--output", str(output)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Bundled(variant, json.loads(done.stdout))


def written(chosen: Sequence[Variant]) -> tuple[list[Bundled], list[str]]:
    """Each variant packed as tar.zst, and a sentence for each that dpack refuses; the archives do not stay."""
    archive = WORK / "bundle.tar.zst"
    found, notes = [], []
    for variant in chosen:
        sys.stderr.write(f"bundling {variant.example}, {variant.title} ({variant.gpu})\n")
        try:
            found.append(bundled(variant, archive))
        except subprocess.CalledProcessError as error:
            words = " ".join(str(error.stderr).split())
            notes.append(f"Left out: {variant.title}, {variant.gpu} ({words}).")
        archive.unlink(missing_ok=True)
    return found, notes


def closure_table(found: Sequence[Bundled]) -> Table:
    """The variants, then the frameworks; the last column divides by what is sliced for the first GPU."""
    sliced = next(each for each in found if each.variant.gpu == GPUS[0])
    rows = [
        (
            each.variant.title,
            each.variant.gpu,
            str(each.manifest["totals"]["files"]),
            _megabytes(each.sizes.bytes),
            _megabytes(each.manifest["archive"]["bytes"]),
            ratio(each.sizes.bytes, sliced.sizes.bytes),
        )
        for each in found
    ]
    frameworks = framework_table(sliced.sizes, recipes.load().frameworks)
    rows += [(title, "", "", size, "", times) for title, size, times in frameworks.rows[1:]]
    columns = ("CNN", "GPU", "files", "on disk", "tar.zst", f"beside sliced for {GPUS[0]}")
    return Table(columns, tuple(rows), frameworks.footnotes)


def library_table(whole: Sequence[Bundled]) -> Table:
    """The libraries of cuDNN and cuBLAS, whole and for each GPU; ``whole`` are the sliced bundles of all ten."""
    files = [
        {file["name"]: file for file in each.manifest["files"] if file["group"] in LIBRARIES}
        for each in whole
    ]
    names = sorted(files[0], key=lambda name: (-files[0][name]["bytes"], name))

    def row(title: str, chosen: Sequence[str], meant: str) -> tuple[str, ...]:
        before = sum(files[0][name]["bytes_original"] for name in chosen)
        after = [sum(each[name]["bytes"] for name in chosen) for each in files]
        return (title, _megabytes(before), *map(_megabytes, after), meant)

    rows = [row(name, [name], "") for name in names]
    nine = [name for name in names if not name.startswith("libcudnn_adv")]
    rows.append(row(f"all {len(names)}", names, f"{MEANT_TEN} ({GPUS[0]})"))
    rows.append(row(f"the {len(nine)} of the CNN, without adv", nine, f"{MEANT_NINE} ({GPUS[0]})"))
    return Table(("library", "whole", *GPUS, "meant"), tuple(rows))


def _megabytes(size: int) -> str:
    # Of what is meant in MB, GB would show too little.
    return f"{size / 1e6:.1f} MB"


def distributions(found: Sequence[Bundled]) -> str:
    """Which cuDNN is in the bundles: the JIT distribution has versions of its own."""
    origins = {
        f"{each.variant.example}: {file['origin']['name']} {file['origin']['version']}"
        for each in found
        for file in each.manifest["files"]
        if file["group"] == "cuDNN"
    }
    return f"cuDNN in the bundles: {', '.join(sorted(origins))}."


def torch_table() -> Table:
    """libtorch_cuda of TORCH, whole and for each GPU. The wheel comes by pip: it is one for a certain Python."""
    folder = WORK / "torch"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    platform = ["--python-version", "3.12", "--platform", "manylinux_2_28_x86_64", "--dest", str(folder)]
    if not list(folder.glob("*.whl")):
        subprocess.run([*command, *platform, TORCH], check=True, capture_output=True, text=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        library = Path(wheel.extract("torch/lib/libtorch_cuda.so", folder))
    sizes = []
    for gpu in GPUS:
        output = folder / f"{gpu}.so"
        subprocess.run(
            [DPACK, "slice", str(library), "--gpu", gpu, "--force", "--output", str(output)],
            check=True,
            capture_output=True,
            text=True,
        )
        sizes.append(output.stat().st_size)
        output.unlink()
    whole = library.stat().st_size
    library.unlink()
    shown = [f"{_megabytes(size)} ({100 * size / whole:.1f} %)" for size in sizes]
    return Table(
        ("library", "whole", *GPUS, "meant"),
        ((f"libtorch_cuda, {TORCH}", _megabytes(whole), *shown, MEANT_TORCH),),
    )


def whole_sliced() -> list[Bundled]:
    """All of the closure, nothing dropped, sliced for each GPU, as directories that stay for a look into them."""
    pins = tuple(f"--require={each}" for each in REQUIREMENTS)
    found = []
    for gpu in GPUS:
        sys.stderr.write(f"slicing the whole closure for {gpu}\n")
        options = (*pins, "--gpu", gpu, "--slice", "vendor", "--format", "dir")
        found.append(bundled(Variant("whole, sliced", gpu, "mnist", options), WORK / gpu))
    return found


def kept_paths(found: Sequence[Bundled]) -> list[Path]:
    """Where the files of the CNN's slice for the first GPU lie: in the directory of the whole closure's."""
    sliced = next(each for each in found if each.variant.gpu == GPUS[0])
    files = [each for each in sliced.manifest["files"] if each["kind"] in {"executable", "library"}]
    return [WORK / GPUS[0] / each["path"] for each in files]


def report(*, torch: bool) -> str:
    """All tables as one Markdown document."""
    cuda = sdk(WORK / "cuda12", (*REQUIREMENTS, *HEADERS))
    chosen = tuple(variants())
    for example in sorted({each.example for each in chosen}):
        place = [f"CUDA={cuda.resolve()}", f"BUILD={WORK.resolve()}"]
        make = ["make", "-C", "examples", example, *place]
        subprocess.run(make, check=True, capture_output=True, text=True)
    found, notes = written(chosen)
    notes.append(distributions(found))
    whole = whole_sliced()
    sections = [
        ("How small a CNN gets", closure_table(found)),
        ("The libraries of cuDNN and cuBLAS", library_table(whole)),
        (f"What the remaining bytes are ({GPUS[0]})", remaining(kept_paths(found), LEAST)),
    ]
    if torch:
        sections.append(("libtorch_cuda", torch_table()))
    else:
        notes.append("`--torch` adds libtorch_cuda: 540 MB to fetch.")
    head = (
        f"{time.strftime('%Y-%m-%d')}. {', '.join(REQUIREMENTS)}; sizes are decimal, licence texts included."
    )
    tables = "".join(f"\n## {title}\n\n{markdown(table)}" for title, table in sections)
    return f"# Sizes\n\n{head}\n{tables}\n" + "".join(f"- {note}\n" for note in notes)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch", action="store_true", help="libtorch_cuda too: fetches 540 MB, once")
    parser.add_argument("--output", type=Path, default=Path("build/bench-size.md"), metavar="FILE")
    options = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    try:
        text = report(torch=options.torch)
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"bench-size: {error}\n{error.stderr or ''}")
        return 1
    finally:
        for gpu in GPUS:
            shutil.rmtree(WORK / gpu, ignore_errors=True)
    options.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
