"""Stand-ins for NVIDIA's libraries, compiled from a few lines of C."""

from __future__ import annotations

import subprocess
from pathlib import Path

OPENED = ("graph", "ops", "cnn", "heuristic")
UNOPENED = ("adv", "engines_precompiled", "engines_runtime_compiled")


def compile_c(source: str, *arguments: str | Path) -> None:
    """Compile C that stands in a string; ``arguments`` are those of gcc, further files among them."""
    command = ["gcc", "-x", "c", "-", "-x", "none", *map(str, arguments)]
    subprocess.run(command, input=source, text=True, check=True)


def build_cudnn(folder: Path, shim: str, *further: str | Path) -> Path:
    """Make ``folder`` with a cuDNN whose libcudnn.so.9 is ``shim`` and whose parts hold nothing, and what those ask
    for.
    """
    folder.mkdir()
    names = [f"libcudnn_{part}.so.9" for part in (*OPENED, *UNOPENED)]
    for name in (*names, "libcublasLt.so.12", "libnvrtc.so.12", "libnvrtc-builtins.so.12.9"):
        compile_c(
            f'const char *{name.partition(".")[0].replace("-", "_")} = "{name}";',
            *("-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", folder / name),
        )
    shared = ("-shared", "-fPIC", "-Wl,-soname,libcudnn.so.9", "-o", folder / "libcudnn.so.9")
    compile_c(shim, *further, *shared)
    return folder
