"""The examples and their bundles on a real GPU. Without one nothing is checked, and nothing passes."""

from __future__ import annotations

import json
from pathlib import Path

import device
import pytest
import run

pytestmark = pytest.mark.real


def test_bundles_do_on_a_gpu_what_their_originals_do(tmp_path: Path) -> None:
    found = device.find()
    if isinstance(found, str):
        # Not conftest's `absent`: no GPU is something that even the machine with every peer lacks.
        pytest.skip(f"no GPU: {found}")
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
