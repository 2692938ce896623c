"""Which kernels a program launches, as CUPTI tells it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from findings import Finding
from observe import Run, run

_SOURCE = Path(__file__).with_name("kernels.c")


@dataclass(frozen=True, slots=True)
class Trace:
    """How often a run launched each kernel, by name as the driver knows it; or why nobody knows."""

    launches: Mapping[str, int]
    trouble: str = ""

    @classmethod
    def read(cls, text: str) -> Trace:
        """What the traced process wrote: "count<tab>kernel" lines, or "!<tab>why"."""
        rows = [line.partition("\t") for line in text.splitlines()]
        trouble = next((name for count, _, name in rows if count == "!"), "")
        return cls({name: int(count) for count, _, name in rows if count != "!"}, trouble)


@dataclass(frozen=True, slots=True)
class Tracer:
    """An object that the driver loads into a process, and the CUPTI that it asks."""

    injected: Path
    cupti: Path

    def __call__(self, program: Path, environment: Mapping[str, str], arguments: Sequence[str] = ()) -> Trace:
        """The kernels of one run."""
        with tempfile.TemporaryDirectory() as folder:
            listing = Path(folder) / "kernels"
            settings = {
                "CUDA_INJECTION64_PATH": str(self.injected),
                "DPACK_CUPTI": str(self.cupti),
                "DPACK_KERNELS": str(listing),
            }
            ended = run(program, {**environment, **settings}, arguments=arguments)
            if not listing.exists():
                return Trace({}, _silent(ended))
            trace = Trace.read(listing.read_text(encoding="utf-8", errors="replace"))
        if ended.code and not trace.trouble:
            return Trace(trace.launches, f"exit code {ended.code} under CUPTI: {ended.words}")
        return trace


def _silent(ended: Run) -> str:
    return f"the driver did not load the trace (exit code {ended.code}, {ended.words})"


def tracer(folder: Path, sites: Sequence[Path]) -> Tracer | str:
    """A tracer, compiled into ``folder``, or why there is none.

    Its CUPTI is that of the Python packages in ``sites``, or a toolkit's.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    cupti = next(iter(_cuptis(sites)), None)
    if compiler is None or cupti is None:
        return (
            "no C compiler" if compiler is None else "no CUPTI (libcupti.so) among the packages or toolkits"
        )
    folder.mkdir(parents=True, exist_ok=True)
    output = (folder / "libkernels.so").resolve()
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(output), str(_SOURCE), "-ldl", "-lpthread"]
    subprocess.run(command, check=True)
    return Tracer(output, cupti)


def _cuptis(sites: Sequence[Path]) -> list[Path]:
    """Every libcupti, those of the packages first, the newest first among them."""
    toolkits = [
        Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")),
        *sorted(Path("/usr/local").glob("cuda-*")),
    ]
    packaged = [path for site in sites for path in site.glob("nvidia/*/lib/libcupti.so.*")]
    places = [
        place for root in toolkits for place in (root / "lib64", root / "lib", root / "extras/CUPTI/lib64")
    ]
    installed = [path for place in places for path in place.glob("libcupti.so.*")]
    return [path.resolve() for path in (*sorted(packaged, reverse=True), *sorted(installed, reverse=True))]


def own_site() -> Path:
    """The packages of the Python that runs this."""
    return Path(sysconfig.get_path("purelib"))


def same_kernels(original: Trace, sliced: Trace, again: Trace | None = None) -> Finding:
    """Whether both launch the same kernels.

    ``again`` is a second run of the original, wanted where the first two runs differ.
    """
    what = "kernels"
    if why := original.trouble or sliced.trouble:
        return Finding.skipped(what, why)
    figures = {"launches": dict(sorted(original.launches.items()))}
    alone, new = (
        sorted(a.launches.keys() - b.launches.keys()) for a, b in ((original, sliced), (sliced, original))
    )
    if not alone and not new:
        counts = "as often" if original.launches == sliced.launches else "not all as often"
        words = f"the same {len(original.launches)}, {counts} (CUPTI)"
        return Finding.promise(what, words, held=bool(original.launches), **figures)
    words = (
        f"of the original alone: {', '.join(alone) or 'none'}; of the slice alone: {', '.join(new) or 'none'}"
    )
    if again is not None and again.launches.keys() != original.launches.keys():
        return Finding.seen(what, f"the original itself varies; {words}", **figures)
    return Finding.promise(what, words, held=False, **figures)
