"""The command line as users call it: the ``dpack`` program in a process of its own, on small real ELF files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from builders.commands import Dpack, Result, cnn, compiler, cuda, dpack, plain, rnn

__all__ = ["cnn", "compiler", "cuda", "dpack", "plain", "rnn"]


@pytest.fixture
def unprivileged(dpack: Dpack, peer: Callable[[str], str]) -> Callable[..., Result]:
    """dpack without the rights of root, which permission bits do not hold back."""
    sandbox = [peer("bwrap"), "--unshare-user", "--cap-drop", "ALL", "--dev-bind", "/", "/"]

    def run(*arguments: str | Path) -> Result:
        command = [*sandbox, *dpack.command(*arguments)]
        done = subprocess.run(
            command, cwd=dpack.cwd, env=dpack.environment, capture_output=True, text=True, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run
