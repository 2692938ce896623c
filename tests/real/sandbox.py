"""A mount namespace that holds a bundle and the C library of this machine, and nothing else at all."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packager.resolve.elf import read_elf

GLIBC = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
_DRIVER_API = re.compile(r"cu[A-Z]\w*")
DRIVER = "libcuda.so.1"
LOADER = "/lib64/ld-linux-x86-64.so.2"

SOURCE = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int (*with_numbers)(int *, int *);
typedef unsigned long (*plain)(void);

static void load(const char *name) {
    puts(dlopen(name, RTLD_NOW) ? "ok" : dlerror());
}

static void call(const char *name, const char *symbol) {
    void *library = dlopen(name, RTLD_NOW);
    void *function = library ? dlsym(library, symbol) : 0;
    int first = 0, second = 0;
    if (!function) { puts(dlerror()); return; }
    if (strstr(symbol, "nvrtc") || strstr(symbol, "cudaRuntime")) {
        int status = ((with_numbers)function)(&first, &second);
        printf("%d %d %d\n", status, first, second);
    } else printf("%lu\n", ((plain)function)());
}

int main(int count, char **words) {
    for (int at = 1; at < count; at++) {
        char *symbol = strchr(words[at], ':');
        printf("%s\t", words[at]);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            if (symbol) *symbol = 0, call(words[at], symbol + 1); else load(words[at]);
            fflush(stdout);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status) printf("died with %d\n", status);
        fflush(stdout);
    }
    return 0;
}
"""
"""Loads each library named in a process of its own (so that none profits from another), with every symbol bound at
once; LIBRARY:SYMBOL calls the function and prints what it gives."""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """``lib`` and ``program`` of a bundle stand in /bundle; ``asker`` is the compiled :data:`SOURCE`.

    ``driver`` stands in for the driver's libcuda.so.1; without it there is none, as on a machine without a GPU.
    """

    bwrap: str
    lib: Path
    program: Path
    asker: Path
    glibc: dict[str, str]
    driver: Path | None = None

    def run(self, *command: str, cwd: str = "/") -> subprocess.CompletedProcess[str]:
        """Run a command of /bundle/bin with an empty environment."""
        binds = [(path, place) for place, path in self.glibc.items()]
        binds += [(str(self.lib), "/bundle/lib"), (str(self.program), "/bundle/bin/mnist")]
        binds.append((str(self.asker), "/bundle/bin/ask"))
        words = [
            self.bwrap,
            "--unshare-all",
            "--clearenv",
            "--proc",
            "/proc",
            "--dir",
            "/tmp",
            "--chdir",
            cwd,
        ]
        if self.driver is not None:
            binds.append((str(self.driver), f"/lib/x86_64-linux-gnu/{DRIVER}"))
        for source, place in binds:
            words += ["--ro-bind", source, place]
        return subprocess.run([*words, *command], capture_output=True, text=True, check=False, timeout=120)

    def ask(self, words: Sequence[str]) -> dict[str, str]:
        """The answer to each word, a library or LIBRARY:SYMBOL."""
        done = self.run("/bundle/bin/ask", *words)
        assert done.returncode == 0, done.stderr
        return dict(line.split("\t", 1) for line in done.stdout.splitlines() if "\t" in line)


def compile_asker(path: Path, compiler: str) -> Path:
    """Compile :data:`SOURCE` so that it finds the libraries as a bundled program does: DT_RPATH $ORIGIN/../lib."""
    flags = ["-Wl,-rpath,$ORIGIN/../lib", "-Wl,--disable-new-dtags", "-ldl"]
    subprocess.run([compiler, "-x", "c", "-", "-o", str(path), *flags], input=SOURCE, text=True, check=True)
    return path


def host_glibc(compiler: str) -> dict[str, str]:
    """Where each file of glibc goes in the namespace, and where it is on this machine."""
    found = {LOADER: os.path.realpath(LOADER)}
    for name in GLIBC:
        told = subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        )
        found[f"/lib/x86_64-linux-gnu/{name}"] = os.path.realpath(told.stdout.strip())
    return found


def compile_driver(path: Path, compiler: str, libraries: Sequence[Path]) -> Path:
    """A libcuda.so.1 that has every function of the driver that ``libraries`` link, and does nothing."""
    command = ["nm", "--dynamic", "--undefined-only", "--format=just-symbols", *map(str, libraries)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout if libraries else ""
    names = {name for line in told.splitlines() if _DRIVER_API.fullmatch(name := line.partition("@")[0])}
    source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))
    flags = ["-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{DRIVER}"]
    subprocess.run([compiler, "-x", "c", "-", "-o", str(path), *flags], input=source, text=True, check=True)
    return path


def needing_driver(libraries: Sequence[Path]) -> dict[str, Path]:
    """Those of ``libraries`` that have the driver in DT_NEEDED, by name."""
    return {path.name: path for path in libraries if DRIVER in read_elf(path).needed}
