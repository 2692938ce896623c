"""Tiny stand-ins for CUDA's libraries, compiled on the spot: the real sonames, links and strings, no content.

What each needs, opens and exports follows the real libraries of cuDNN 9.10 and CUDA 12.9; tests/real checks the
same rules on the libraries themselves.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Library:
    """One shared object to compile: what it exports, links, and names in its strings (which it then opens)."""

    soname: str
    exports: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """Its C source: every opened name is a string that a call of dlopen uses."""
        calls = "".join(f'dlopen("{name}", 2);' for name in self.opens)
        uses = "".join(f"{name}();" for name in self.imports)
        declared = "".join(f"void {name}(void);" for name in self.imports)
        body = "".join(f"int {name}(void) {{ return 7; }}\n" for name in self.exports)
        opener = f"void *dlopen(const char *, int);\nvoid open_all(void) {{ {calls}{uses} }}\n"
        return declared + body + (opener if self.opens or self.imports else "")


_GRAPH, _OPS = "libcudnn_graph.so.9", "libcudnn_ops.so.9"
_DRIVER = "libcuda.so.1"

CUDNN = (
    Library(_GRAPH, ("cudnnBackendExecute", "cudnnCreate"), (), (
        "libcudnn_heuristic.so.9", "libcudnn_engines_precompiled.so.9", "libcudnn_engines_runtime_compiled.so.9",
        "libnvrtc.so.%d", _DRIVER,
    )),
    Library(_OPS, ("cudnnPoolingForward",), (_GRAPH,), (_DRIVER,)),
    Library("libcudnn_cnn.so.9", ("cudnnConvolutionForward",), (_OPS, _GRAPH), (_DRIVER,)),
    Library("libcudnn_adv.so.9", ("cudnnRNNForward",), (_OPS, _GRAPH), ("libcublasLt.so.12", _DRIVER)),
    Library("libcudnn_heuristic.so.9", ("heuristic",), (_GRAPH,)),
    Library(
        "libcudnn_engines_precompiled.so.9", ("precompiled",), (_GRAPH,),
        ("libcublasLt.so.12", "libnvrtc.so.12", _DRIVER),
    ),
    Library("libcudnn_engines_runtime_compiled.so.9", ("compiled",), (_GRAPH,), (_DRIVER,)),
    Library(
        "libcudnn.so.9", ("cudnnCreate", "cudnnPoolingForward", "cudnnConvolutionForward", "cudnnRNNForward"), (),
        (_GRAPH, _OPS, "libcudnn_cnn.so.9", "libcudnn_adv.so.9"),
    ),
)  # fmt: skip
CUDA = (
    Library("libcudart.so.12", ("cudaMalloc",), (), (_DRIVER,)),
    Library("libcublasLt.so.12", ("cublasLtCreate",), (), ("libnvrtc.so.12", _DRIVER)),
    Library("libcublas.so.12", ("cublasCreate_v2",), ("libcublasLt.so.12",), (_DRIVER,)),
    Library("libnvrtc-builtins.so.12.9", ("builtins",)),
    Library("libnvrtc.so.12", ("nvrtcVersion",), (), ("libnvrtc-builtins.so.12.9", _DRIVER)),
)
KEPT_FOR_CNN = frozenset(
    each.soname for each in (*CUDA, *CUDNN) if each.soname != "libcudnn_adv.so.9"
)  # fmt: skip


def gcc(*arguments: str | Path, source: str, compiler: str = "gcc") -> None:
    """Compile the C ``source`` (C++ with "g++") with these arguments."""
    language = "c++" if compiler.endswith("g++") else "c"
    command = [compiler, "-O1", "-x", language, "-", "-x", "none", *map(str, arguments)]
    subprocess.run(command, input=source, text=True, check=True)


def compile_library(library: Library, directory: Path, *flags: str) -> Path:
    """The library in ``directory``, which holds those that it links already."""
    directory.mkdir(parents=True, exist_ok=True)
    links = [directory / need for need in library.needs]
    path = directory / library.soname
    own = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{library.soname}"]
    gcc(
        *own,
        f"-Wl,-rpath-link,{directory}",
        "-Wl,--no-as-needed",
        *links,
        *flags,
        "-o",
        path,
        source=library.source,
    )
    return path


def compile_libraries(libraries: Sequence[Library], directory: Path) -> Path:
    """All of them in one directory; the directory again."""
    for library in libraries:
        compile_library(library, directory)
    return directory


def compile_program(
    path: Path, calls: Sequence[str], libraries: Path | None, sonames: Sequence[str], *flags: str
) -> Path:
    """A program that prints what each of ``calls`` returns; it links ``sonames`` of the directory ``libraries``."""
    declared = "".join(f"int {name}(void);" for name in calls)
    body = "".join(f'printf("{name} %d\\n", {name}());' for name in calls)
    source = f'#include <stdio.h>\n{declared}\nint main(void) {{ puts("started"); {body} return 0; }}\n'
    links = [libraries / name for name in sonames] if libraries else []
    search = [f"-Wl,-rpath-link,{libraries}", "-Wl,--no-as-needed"] if libraries else []
    path.parent.mkdir(parents=True, exist_ok=True)
    gcc("-g", *search, *links, *flags, "-o", path, source=source)
    return path


_GREETER = r"""
#include <iostream>
#include <stdexcept>
#include <string>
int main() {
    try { throw std::runtime_error("hello from " + std::string(NAME)); }
    catch (std::exception &error) { std::cout << error.what() << std::endl; }
}
"""


def compile_greeter(path: Path, name: str, *flags: str) -> Path:
    """A C++ program that prints "hello from" and its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    gcc(f'-DNAME="{name}"', *flags, "-o", path, source=_GREETER, compiler="g++")
    return path
