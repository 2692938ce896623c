"""A small directory of recipes, and edits of it."""

from __future__ import annotations

from pathlib import Path

FAMILY = """\
schema = 1
[family]
name = "acme"
title = "Acme"
about = "Screws"
group = "Acme"
files = ["libacme*.so.3*"]
licence = "mit"
[[family.package]]
name = "acme-cu12"
cuda = 12
sonames = ["libacme.so.3"]
[[component]]
name = "core"
about = "The core"
files = ["libacme.so.3*"]
serves = ["*"]
need = "required"
without = "Nothing starts"
loaded = [{ by = "program", how = "needed" }]
evidence = "readelf"
[[component]]
name = "train"
about = "Training"
files = ["libacme_train.so.3*"]
serves = ["rnn", "gemm"]
need = "required"
without = "No training"
symbols = ["acmeTrain*"]
since = "3.1"
loaded = [{ by = "core", how = "dlopen", names = ["libacme_train.so.3"], serves = ["rnn"] }]
evidence = "strings"
"""

MODEL = """\
schema = 1
[model]
name = "screws"
title = "Screw finder"
about = "Finds screws."
includes = ["mlp"]
features = ["convolution"]
"""

FRAMEWORK = """\
schema = 1
[framework]
name = "acmeworks"
title = "Acme Works"
about = "A framework"
[cpu]
bytes = 12
counts = "all"
source = "a note"
date = "2026-06"
[[cpu.part]]
title = "core"
bytes = 12
"""

FILES = {
    "libraries/acme.toml": FAMILY,
    "models/screws.toml": MODEL,
    "frameworks/acmeworks.toml": FRAMEWORK,
}


def write(directory: Path, files: dict[str, str]) -> Path:
    """Write the files, and return the directory."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return directory


def edited(text: str, old: str, new: str) -> str:
    """``text`` with the one occurrence of ``old`` replaced."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times"
    return text.replace(old, new)
