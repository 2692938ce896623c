"""Targets: those that dpack ships, what is wrong with one, and ``dpack targets``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from recipe_files import edited, write

from packager.arch import Arch, Gpu, Kind, runs
from packager.cli.targets import host_names, target_names, targets
from packager.errors import EXIT_USAGE, DpackError
from packager.recipes import Recipes, load

TARGET = """\
schema = 1
[target]
name = "box"
aliases = ["box-2"]
title = "Acme box"
platform = "linux/arm64"
arch = "sm_87"
exact = true
host = "box-os"
evidence = "seen"
"""

HOST = """\
schema = 1
[host]
name = "box-os"
title = "Acme OS"
about = "The system of the boxes"
platforms = ["linux/arm64"]
compression = "gzip"
read = "2026-11-21"
evidence = "its packages"
[[package]]
name = "libc6"
version = "2.31-1"
sonames = ["libc.so.6", "libm.so.6"]
versions = ["GLIBC_2.31", "GLIBC_PRIVATE"]
"""

FILES = {"targets/box.toml": TARGET, "hosts/box-os.toml": HOST}


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return load()


# name, compute capability, exact, platform, host, compression; capabilities as in NVIDIA's tables of CUDA GPUs
SHIPPED = [
    ("m40", "sm_52", False, "linux/amd64", "", "zstd"),
    ("jetson-nano", "sm_53", True, "linux/arm64", "jetpack4", "gzip"),
    ("p100", "sm_60", False, "linux/amd64", "", "zstd"),
    ("gtx-1080", "sm_61", False, "linux/amd64", "", "zstd"),
    ("jetson-tx2", "sm_62", True, "linux/arm64", "jetpack4", "gzip"),
    ("v100", "sm_70", False, "linux/amd64", "", "zstd"),
    ("jetson-xavier-nx", "sm_72", True, "linux/arm64", "jetpack5", "gzip"),
    ("t4", "sm_75", False, "linux/amd64", "", "zstd"),
    ("a100", "sm_80", False, "linux/amd64", "", "zstd"),
    ("a40", "sm_86", False, "linux/amd64", "", "zstd"),
    ("rtx-3090", "sm_86", False, "linux/amd64", "", "zstd"),
    ("jetson-orin", "sm_87", True, "linux/arm64", "jetpack6", "zstd"),
    ("jetson-orin-nano", "sm_87", True, "linux/arm64", "jetpack6", "zstd"),
    ("l4", "sm_89", False, "linux/amd64", "", "zstd"),
    ("rtx-4090", "sm_89", False, "linux/amd64", "", "zstd"),
    ("h200", "sm_90", False, "linux/amd64", "", "zstd"),
    ("gh200", "sm_90", False, "linux/arm64", "", "zstd"),
    ("b200", "sm_100", False, "linux/amd64", "", "zstd"),
    ("gb300", "sm_103", False, "linux/arm64", "", "zstd"),
    ("jetson-thor", "sm_110", True, "linux/arm64", "jetpack7", "zstd"),
    ("rtx-5090", "sm_120", False, "linux/amd64", "", "zstd"),
    ("gb10", "sm_121", False, "linux/arm64", "", "zstd"),
]


@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: row[0])
def test_shipped_target(row: tuple[str, str, bool, str, str, str], recipes: Recipes) -> None:
    name, *expected = row
    target = recipes.target(name)
    found = [str(target.arch), target.exact, target.platform, target.host, target.compression]
    assert found == expected


def test_every_target_is_exact_where_its_architecture_is_tegra(recipes: Recipes) -> None:
    assert {t.name for t in recipes.targets if t.gpu != Gpu.of(str(t.arch))} == set()


def test_every_host_of_a_target_is_there_and_of_its_platform(recipes: Recipes) -> None:
    hosts = [(target, recipes.host(target.host)) for target in recipes.targets if target.host]
    assert len(hosts) == 5
    for target, host in hosts:
        assert host.on(target.platform).supplies("libc.so.6")
        assert target.compression == host.compression


def test_no_sibling_runs_where_a_target_is_exact(recipes: Recipes) -> None:
    assert not runs(Kind.CUBIN, Arch.parse("sm_86"), recipes.target("jetson-orin").gpu)
    assert runs(Kind.CUBIN, Arch.parse("sm_86"), recipes.target("l4").gpu)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("jetson-orn", "did you mean 'jetson-orin' or "),
        ("H100", "did you mean 'h100' or "),
        ("voodoo2", "no recipe has this name"),
    ],
)
def test_unknown_target(name: str, why: str, recipes: Recipes) -> None:
    with pytest.raises(DpackError) as caught:
        recipes.target(name)
    first, *_, last = caught.value.lines()
    assert caught.value.exit == EXIT_USAGE
    assert first.startswith(f"unknown target {name!r}: {why}")
    assert "`dpack targets` lists" in last


def test_target_takes_the_compression_of_its_host(tmp_path: Path) -> None:
    mine = load([write(tmp_path, FILES)]).target("box-2")
    assert (mine.name, mine.compression, str(mine.gpu), mine.source) == (
        "box",
        "gzip",
        "sm_87",
        tmp_path / "targets/box.toml",
    )


BAD = {
    "unknown host": (
        {"targets/box.toml": edited(TARGET, '"box-os"', '"boxos"')},
        'targets/box.toml: target.host: unknown host "boxos"; did you mean "box-os"?',
    ),
    "a host of another platform": (
        {"targets/box.toml": edited(TARGET, '"linux/arm64"', '"linux/amd64"')},
        "targets/box.toml: target.host: box-os is not known for linux/amd64",
    ),
    "no compression at all": (
        {"hosts/box-os.toml": edited(HOST, 'compression = "gzip"\n', "")},
        "targets/box.toml: target.compression: missing; it must be a string",
    ),
    "no architecture": (
        {"targets/box.toml": edited(TARGET, '"sm_87"', '"ampere"')},
        'targets/box.toml: target.arch: must be the architecture of a GPU such as "sm_87", not "ampere"',
    ),
    "an architecture of code, not of a GPU": (
        {"targets/box.toml": edited(TARGET, '"sm_87"', '"sm_90a"')},
        'targets/box.toml: target.arch: must be the architecture of a GPU such as "sm_87", not "sm_90a"',
    ),
    "no platform": (
        {"targets/box.toml": edited(TARGET, '"linux/arm64"', '"linux/arm"')},
        (
            'targets/box.toml: target.platform: must be "linux/amd64" or "linux/arm64", not "linux/arm"; '
            'did you mean "linux/arm64"?'
        ),
    ),
    "a name that another target has": (
        {"targets/box.toml": edited(TARGET, '"box-2"', '"l40"')},
        'targets/box.toml: target.aliases: "l40" means l4 already',
    ),
    "its own name again": (
        {"targets/box.toml": edited(TARGET, '"box-2"', '"box"')},
        'targets/box.toml: target.aliases: "box" means box already',
    ),
    "a misspelt key": (
        {"targets/box.toml": edited(TARGET, "exact = true", "exact = true\nhosts = 1")},
        'targets/box.toml: target.hosts: unknown key; did you mean "host"?',
    ),
}


@pytest.mark.parametrize(("files", "problem"), BAD.values(), ids=BAD)
def test_bad_target(files: dict[str, str], problem: str, tmp_path: Path) -> None:
    with pytest.raises(DpackError) as caught:
        load([write(tmp_path, FILES | files)])
    assert caught.value.exit == EXIT_USAGE
    shown = [problem.replace(str(tmp_path) + "/", "") for problem in caught.value.tried]
    assert problem in shown


def run(*arguments: str) -> str:
    result = CliRunner().invoke(targets, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_table_of_targets(recipes: Recipes) -> None:
    header, *lines = run().splitlines()
    assert header.split() == ["TARGET", "GPU", "CODE", "PLATFORM", "HOST", "LAYERS", "ALSO", "CALLED"]
    assert sorted(line.split()[0] for line in lines) == [target.name for target in recipes.targets]
    orin = next(line for line in lines if line.startswith("jetson-orin "))
    assert orin.split()[:6] == ["jetson-orin", "sm_87", "only", "linux/arm64", "jetpack6", "zstd"]
    assert [lines[0].split()[0], lines[-1].split()[0]] == ["m60", "dgx-spark"]


def test_table_of_hosts(recipes: Recipes) -> None:
    header, *lines = run("--hosts").splitlines()
    assert header.split() == ["HOST", "GLIBC", "GLIBCXX", "LIBRARIES", "PLATFORMS", "ALSO", "CALLED"]
    assert [line.split()[0] for line in lines] == [host.name for host in recipes.hosts]
    jetpack = next(line for line in lines if line.startswith("jetpack6 "))
    assert jetpack.split()[1:3] == ["2.35", "3.4.30"]


BOX = """\
Acme box ({dir}/targets/box.toml)
  names     box, box-2
  GPU       sm_87: machine code runs only where it was made for exactly this
  platform  linux/arm64
  layers    gzip, which its container engine reads
  host      box-os: GLIBC 2.31
  evidence  seen
"""

BOX_OS = """\
Acme OS ({dir}/hosts/box-os.toml)
  The system of the boxes
  names      box-os
  platforms  linux/arm64
  has        GLIBC 2.31
  layers     gzip, which its container engine reads
  read       2026-11-21
  evidence   its packages

libc6 2.31-1
  libc.so.6, libm.so.6
  defines GLIBC_2.31, GLIBC_PRIVATE
"""


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["box-2"], BOX), (["box-os"], BOX_OS), (["--hosts", "box-os"], BOX_OS)]
)
def test_one_in_full(arguments: list[str], expected: str, tmp_path: Path) -> None:
    directory = str(write(tmp_path, FILES))
    assert run(*arguments, "--recipes", directory) == expected.format(dir=directory)


def test_a_target_has_the_name_before_a_host() -> None:
    assert run("l4").startswith("Ada data centre: L4, L40, L40S (targets/l4.toml)\n")
    with pytest.raises(DpackError, match="unknown host profile 'l4'"):
        run("--hosts", "l4")


def test_json(tmp_path: Path) -> None:
    directory = str(write(tmp_path, FILES))
    shown = json.loads(run("box", "--json", "--recipes", directory))
    assert shown == {
        "kind": "target",
        "name": "box",
        "aliases": ["box-2"],
        "title": "Acme box",
        "platform": "linux/arm64",
        "arch": "sm_87",
        "exact": True,
        "host": "box-os",
        "compression": "gzip",
        "evidence": "seen",
        "source": f"{directory}/targets/box.toml",
        "versions": {"GLIBC": "2.31"},
    }
    listed = json.loads(run("--json", "--recipes", directory))
    assert shown in listed
    hosts = json.loads(run("--json", "--hosts", "--recipes", directory))
    (mine,) = (host for host in hosts if host["name"] == "box-os")
    assert mine["packages"][0]["sonames"] == ["libc.so.6", "libm.so.6"]


def test_names_for_the_shell() -> None:
    context, parameter = None, None
    assert target_names(context, parameter, "jetson-or") == [  # type: ignore[arg-type]
        "jetson-orin",
        "jetson-orin-nano",
        "jetson-orin-nx",
    ]
    assert host_names(context, parameter, "jetpack") == [  # type: ignore[arg-type]
        "jetpack4",
        "jetpack5",
        "jetpack6",
        "jetpack7",
    ]
