from __future__ import annotations

import os

import pytest
from local_index import LocalIndex

from packager.source import pipconf


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """An empty cache, and none of the pip configuration or proxies of whoever runs the tests."""
    for name in os.environ:
        if name.startswith("PIP_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("DPACK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_pip(monkeypatch):
    """As where pip is not installed: only the PIP_* variables count, and no process is started to ask."""
    monkeypatch.setattr(pipconf.importlib.util, "find_spec", lambda _: None)


@pytest.fixture
def index(monkeypatch):
    with LocalIndex() as local:
        monkeypatch.setenv("PIP_INDEX_URL", local.url)
        yield local
