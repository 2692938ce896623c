"""Users of images: small programs, bases made of this machine's packages, and a registry of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.base_images import base_layout, debian
from builders.commands import cnn, compiler, cuda, dpack, plain
from builders.docker_registry import DockerRegistry
from builders.fake_cuda import compile_greeter
from builders.oracle import require

__all__ = ["cnn", "compiler", "cuda", "dpack", "plain"]


@pytest.fixture(scope="session")
def greeter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C++ program, which needs the C++ runtime beside the C library."""
    return compile_greeter(tmp_path_factory.mktemp("greeter") / "greet", "the first")


@pytest.fixture(scope="session")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout: a base with the C library, and without the C++ runtime."""
    return base_layout(debian("libc6")).write(tmp_path_factory.mktemp("slim"))


@pytest.fixture(scope="session")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A layout: a base with both, in a layer each."""
    return base_layout(debian("libc6"), debian("libstdc++6", "libgcc-s1")).write(
        tmp_path_factory.mktemp("full")
    )


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[DockerRegistry]:
    """A registry on a port of the loopback device, without TLS."""
    with DockerRegistry(require("docker-registry"), tmp_path / "registry") as running:
        yield running
