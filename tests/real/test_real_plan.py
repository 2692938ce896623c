"""The plans on NVIDIA's own libraries: exactly these files, with these bytes.

cuDNN 9.10 has eight libraries. By 9.21 ``engines_tensor_ir`` came, which graph opens as it does the other engines
(missing, it fails with CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED), so every model keeps it: 2 MB for CUDA 12, 250 MB
for CUDA 13. By 9.24 ``ext`` came, which the shim opens for causal convolutions and graph networks alone, so that
neither a CNN nor an RNN keeps it. Sizes are those of the wheels' files, 2026-11-21.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from packager.plan import Action, Plan
from packager.source import default_cache


@dataclass(frozen=True, slots=True)
class Expected:
    """What the plans of one set hold: which engines there are, and cuDNN's droppable parts with their bytes."""

    tensor_ir: bool
    cuda: int
    builtins: str
    sizes: dict[str, int]

    def kept(self, model: str) -> set[str]:
        """Every NVIDIA library that the model keeps, spelled out."""
        names = {
            "libcudnn.so.9",
            "libcudnn_graph.so.9",
            "libcudnn_ops.so.9",
            "libcudnn_heuristic.so.9",
            "libcudnn_engines_precompiled.so.9",
            "libcudnn_engines_runtime_compiled.so.9",
            f"libcublas.so.{self.cuda}",
            f"libcublasLt.so.{self.cuda}",
            f"libcudart.so.{self.cuda}",
            f"libnvrtc.so.{self.cuda}",
            f"libnvrtc-builtins.so.{self.builtins}",
        }
        own = {"cnn": "libcudnn_cnn.so.9", "rnn": "libcudnn_adv.so.9"}
        return names | {own[model]} | ({"libcudnn_engines_tensor_ir.so.9"} if self.tensor_ir else set())

    def dropped(self, model: str) -> dict[str, int]:
        """The libraries that the model drops, with their bytes."""
        kept = self.kept(model)
        return {name: size for name, size in self.sizes.items() if name not in kept}


EXPECTED = {
    "cu12": Expected(
        tensor_ir=False,
        cuda=12,
        builtins="12.9",
        sizes={"libcudnn_adv.so.9": 285_226_600, "libcudnn_cnn.so.9": 6_301_096},
    ),
    "cu12-new": Expected(
        tensor_ir=True,
        cuda=12,
        builtins="12.9",
        sizes={
            "libcudnn_adv.so.9": 232_904_280,
            "libcudnn_cnn.so.9": 4_203_992,
            "libcudnn_ext.so.9": 10_492_448,
        },
    ),
    "cu13-new": Expected(
        tensor_ir=True,
        cuda=13,
        builtins="13.5",
        sizes={
            "libcudnn_adv.so.9": 92_392_360,
            "libcudnn_cnn.so.9": 4_204_144,
            "libcudnn_ext.so.9": 10_492_592,
        },
    ),
    "cu13-aarch64": Expected(
        tensor_ir=True,
        cuda=13,
        builtins="13.5",
        sizes={
            "libcudnn_adv.so.9": 113_365_208,
            "libcudnn_cnn.so.9": 2_370_976,
            "libcudnn_ext.so.9": 8_397_224,
        },
    ),
}


def vendors(plan: Plan, action: Action) -> dict[str, int]:
    """The names and bytes of the files out of the wheels."""
    cache = str(default_cache())
    return {d.name: d.size for d in plan.of(action) if d.object and d.object.host.startswith(cache)}


@pytest.mark.parametrize("model", ["cnn", "rnn"])
def test_the_plan_holds_exactly_what_the_model_needs(model, case):
    plan = case.analysis(model).plan
    expected = EXPECTED[case.name]
    assert plan.complete
    assert set(vendors(plan, Action.KEEP)) == expected.kept(model)
    assert vendors(plan, Action.DROP) == expected.dropped(model)
    others = {d.name for d in plan.of(Action.KEEP)} - expected.kept(model)
    assert others == {"mnist", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"}


@pytest.mark.parametrize("model", ["cnn", "rnn"])
def test_every_size_is_that_of_the_file(model, case):
    plan = case.analysis(model).plan
    for action in (Action.KEEP, Action.DROP):
        for name, size in vendors(plan, action).items():
            assert size == case.libraries[name].stat().st_size, name


def test_without_a_model_everything_is_kept_and_the_saving_is_told(case):
    plan = case.analysis("cnn", models=()).plan
    expected = EXPECTED[case.name]
    assert not plan.of(Action.DROP)
    savings = {each.model: dict.fromkeys(each.names) | {"": each.size} for each in plan.savings}
    left_out = expected.dropped("cnn")
    assert savings["cnn"] == dict.fromkeys(left_out) | {"": sum(left_out.values())}
    assert "rnn" not in savings, "the program imports a convolution"


def test_every_drop_has_its_rule(case):
    for decision in case.analysis("cnn").plan.of(Action.DROP):
        assert decision.rule == f"libraries/cudnn9.toml: {decision.name[9:12]}"
        assert "the model cnn has none of them" in decision.reason


def test_the_driver_is_left_to_the_host(case):
    """Opened with dlopen by most; the newer runtime-compiled engines have it in DT_NEEDED."""
    analysis = case.analysis("cnn")
    assert "libcuda.so.1" in {d.name for d in analysis.plan.of(Action.HOST)}
    needing = {o.name for o in analysis.closure.objects if "libcuda.so.1" in o.elf.needed}
    assert needing == (set() if case.name == "cu12" else {"libcudnn_engines_runtime_compiled.so.9"})


def test_every_name_in_the_libraries_is_known_to_a_recipe(case):
    """A name that no recipe knows is a possible miss; on NVIDIA's own libraries there is none left to explain."""
    for model in ("cnn", "rnn"):
        analysis = case.analysis(model, models=())
        unknown = {(m.source.rpartition("/")[2], m.name) for m in analysis.closure.mentions if not m.rule}
        assert unknown == set()
        assert analysis.plan.warnings == ()


@pytest.mark.parametrize(
    ("opener", "part"),
    [("libcudnn_graph.so.9", "libcudnn_engines_tensor_ir"), ("libcudnn.so.9", "libcudnn_ext")],
)
def test_the_newer_parts_are_named_by_what_opens_them(opener, part, case):
    """The recipe's evidence for the two newer parts, looked up in the files again."""
    named = part.encode() in case.libraries[opener].read_bytes()
    assert named == (f"{part}.so.9" in case.libraries) == (case.name != "cu12")


def test_a_directory_as_debian_lays_it_out_gives_the_same_plan(case):
    """libNAME.so.9 -> libNAME.so.9.10.2, both in one directory, libNAME.so beside them."""
    directory = _debian(case)
    direct = case.analysis("cnn").plan
    plan = case.analysis("cnn", library_path=(directory,), supply=None).plan
    assert plan.complete
    assert {(d.action, d.name, d.size) for d in plan.decisions} == {
        (d.action, d.name, d.size) for d in direct.decisions
    }


def _debian(case: Any) -> Path:
    """Such a directory: its files are hard links to the cache, symbolic ones where a hard one cannot be made."""
    directory = case.directory / "debian"
    if not directory.exists():
        directory.mkdir()
        for name, path in case.libraries.items():
            if "alt" in name or "nvblas" in name:
                continue
            full = directory / f"{name}.{'.'.join(map(str, case.version('cudnn')[1:3]))}"
            try:
                full.hardlink_to(path)
            except OSError:
                full.symlink_to(path)
            (directory / name).symlink_to(full.name)
            (directory / f"{name.partition('.so')[0]}.so").symlink_to(name)
    return directory


def test_its_bundle_holds_real_files_under_their_sonames_and_no_file_twice(case):
    from packager.bundle import Output, bundle  # noqa: PLC0415 - only here
    from packager.emit import Format  # noqa: PLC0415

    small = [name for name, path in case.libraries.items() if path.stat().st_size < 50_000_000]
    large = tuple(name for name in case.libraries if name not in small)
    analysis = case.analysis("cnn", library_path=(_debian(case),), supply=None, exclude=large)
    output = case.directory / "debian-bundle"
    bundle(analysis, Output(output, Format.DIR))
    files = {path.name: path for path in (output / "lib").iterdir()}
    assert set(files) == {d.name for d in analysis.plan.of(Action.KEEP)} - {"mnist"}
    assert set(files) >= {"libcudnn.so.9", "libcudnn_cnn.so.9", f"libcudart.so.{case.cuda}"}
    for name, path in files.items():
        assert not path.is_symlink()
        assert path.stat().st_nlink == 1
        if name in case.libraries:
            assert path.read_bytes() == case.libraries[name].read_bytes()
