"""NVIDIA's own libraries cut for one GPU: every promise about the file, read by the loader and NVIDIA's tools."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from builders.oracle import require
from test_real_gpu import cuobjdump  # noqa: F401 - a fixture

from packager.arch import Gpu, Kind
from packager.cuda.code import GpuCode
from packager.cuda.cut import Cut, plan_cut, write
from packager.cuda.scan import read_gpu_code
from packager.cuda.select import Policy, Selection, keep
from packager.transform.verify import verify

pytestmark = pytest.mark.real

_ALL_TEN = 1_907_579_840
_LARGE = ("libcublasLt.so.12", "libcublas.so.12", "libcudnn_adv.so.9", "libcudnn_ops.so.9")
_ENGINES = "libcudnn_engines_precompiled.so.9"

_LOAD = """
import ctypes, sys
for path in sys.argv[1:]:
    library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    for name in ("cublasLtGetVersion", "cudnnGetVersion", "cudnnOpsVersionCheck", "cudnnAdvVersionCheck"):
        if hasattr(library, name):
            function = getattr(library, name)
            function.restype = ctypes.c_size_t
            print(name, function())
"""


def _selected(path: Path, *gpus: str) -> tuple[GpuCode, Selection]:
    code = read_gpu_code(path)
    policy = Policy(prior_minors=path.name.startswith("libcublas"))
    return code, keep(code, [Gpu.of(each) for each in gpus], policy)


def _sliced(path: Path, target: Path, *gpus: str) -> Cut:
    cut = plan_cut(*_selected(path, *gpus))
    write(path, target, cut)
    assert target.stat().st_size == cut.size
    return cut


def _ten(libraries: dict[str, Path]) -> list[Path]:
    names = ("libcudnn", "libcublas.", "libcublasLt.")
    return [path for name, path in libraries.items() if name.startswith(names)]


@pytest.mark.parametrize(("gpu", "most"), [("8.6", 620_000_000), ("9.0", 700_000_000)])
def test_the_ten_libraries_are_as_small_as_promised(cuda12_libs, gpu, most):
    cuts = {path.name: plan_cut(*_selected(path, gpu)) for path in _ten(cuda12_libs)}
    assert len(cuts) == 10
    assert sum(cut.whole for cut in cuts.values()) == _ALL_TEN
    assert sum(cut.size for cut in cuts.values()) <= most
    assert sum(cut.size for name, cut in cuts.items() if "_adv" not in name) <= most - 40_000_000
    assert not [left for cut in cuts.values() for left in cut.left]
    for cut in cuts.values():
        assert {s.technique for s in cut.sections if s.name == ".nv_fatbin"} <= {"packed"}


@pytest.fixture(scope="module")
def cut_86(cuda12_libs, tmp_path_factory):
    """The libraries with GPU code for sm_86, beside those without."""
    folder = tmp_path_factory.mktemp("sm_86")
    for path in _ten(cuda12_libs):
        _sliced(path, folder / path.name, "8.6")
    yield folder
    for path in folder.iterdir():
        path.unlink()


def test_the_loader_loads_them(cut_86):
    names = ["libcublasLt.so.12", "libcublas.so.12", "libcudnn_graph.so.9", "libcudnn_ops.so.9"]
    names += ["libcudnn_adv.so.9", "libcudnn_cnn.so.9", "libcudnn_engines_runtime_compiled.so.9", _ENGINES]
    command = [sys.executable, "-c", _LOAD, *(str(cut_86 / name) for name in names)]
    told = subprocess.run(command, capture_output=True, text=True, check=False, env={"LD_BIND_NOW": "1"})
    assert told.returncode == 0, told.stderr
    said = dict(line.split() for line in told.stdout.splitlines())
    assert said["cublasLtGetVersion"] == "120901"
    assert said["cudnnGetVersion"] == "91002"
    assert (said["cudnnOpsVersionCheck"], said["cudnnAdvVersionCheck"]) == ("0", "0")


def test_what_the_loader_acts_on_is_the_same(cuda12_libs, cut_86):
    for name in (*_LARGE, _ENGINES):
        verify(cuda12_libs[name], cut_86 / name, None)


def test_what_stays_is_the_same_bytes(cuda12_libs, cut_86):
    for name in (*_LARGE, _ENGINES):
        code, selection = _selected(cuda12_libs[name], "8.6")
        after = read_gpu_code(cut_86 / name)
        assert len(after.containers) == len(code.containers)
        with cuda12_libs[name].open("rb") as old, (cut_86 / name).open("rb") as new:
            pairs = [
                (before, now)
                for kept, each in zip(selection.containers, after.containers, strict=True)
                for before, now in zip(kept.members, each.members, strict=True)
            ]
            pairs += zip(selection.loose, after.loose, strict=True)
            for before, now in pairs:
                old.seek(before.offset)
                new.seek(now.offset)
                assert old.read(before.size) == new.read(now.size)


def test_readelf_and_gdb_have_nothing_to_say(cuda12_libs, cut_86):
    readelf, gdb = require("readelf"), require("gdb")
    for name in (*_LARGE, _ENGINES):
        told = subprocess.run(
            [readelf, "-W", "-a", cut_86 / name],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            check=True,
        )
        assert not told.stderr
        said = [
            subprocess.run(
                [gdb, "-batch", "-nx", "-ex", "info files", path], capture_output=True, text=True, check=True
            ).stderr.replace(str(path.parent), "")
            for path in (cuda12_libs[name], cut_86 / name)
        ]
        assert said[0] == said[1]


def test_cuobjdump_lists_what_stays(cut_86, cuobjdump):  # noqa: F811 - the fixture
    for name in (*_LARGE, _ENGINES):
        done = subprocess.run(
            [cuobjdump, "--list-elf", cut_86 / name], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        listed = Counter(line.split(".")[-2] for line in done.stdout.splitlines())
        code = read_gpu_code(cut_86 / name)
        mine = Counter(
            str(member.arch).removesuffix("f")
            for each in code.containers
            if each.section == ".nv_fatbin"
            for member in each.members
            if member.kind is Kind.CUBIN
        )
        assert listed == mine


def test_a_cut_of_a_cut_is_the_cut(cuda12_libs, cut_86, tmp_path):
    for name in ("libcudnn_ops.so.9", "libcublas.so.12", "libcublasLt.so.12"):
        both, second = tmp_path / name, tmp_path / "second" / name
        second.parent.mkdir(exist_ok=True)
        _sliced(cuda12_libs[name], both, "8.6", "9.0")
        _sliced(both, second, "8.6")
        assert second.read_bytes() == (cut_86 / name).read_bytes()
        assert plan_cut(*_selected(second, "8.6")).assembly is None
        both.unlink()
        second.unlink()


_QEMU_MAIN = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names) {
    for (int i = 1; i < count; i++) {
        void *library = dlopen(names[i], RTLD_LAZY | RTLD_GLOBAL);
        if (!library) return puts(dlerror()), 1;
        size_t (*version)(void) = dlsym(library, "cublasLtGetVersion");
        if (version) printf("%zu\\n", version());
    }
    return 0;
}
"""


def test_aarch64_libraries_load_with_pages_of_4_and_64_kib(library_set, tmp_path):
    """cuBLAS of the set, for which nothing but the C and C++ libraries is needed."""
    if library_set.machine != "aarch64":
        pytest.skip("for the sets of aarch64")
    folders = [folder for each in library_set.fetch() for folder in each.root.glob("nvidia/*/lib")]
    paths = [path for folder in folders for path in sorted(folder.glob("libcublas[.L]*"))]
    for path in paths:
        cut = _sliced(path, tmp_path / path.name, "9.0")
        assert cut.size < cut.whole * 0.6
    main = tmp_path / "main"
    (tmp_path / "main.c").write_text(_QEMU_MAIN)
    subprocess.run([require("aarch64-linux-gnu-gcc"), tmp_path / "main.c", "-o", main, "-ldl"], check=True)
    names = sorted((path.name for path in paths), key=lambda name: "Lt" not in name)
    for page in ("4096", "65536"):
        qemu = [require("qemu-aarch64"), "-p", page, "-L", "/usr/aarch64-linux-gnu"]
        search = ["-E", f"LD_LIBRARY_PATH={tmp_path}"]
        done = subprocess.run([*qemu, *search, main, *names], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        assert done.stdout.split()[0].startswith("13")
    for path in paths:
        (tmp_path / path.name).unlink()
