"""Architectures by name, and the table of what runs where."""

import pytest

from packager.arch import RULES, Arch, Gpu, Kind, runs, spelling
from packager.errors import EXIT_USAGE, DpackError


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        ("sm_87", "sm_87", 87),
        ("sm_90a", "sm_90a", 90),
        ("sm_120f", "sm_120f", 120),
        ("compute_80", "sm_80", 80),
        ("lto_50", "sm_50", 50),
        ("87", "sm_87", 87),
        ("8.7", "sm_87", 87),
        ("10.0", "sm_100", 100),
        (" sm_86 ", "sm_86", 86),
    ],
)
def test_an_architecture_has_many_names(text, name, number):
    arch = Arch.parse(text)
    assert (str(arch), arch.number) == (name, number)
    assert arch == Arch.of(number, arch.suffix)


@pytest.mark.parametrize(
    "text", ["", "sm", "sm_", "8", "sm_8", "sm_90b", "h100", "sm_086", "0.5", "8.66", "sm_1000"]
)
def test_anything_else_is_refused_with_the_next_step(text):
    with pytest.raises(DpackError) as caught:
        Arch.parse(text)
    assert caught.value.exit == EXIT_USAGE
    assert caught.value.lines()[-1].startswith("  next: write it as in sm_86")


def test_architectures_are_in_the_order_of_their_numbers():
    names = ["sm_120f", "sm_90a", "sm_100", "sm_90", "sm_86"]
    assert [str(arch) for arch in sorted(map(Arch.parse, names))] == [
        "sm_86", "sm_90", "sm_90a", "sm_100", "sm_120f",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "exact"),
    [("sm_86", False), ("8.7", True), ("sm_110", True), ("sm_101", True), ("sm_121", False)],
)
def test_a_jetson_is_known_by_its_compute_capability(name, exact):
    assert Gpu.of(name) == Gpu(Arch.parse(name), exact)


def test_a_gpu_has_no_suffix():
    assert str(Gpu.of("sm_90a")) == "sm_90"


@pytest.mark.parametrize(
    ("kind", "arch", "name"),
    [(Kind.CUBIN, "90a", "sm_90a"), (Kind.PTX, "120f", "compute_120f"), (Kind.LTO, "50", "lto_50")],
)
def test_each_kind_has_its_own_spelling(kind, arch, name):
    assert spelling(kind, Arch.parse(arch)) == name


GPUS = ("6.1", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")

# What runs on which of GPUS: read against NVIDIA's documents, not made with the code under test.
TABLE = {
    "sm_50": "",
    "sm_60": "6.1",
    "sm_75": "7.5",
    "sm_80": "8.0 8.6 8.9",
    "sm_86": "8.6 8.9",
    "sm_87": "8.7",
    "sm_89": "8.9",
    "sm_90": "9.0",
    "sm_90a": "9.0",
    "sm_100": "10.0 10.3",
    "sm_100a": "10.0",
    "sm_100f": "10.0 10.3",
    "sm_101": "11.0",
    "sm_101a": "11.0",
    "sm_103": "10.3",
    "sm_103a": "10.3",
    "sm_103f": "10.3",
    "sm_110": "11.0",
    "sm_110a": "11.0",
    "sm_110f": "11.0",
    "sm_120": "12.0 12.1",
    "sm_120a": "12.0",
    "sm_120f": "12.0 12.1",
    "sm_121": "12.1",
    "compute_50": " ".join(GPUS),
    "compute_80": "8.0 8.6 8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1",
    "compute_87": "8.7 8.9 9.0 10.0 10.3 11.0 12.0 12.1",
    "compute_90a": "9.0",
    "compute_100f": "10.0 10.3",
    "compute_101": "10.3 11.0 12.0 12.1",
    "compute_120": "12.0 12.1",
    "compute_120f": "12.0 12.1",
    "lto_50": " ".join(GPUS),
    "lto_90": "9.0 10.0 10.3 11.0 12.0 12.1",
}
KINDS = {"sm": Kind.CUBIN, "compute": Kind.PTX, "lto": Kind.LTO}


@pytest.mark.parametrize("name", TABLE)
def test_what_runs_where(name):
    kind, arch = KINDS[name.partition("_")[0]], Arch.parse(name)
    assert " ".join(gpu for gpu in GPUS if runs(kind, arch, Gpu.of(gpu))) == TABLE[name]


def test_a_device_called_exact_runs_its_own_machine_code_alone():
    orin = Gpu(Arch(8, 6), exact=True)
    assert not runs(Kind.CUBIN, Arch(8, 0), orin)
    assert runs(Kind.CUBIN, Arch(8, 6), orin)
    assert runs(Kind.PTX, Arch(8, 0), orin)


def test_thor_is_one_chip_under_its_old_and_its_new_name():
    assert runs(Kind.CUBIN, Arch(11, 0), Gpu.of("sm_101"))
    assert runs(Kind.CUBIN, Arch(10, 1), Gpu.of("sm_110"))


def test_what_no_rule_speaks_of_does_not_run():
    assert not runs(Kind.OTHER, Arch(8, 6), Gpu.of("8.6"))
    assert not runs(Kind.CUBIN, Arch(8, 6, "x"), Gpu.of("8.6"))


def test_each_case_has_one_rule_and_each_rule_its_source():
    cases = [(kind, rule.suffix) for rule in RULES for kind in rule.kinds]
    assert sorted(cases) == sorted((kind, s) for kind in set(Kind) - {Kind.OTHER} for s in ("", "a", "f"))
    assert all(rule.says and rule.source for rule in RULES)
