"""The JSON Schema (draft 2020-12) that every ``dpack.json`` obeys."""

from __future__ import annotations

import json
from pathlib import Path

import packager.account

PATH = Path(packager.account.__file__).with_name("manifest.schema.json")


def schema():
    return json.loads(PATH.read_text(encoding="utf-8"))
