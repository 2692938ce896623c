"""GPU code must fit: a library with kernels of which none runs on the target's GPU is a conflict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import fatbin
from builders.elf import AARCH64, X86_64
from builders.fatbin import container, elf_file, shared_object
from builders.layouts import image
from tiny_device import Device, fates, said

from packager.arch import Gpu
from packager.cuda.question import Question, answer
from packager.destination import Destination
from packager.emit import Item
from packager.gpu import unfit
from packager.oci.layer import LayerSpec
from packager.plan import Action, Conflict, Decision, Plan
from packager.recipes import load
from packager.request import Slicing

RECIPES = load()
CUBLAS, CUDNN, OWN = "libcublasLt.so.12", "libcudnn_ops.so.9", "libown.so.1"


def judged(
    tmp_path: Path,
    members: tuple[str, ...],
    *gpus: str,
    name: str = OWN,
    platform: str = "linux/amd64",
    action: Action = Action.KEEP,
) -> list[Conflict]:
    """What is said of a library ``name`` with these members, for these GPUs."""
    path = tmp_path / name
    path.write_bytes(elf_file({".rodata": container(*members)}))
    d = Decision(action, name, "", "", 0, family=RECIPES.family_of(name))
    there = Destination(platform=platform, gpus=tuple(map(Gpu.of, gpus)))
    beside = Decision(Action.KEEP, "libcudart.so.12", "", "", 0)
    # Neither decision has a file, so both are asked about the same code.
    return list(unfit([d, beside], {d.path: answer(Question(path, there.gpus))}, there, RECIPES))[:1]


# Cubins run within their major from their minor on, on Tegra exactly; PTX runs forward.
@pytest.mark.parametrize(
    ("members", "gpu", "fits"),
    [
        (("sm_80",), "sm_80", True),
        (("sm_80",), "sm_86", True),
        (("sm_86",), "sm_80", False),
        (("sm_80",), "sm_90", False),
        (("sm_75", "sm_80", "sm_90"), "sm_89", True),
        (("sm_80", "sm_86"), "sm_87", False),
        (("sm_87",), "sm_87", True),
        (("sm_87",), "sm_89", False),
        (("sm_90a",), "sm_90", True),
        (("sm_90a",), "sm_100", False),
        (("sm_101",), "sm_110", True),
        (("sm_110f",), "sm_110", True),
        (("sm_100f",), "sm_103", True),
        (("compute_80",), "sm_120", True),
        (("compute_80",), "sm_87", True),
        (("compute_90",), "sm_89", False),
        (("sm_70", "compute_70"), "sm_120", True),
        ((), "sm_89", True),
    ],
)
def test_which_code_fits_which_gpu(members, gpu, fits, tmp_path):
    assert bool(judged(tmp_path, members, gpu)) is not fits


def test_a_conflict_names_the_library_the_gpus_and_what_it_has(tmp_path):
    (conflict,) = judged(tmp_path, ("sm_75", "sm_80", "compute_90"), "sm_120", "sm_89", "sm_70")
    assert conflict.what == "libown.so.1 has no code that runs on sm_70"
    assert conflict.why == "it has sm_75, sm_80"
    (conflict,) = judged(tmp_path, ("compute_90",), "sm_89", "sm_86")
    assert conflict.what == "libown.so.1 has no code that runs on sm_89 or sm_86"
    assert conflict.why == "it has PTX of newer architectures alone"


KEEP, HOST = Action.KEEP, Action.HOST


@pytest.mark.parametrize(
    ("name", "gpu", "where", "way"),
    [
        (OWN, "sm_70", ("linux/amd64", KEEP), "build libown.so.1 with code for it (nvcc -gencode)"),
        (CUBLAS, "sm_70", ("linux/amd64", KEEP), "--require nvidia-cublas-cu12==VERSION"),
        # Of the releases for several CUDA versions the one for that of the rest.
        (CUDNN, "sm_70", ("linux/amd64", KEEP), "--require nvidia-cudnn-cu12==VERSION"),
        (CUBLAS, "sm_87", ("linux/arm64", KEEP), "JetPack's: --root DIR"),
        (CUBLAS, "sm_87", ("linux/arm64", KEEP), "--base IMAGE"),
        (OWN, "sm_87", ("linux/arm64", KEEP), "build libown.so.1 with code for it"),
        (CUBLAS, "sm_87", ("linux/amd64", KEEP), "for linux/arm64, as every Jetson is"),
        (CUBLAS, "sm_70", ("linux/amd64", HOST), "choose a base whose libraries have it"),
    ],
)
def test_the_way_out_depends_on_whose_library_it_is(name, gpu, where, way, tmp_path):
    platform, action = where
    (conflict,) = judged(tmp_path, ("sm_80",), gpu, name=name, platform=platform, action=action)
    assert way in "; ".join(conflict.ways)
    assert ("a Tegra GPU runs machine code of exactly its own" in conflict.why) is (gpu == "sm_87")


def with_code(device: Device, *members: str) -> Path:
    """The device's program needs libown.so.1, which has GPU code."""
    compiler = {X86_64: "x86_64-linux-gnu-gcc", AARCH64: "aarch64-linux-gnu-gcc"}[device.machine]
    work = device.directory / "build"
    work.mkdir()
    parts = [large(each) for each in members]
    made = shared_object(
        work,
        {".nv_fatbin": [container(*parts)]},
        flags=[f"-Wl,-soname,{OWN}", "-nostdlib"],
        compiler=compiler,
    )
    program = device.program(OWN)
    made.rename(device.libraries / OWN)
    return program


def large(name: str) -> bytes:
    """A member of 64 KiB where it is a cubin: what is cut has to fill a page."""
    content = fatbin.cubin(name, code=bytes(range(256)) * 256) if name.startswith("sm") else None
    return fatbin.member(name, content)


def test_a_plan_that_does_not_fit_is_refused_and_offers_no_slices(device):
    program = with_code(device, "sm_80", "sm_86")
    done = said("plan", program, "--root", device.root, "--target", "h100")
    assert done.error
    assert done.error.exit == 1
    for words in ("libown.so.1 has no code that runs on sm_90", "it has sm_80, sm_86", "nvcc -gencode"):
        assert words in done.message
    assert "sliced" not in done.out
    assert "slicing" not in done.out


def own(plan: Plan) -> Decision:
    return next(d for d in plan.decisions if d.name == OWN)


def test_a_plan_that_fits_is_sliced(device):
    program = with_code(device, "sm_80", "sm_86", "sm_90")
    told = json.loads(said("plan", program, "--root", device.root, "--target", "rtx-3090", "--json").out)
    row = next(row for row in told["decisions"] if row["name"] == OWN)
    assert "sliced for sm_86" in row["changes"]
    whole = (device.libraries / OWN).stat().st_size
    assert own(device.plan(target="rtx-3090")).packed_size < whole - 2 * 60_000
    assert own(device.plan(target="rtx-3090", slicing=Slicing("no"))).packed_size == whole


def test_arm64_is_held_to_the_exact_gpu(tmp_path):
    device = Device(tmp_path, AARCH64)
    program = with_code(device, "sm_80", "sm_110")
    options = ("--root", device.root)
    refused = said("plan", program, *options, "--target", "jetson-orin")
    assert "no code that runs on sm_87" in refused.message
    assert "a Tegra GPU runs machine code of exactly its own" in refused.message
    assert said("plan", program, *options, "--target", "jetson-thor").error is None
    assert said("plan", program, *options, "--gpu", "sm_86").error is None


def test_several_gpus_must_all_be_served(device):
    program = with_code(device, "sm_80", "sm_90")
    options = ("--root", device.root)
    assert said("plan", program, *options, "--gpu", "sm_86", "--gpu", "9.0").error is None
    refused = said("plan", program, *options, "--gpu", "sm_86", "--gpu", "sm_75")
    assert "no code that runs on sm_75" in refused.message


def test_what_is_left_out_need_not_fit(device):
    program = with_code(device, "sm_80")
    options = ("--root", device.root, "--target", "h100")
    assert said("plan", program, *options).error
    assert said("plan", program, *options, "--exclude", OWN).error is None


def test_the_libraries_of_a_base_must_fit_too(device, tmp_path):
    """They are the host's in the plan, and the very files that the program will load."""
    with_code(device, "sm_80")
    files = [
        Path(device.interp.lstrip("/")),
        *(p.relative_to(device.root) for p in device.libraries.iterdir()),
    ]
    items = tuple(Item(each.as_posix(), 0o755, device.root / each) for each in sorted(files))
    image(tmp_path / "base", layers=[LayerSpec("system", items)])
    plan = device.plan(base=str(tmp_path / "base"), image=True, target="h100")
    assert fates(plan)[OWN] is Action.HOST
    (conflict,) = plan.conflicts
    assert conflict.what == "libown.so.1 has no code that runs on sm_90"
    assert conflict.ways == ("choose a base whose libraries have it",)
    assert not device.plan(base=str(tmp_path / "base"), image=True, target="l4").conflicts


@pytest.mark.parametrize(
    ("gpu", "warned"), [("sm_98", True), ("sm_95", False), ("sm_90", False), ("8.8", False)]
)
def test_a_gpu_that_nobody_has_heard_of_is_a_warning(gpu, warned, device):
    """sm_98 for sm_89: code for sm_90 would run on it. What a library has code for exists."""
    with_code(device, "sm_90", "sm_95", "compute_50")
    assert [gpu in warning for warning in device.plan(gpus=(gpu,)).warnings] == [True] * warned
