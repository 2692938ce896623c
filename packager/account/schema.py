"""The JSON Schema of the manifest, as a value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every ``dpack.json`` of this version obeys."""
    loaded: dict[str, Any] = json.loads(schema_text())
    return loaded


def schema_text() -> str:
    """The same as it is published, character for character."""
    return Path(__file__).with_name("manifest.schema.json").read_text(encoding="utf-8")
