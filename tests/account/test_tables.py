from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mnist_plan as sample
import pytest

from packager.account import table
from packager.account.compare import framework_table, size_table, sizes_of_manifest, sizes_of_plan
from packager.account.manifest import manifest, with_archive
from packager.account.size import TIMES
from packager.account.totals import Counted, totals
from packager.plan import Plan
from packager.recipes import load

GOLDEN = Path(__file__).with_name("golden")


def shipped(plan: Plan, form: str = "tar.zst", sha256: str | None = "0" * 64):
    found = manifest(plan, sample.entries(plan), sample.contents(plan))
    return sizes_of_manifest(with_archive(found, form, 61_000_000, sha256))


def golden(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


RENDER = pytest.mark.parametrize(("render", "suffix"), [(table.text, "txt"), (table.markdown, "md")])


@RENDER
def test_the_size_table_of_a_bundle(render, suffix):
    golden(f"sizes.{suffix}", render(size_table(shipped(sample.mnist()))))


@RENDER
def test_the_size_table_of_a_plan_has_the_original_sizes(render, suffix):
    golden(f"plan.{suffix}", render(size_table(sizes_of_plan(sample.mnist()))))


@RENDER
def test_the_frameworks_beside_a_gpu_bundle(render, suffix):
    golden(f"gpu.{suffix}", render(framework_table(shipped(sample.mnist()), sample.FRAMEWORKS)))


def cpu_plan() -> Plan:
    program, *_ = sample.mnist().decisions
    return Plan(sample.mnist().choice, (program,))


@RENDER
def test_the_frameworks_beside_a_cpu_bundle(render, suffix):
    golden(f"cpu.{suffix}", render(framework_table(sizes_of_plan(cpu_plan()), sample.FRAMEWORKS)))


def test_a_bundle_that_dropped_all_of_cuda_is_compared_as_a_cpu_one():
    program, *rest = sample.mnist().decisions
    adv = next(d for d in rest if d.name == "libcudnn_adv.so.9")
    assert not sizes_of_plan(replace(cpu_plan(), decisions=(program, adv))).gpu
    assert sizes_of_plan(sample.mnist()).gpu


def test_a_framework_without_a_published_figure_is_left_out():
    only = (sample.framework("cpuonly", None, 1_000),)
    assert framework_table(sizes_of_plan(sample.mnist()), only).rows == (
        ("this bundle", "115.5 MB", f"1{TIMES}"),
    )


def test_a_directory_has_no_packed_size():
    assert shipped(sample.mnist(), "dir", None).archive is None
    assert shipped(sample.mnist()).archive == ("tar.zst", 61_000_000)


def test_groups_stand_in_the_order_of_published_tables_then_by_size():
    counted = [
        Counted("licence texts", 9, kept=True),
        Counted("other libraries", 9, kept=True),
        Counted("NCCL", 1, kept=True),
        Counted("cuFFT", 3, kept=False),
        Counted("Apex", 1, kept=True),
        Counted("cuDNN", 1, kept=True),
        Counted("CUDA runtime", 1, kept=True),
        Counted("executable", 1, kept=True),
    ]
    expected = [
        "executable",
        "CUDA runtime",
        "cuDNN",
        "cuFFT",
        "Apex",
        "NCCL",
        "other libraries",
        "licence texts",
    ]
    assert [row.group for row in totals(counted)] == expected
    assert [row.group for row in totals(counted[::-1])] == expected


def test_the_recipes_hold_the_published_figures():
    frameworks = {f.title: (f.gpu and f.gpu.bytes, f.cpu and f.cpu.bytes) for f in load().frameworks}
    assert frameworks == {
        "OpenNN": (1_300_000_000, 3_200_000),
        "ONNX Runtime": (2_000_000_000, 22_000_000),
        "PyTorch": (5_000_000_000, 442_000_000),
        "TensorFlow": (6_200_000_000, 752_000_000),
    }


def test_the_recipes_name_the_groups_that_the_tables_know():
    groups = {family.group for family in load().families}
    assert {"CUDA runtime", "cuBLAS", "cuDNN", "NVRTC", "driver"} <= groups
