"""Registries for tests: docker-registry where it is installed, and one of our own that can break."""

from __future__ import annotations

import os

import pytest
from builders.docker_registry import DockerRegistry
from builders.oracle import require
from fake_registry import QUICK, FakeRegistry

from packager.registry import Access


@pytest.fixture(autouse=True)
def nobody(monkeypatch, tmp_path):
    """Neither the credentials nor the proxies of whoever runs the tests."""
    for name in [*os.environ]:
        if name.lower().endswith("_proxy") or name in {
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "REGISTRY_AUTH_FILE",
            "XDG_RUNTIME_DIR",
        }:
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("DOCKER_CONFIG", str(home / ".docker"))
    return home


@pytest.fixture
def registry():
    with FakeRegistry().serving() as served:
        yield served


@pytest.fixture
def access(registry):
    """Access to that registry, in chunks of 1000 bytes."""
    return Access(plain_http=frozenset({registry.host}), patience=QUICK, chunk=1000)


@pytest.fixture
def docker_registry(tmp_path):
    with DockerRegistry(require("docker-registry"), tmp_path / "registry") as served:
        yield served
