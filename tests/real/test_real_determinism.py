"""Same input, same bytes: the CPU example, bundled in surroundings that differ in everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DPACK = Path(sys.executable).with_name("dpack")
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="session")
def program(peer: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/cpu, built."""
    peer("g++")
    folder = tmp_path_factory.mktemp("cpu")
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    command = [peer("make"), "--no-print-directory", "-C", str(EXAMPLES), "cpu", f"BUILD={folder}"]
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return folder / "cpu"


def surroundings(
    directory: Path, program: Path, *, second: bool
) -> tuple[Path, list[str], dict[str, str], int]:
    """Where the program lies, what runs before dpack, the environment and the umask."""
    place = directory / ("far/away/build dir" if second else "a")
    place.mkdir(parents=True)
    copy = place / "cpu"
    copy.write_bytes(program.read_bytes())
    copy.chmod(0o700 if second else 0o755)
    os.utime(copy, (10**9, 10**9) if second else None)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place),
        "USER": "somebody" if second else "root",
        "TZ": "Asia/Kathmandu" if second else "UTC",
        "LC_ALL": "C" if second else "C.UTF-8",
        "PYTHONHASHSEED": "7" if second else "1",
        "TMPDIR": str(place),
    }
    before = ["taskset", "-c", str(min(os.sched_getaffinity(0)))] if second else []
    return copy, before, environment, 0o077 if second else 0o002


@pytest.mark.parametrize("form", ["tar", "tar.gz", "tar.zst", "dir"])
def test_the_surroundings_do_not_change_a_byte(form, program, tmp_path):
    written = []
    for second in (False, True):
        copy, before, environment, umask = surroundings(tmp_path, program, second=second)
        named, cwd = (copy, "/") if second else ("cpu", copy.parent)
        command = [*before, DPACK, "bundle", named, "--format", form, "-o", copy.parent / f"cpu.{form}"]
        subprocess.run(command, cwd=cwd, env=environment, umask=umask, capture_output=True, check=True)
        written.append(copy.parent / f"cpu.{form}")
    assert _content(written[0]) == _content(written[1])


def _content(path: Path) -> object:
    """A file's bytes; of a directory every path with mode, time and bytes."""
    if path.is_file():
        return path.read_bytes()
    return [
        (
            str(each.relative_to(path)),
            each.stat().st_mode,
            each.stat().st_mtime,
            each.is_file() and each.read_bytes(),
        )
        for each in sorted(path.rglob("*"))
    ]


def test_source_date_epoch_is_the_time_of_every_file(program, tmp_path):
    for epoch in ("1000000000", "1700000000"):
        environment = {"PATH": os.environ["PATH"], "SOURCE_DATE_EPOCH": epoch}
        subprocess.run(
            [DPACK, "bundle", program, "-o", f"{epoch}/"],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
        )
        times = {int(path.stat().st_mtime) for path in (tmp_path / epoch).rglob("*")}
        assert times == {int(epoch)}


def test_the_bundled_program_does_what_the_program_does(program, tmp_path):
    subprocess.run([DPACK, "bundle", program, "-o", "out/"], cwd=tmp_path, check=True, capture_output=True)
    first, second = (
        subprocess.run([path], cwd="/", env={}, capture_output=True, text=True, check=True).stdout
        for path in (program, tmp_path / "out/bin/cpu")
    )
    assert _without_speed(first) == _without_speed(second)
    assert "accuracy" in first


def _without_speed(output: str) -> list[str]:
    """The lines without what depends on the clock."""
    return [
        line.partition(" samples/s")[0].rpartition("  ")[0] if "samples/s" in line else line
        for line in output.splitlines()
    ]
