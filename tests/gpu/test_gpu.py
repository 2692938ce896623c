"""The examples and their bundles on a real GPU. Without one nothing is checked, and nothing passes."""

from __future__ import annotations

import json
from pathlib import Path

import device
import pytest
import run
import slices

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _gpu() -> None:
    found = device.find()
    if isinstance(found, str):
        # Not conftest's `absent`: no GPU is something that even the machine with every peer lacks.
        pytest.skip(f"no GPU: {found}")


def test_bundles_do_on_a_gpu_what_their_originals_do(tmp_path: Path) -> None:
    code = run.main(
        ["--work", str(tmp_path / "work"), "--evidence", str(tmp_path / "evidence"), "--runs", "1"]
    )
    (record,) = (tmp_path / "evidence").glob("*.json")
    seen = json.loads(record.read_text())
    assert seen["problems"] == []
    assert code == 0
    assert [(each["program"], each["model"]) for each in seen["subjects"]] == [
        ("mnist", "cnn"),
        ("rnn", "rnn"),
    ]
    (cnn, rnn) = seen["subjects"]
    assert "libcudnn_adv.so.9" in cnn["dropped"]
    assert "libcudnn_adv.so.9" in rnn["mapped"]


@pytest.mark.parametrize("step", slices.STEPS)
def test_slices_do_on_a_gpu_what_whole_libraries_do(tmp_path: Path, step: str) -> None:
    folders = ["--work", str(tmp_path / "work"), "--evidence", str(tmp_path / "evidence")]
    code = slices.main([*folders, "--runs", "3", "--only", step])
    (record,) = (tmp_path / "evidence").glob("*.json")
    seen = json.loads(record.read_text())
    assert seen["problems"] == []
    assert code == 0
