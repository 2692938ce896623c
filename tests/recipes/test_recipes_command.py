"""``dpack recipes``: list, show, check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from recipe_files import FILES, MODEL, edited, write

from packager.cli.recipes import recipes
from packager.errors import DpackError


def run(*arguments: str) -> str:
    result = CliRunner().invoke(recipes, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_names_everything(tmp_path: Path) -> None:
    shown = run("list", "--recipes", str(write(tmp_path, FILES)))
    assert "  screws       Finds screws.\n" in shown
    assert "  acme         Acme (2 parts)\n" in shown
    assert "  driver       NVIDIA driver (5 parts, left to the host)\n" in shown
    assert "  acmeworks    Acme Works\n" in shown


def test_list_as_json() -> None:
    listed = json.loads(run("list", "--json"))
    assert [model["name"] for model in listed["models"]] == ["cnn", "mlp", "rnn", "transformer"]
    nccl = next(family for family in listed["families"] if family["name"] == "nccl")
    assert nccl == {
        "name": "nccl",
        "title": "NVIDIA NCCL",
        "group": "NCCL",
        "licence": "bsd",
        "provided_by": "bundle",
        "components": ["nccl:nccl", "nccl:plugin"],
        "source": "libraries/nccl.toml",
    }


FAMILY_TEXT = """\
Acme ({dir}/libraries/acme.toml)
  Screws
  files        libacme*.so.3*
  comes in     acme-cu12 (CUDA 12)
  provided by  the bundle
  one release  parts may differ
  licence      MIT licence: files may be modified, may be passed on (MIT licence, whole text)

acme:core  libacme.so.3*
  The core
  serves    every model
  loaded    linked by the program
  need      required
  without   Nothing starts
  evidence  readelf

acme:train  libacme_train.so.3*
  Training
  serves     rnn, gemm
  loaded     opened by core as libacme_train.so.3 for rnn
  need       required
  without    No training
  versions   from 3.1
  functions  acmeTrain*
  evidence   strings
"""


def test_show_family(tmp_path: Path) -> None:
    # A fixed short directory, since the path stands in the first line only and must not wrap.
    write(tmp_path, FILES)
    assert run("show", "acme", "--recipes", str(tmp_path)) == FAMILY_TEXT.format(dir=tmp_path)


@pytest.mark.parametrize("name", ["acme:train", "libacme_train.so.3", "/opt/acme/libacme_train.so.3.1.4"])
def test_show_component(name: str, tmp_path: Path) -> None:
    shown = run("show", name, "--recipes", str(write(tmp_path, FILES)))
    assert shown == FAMILY_TEXT[FAMILY_TEXT.index("acme:train") :]


def test_show_model_tells_what_it_leaves_out() -> None:
    shown = run("show", "cnn")
    assert shown.startswith("Convolutional network (models/cnn.toml)\n")
    assert "  convolution          Convolution forward" in shown
    leaves = shown.partition("leaves out, where a program opens them:\n")[2]
    assert "  cudnn9:adv                  for rnn, multihead-attention, ctc-loss\n" in leaves
    assert "cudnn9:cnn" not in leaves


def test_show_name_of_two() -> None:
    shown: list[dict[str, Any]] = json.loads(run("show", "tensorflow", "--json"))
    assert [each["kind"] for each in shown] == ["family", "framework"]
    assert shown[1]["gpu"]["bytes"] == 6_200_000_000
    assert "GPU: 6.20 GB: tensorflow[and-cuda] 2.21.0 as installed" in run("show", "tensorflow")


@pytest.mark.parametrize(
    ("cited", "name"),
    [
        ("libraries/cudnn9.toml", "cudnn9"),
        ("libraries/cudnn9.toml: adv", "cudnn9:adv"),
        ("models/cnn.toml", "cnn"),
        ("hosts/ubuntu-22.04.toml", "jammy"),
    ],
)
def test_show_what_a_plan_cites(cited: str, name: str) -> None:
    assert run("show", cited) == run("show", name)


def test_show_unknown_name() -> None:
    with pytest.raises(DpackError, match="did you mean 'cudnn9'") as caught:
        run("show", "cudnn")
    assert caught.value.exit == 2


def test_check(tmp_path: Path) -> None:
    alone, together = run("check"), run("check", str(write(tmp_path, FILES)))
    assert alone.startswith("no problem: ")
    assert "4 models" in alone
    assert "5 models" in together


def test_check_reports_problems(tmp_path: Path) -> None:
    write(tmp_path, {"models/screws.toml": edited(MODEL, '"mlp"', '"mpl"')})
    with pytest.raises(DpackError, match="cannot use the recipes: 1 problem"):
        run("check", str(tmp_path))
