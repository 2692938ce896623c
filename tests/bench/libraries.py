"""The programs and the real libraries that the figures are about: a CNN's, with cuDNN 9.10.2 and CUDA 12.9."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from measure import DPACK, WORK

REQUIREMENTS = (
    "nvidia-cudnn-cu12==9.10.2.21",
    "nvidia-cublas-cu12==12.9.1.4",
    "nvidia-cuda-runtime-cu12==12.9.79",
    "nvidia-cuda-nvrtc-cu12==12.9.86",
)
HEADERS = ("nvidia-cuda-nvcc-cu12==12.9.86", "nvidia-cuda-cccl-cu12==12.9.27")

# What a small CNN program imports of the three libraries that it links with; it is never run.
PROGRAM = """
int cudnnCreate(void *), cudnnConvolutionForward(void), cublasCreate_v2(void *), cudaMalloc(void **, unsigned long);
int main(void) { return cudnnCreate(0) + cudnnConvolutionForward() + cublasCreate_v2(0) + cudaMalloc(0, 0); }
"""


def sdk(directory: Path, requirements: Sequence[str]) -> Path:
    """``directory`` with the libraries in lib/ and the headers in include/, fetched where they are not cached."""
    command = [DPACK, "fetch", "--sdk", str(directory), *requirements]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return directory


def linked() -> tuple[Path, list[Path]]:
    """The tiny program and the directories of the libraries that it needs."""
    where = sdk(WORK / "cuda12", REQUIREMENTS)
    source, program = WORK / "cnn.c", WORK / "cnn"
    source.write_text(PROGRAM, encoding="utf-8")
    link = [f"-L{where}/lib", f"-Wl,-rpath-link,{where}/lib", "-lcudnn", "-lcublas", "-lcudart"]
    subprocess.run(["cc", "-o", str(program), str(source), *link], check=True)
    return program, sorted({path.resolve().parent for path in (where / "lib").glob("*.so.*")})


def kept(request: Sequence[str]) -> list[Path]:
    """The files that a bundle of this request will hold."""
    answer = subprocess.run([DPACK, "plan", *request, "--json"], check=True, capture_output=True, text=True)
    return [Path(d["path"]) for d in json.loads(answer.stdout)["decisions"] if d["action"] == "keep"]


def ten(directories: Sequence[Path]) -> list[Path]:
    """The eight libraries of cuDNN and the two of cuBLAS."""
    found = (path for where in directories for path in where.glob("lib*.so.*"))
    return sorted(path for path in found if path.name.startswith(("libcudnn", "libcublas")))
