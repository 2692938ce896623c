"""Images at work: run by podman, or unpacked by umoci and run in a namespace with nothing else in it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.layouts import told
from builders.oracle import missing, require

_LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
"""podman asks for more than a container that runs the tests may have."""

_ONE_CGROUP = """
umount --recursive /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
exec "$@"
"""
"""crun wants one hierarchy of control groups: in a mount namespace, where the machine has the old ones, too."""

_NOT_STARTED = (125, 126)
"""podman's own exit codes: it failed itself, or its runtime could not start the command."""


def skopeo(*arguments: str | Path) -> str:
    """What a command of skopeo prints."""
    command = [require("skopeo"), "--insecure-policy", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def podman_run(archive: Path, image: str) -> str:
    """Load an archive and run the image's entrypoint; what that prints. podman itself may be kept from it here."""
    with tempfile.TemporaryDirectory() as short:  # podman's runroot has at most 50 characters
        podman = [require("podman"), "--root", f"{short}/r", "--runroot", short, "--storage-driver", "vfs"]
        loaded = _run(*podman, "load", "--input", str(archive))
        if loaded.returncode:
            missing(f"podman loads nothing here: {loaded.stderr}")
        assert f"Loaded image: {image}" in loaded.stdout
        run = [*podman, "--cgroup-manager=cgroupfs", "run", "--rm", "--network=none"]
        whole = _run(*run, image)
        if whole.returncode in _NOT_STARTED:
            limited = [*run, "--cgroups=disabled", *_LIMITS, image]
            whole = _run("unshare", "--mount", "sh", "-e", "-c", _ONE_CGROUP, "sh", *limited)
        if whole.returncode in _NOT_STARTED or "unshare failed" in whole.stderr:
            missing(f"podman runs nothing here: {whole.stderr}")
        assert whole.returncode == 0, whole.stdout + whole.stderr
        return whole.stdout


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An image that umoci unpacked: its root, and the runtime configuration that umoci made of its config."""

    root: Path
    runtime: dict[str, Any]

    @property
    def tree(self) -> dict[str, str]:
        """Every path, in the words of :func:`builders.layouts.told`."""
        found = {}
        for path in self.root.rglob("*"):
            status = path.lstat()
            link = str(path.readlink()) if path.is_symlink() else ""
            content = path.read_bytes() if path.is_file() and not link else b""
            name = path.relative_to(self.root).as_posix()
            found[name] = told(status.st_mode & 0o7777, content, link, directory=path.is_dir() and not link)
        return found

    def run(self, **environment: str) -> str:
        """What the entrypoint prints when it runs with the image's root and environment, and nothing else."""
        process = self.runtime["process"]
        pairs = [pair.partition("=") for pair in process["env"]]
        sets = {name: value for name, _, value in pairs} | environment
        (self.root / "proc").mkdir(exist_ok=True)
        command = [require("bwrap"), "--unshare-all", "--clearenv", "--ro-bind", str(self.root), "/"]
        command += ["--proc", "/proc", "--chdir", process["cwd"]]
        for name, value in sets.items():
            command += ["--setenv", name, value]
        done = _run(*command, *process["args"])
        if done.stderr.startswith("bwrap: "):
            missing(f"bwrap does not work here: {done.stderr}")
        assert done.returncode == 0, done.stderr
        return done.stdout


def umoci(image: str, folder: Path) -> Unpacked:
    """Unpack ``image`` ("DIR:TAG", with gzip layers or none compressed) with umoci."""
    rootless = [] if os.geteuid() == 0 else ["--rootless"]
    done = _run(require("umoci"), "unpack", *rootless, "--image", image, str(folder))
    assert done.returncode == 0, done.stderr
    return Unpacked(folder / "rootfs", json.loads((folder / "config.json").read_text()))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
