"""The CNN's bundle on NVIDIA's own libraries: checked with tar and sha256sum, and run where nothing else is."""

from __future__ import annotations

import base64
import csv
import json
import platform
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sandbox import DRIVER, GLIBC, Sandbox, compile_asker, compile_driver, host_glibc, needing_driver

from packager.emit import EPOCH


def sha256sum(directory: Path) -> dict[str, str]:
    """What the sha256sum program says of every file below ``directory``."""
    files = sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    told = subprocess.run(
        ["sha256sum", *files], cwd=directory, capture_output=True, text=True, check=True
    ).stdout
    return {line[66:]: line[:64] for line in told.splitlines()}


def test_the_manifest_accounts_for_every_file_of_the_archive(unpacked):
    """dpack.json came out of the archive; the sums and the sizes come from other programs."""
    manifest = json.loads((unpacked.directory / "dpack.json").read_text())
    rows = {row["path"]: row for row in manifest["files"]}
    sums = sha256sum(unpacked.directory)
    assert sums.keys() == rows.keys() | {"dpack.json"}
    for path, row in rows.items():
        assert (unpacked.directory / path).stat().st_size == row["bytes"], path
        assert sums[path] == row["sha256"], path


def test_vendor_files_are_byte_for_byte_those_of_the_wheels(case, unpacked):
    """RECORD of a wheel holds each file's sha256 (PEP 376): the vendor's own word for it."""
    records = {}
    for each in case.distributions:
        for record in each.root.glob("*.dist-info/RECORD"):
            for path, digest, _ in csv.reader(record.read_text().splitlines()):
                if digest:
                    raw = base64.urlsafe_b64decode(digest.removeprefix("sha256=") + "=")
                    records[path.rpartition("/")[2]] = raw.hex()
    sums = sha256sum(unpacked.directory / "lib")
    vendors = [name for name in sums if name in case.libraries]
    assert len(vendors) >= 12
    assert {name: sums[name] for name in vendors} == {name: records[name] for name in vendors}


def test_what_json_says_is_what_the_archive_holds(unpacked):
    inside = json.loads((unpacked.directory / "dpack.json").read_text())
    told = unpacked.manifest
    assert told["files"] == inside["files"]
    assert told["dropped"] == inside["dropped"]
    total = subprocess.run(["sha256sum", unpacked.archive], capture_output=True, text=True, check=True).stdout
    assert total[:64] in json.dumps(told), "the archive's own digest is told where it can be"


def test_the_archive_tells_nothing_of_this_machine(unpacked, case):
    listing = subprocess.run(
        ["tar", "--numeric-owner", "--full-time", "--utc", "-I", "zstd -d", "-tvf", unpacked.archive],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    names = [line.split()[5].rstrip("/") for line in listing]
    last = ("mnist/bin", "mnist/bin/mnist", "mnist/dpack.json")
    assert names == [*sorted((name for name in names if name not in last), key=str.encode), *last]
    for line in listing:
        mode, owner, _, day, hour, name = line.split(maxsplit=5)
        assert owner == "0/0"
        assert (day, hour) == ("1980-01-01", "00:00:00"), EPOCH
        assert mode in {"drwxr-xr-x", "-rwxr-xr-x", "-rw-r--r--"}
        assert name.startswith("mnist/")
    text = (unpacked.directory / "dpack.json").read_text()
    for private in (str(case.directory), str(case.distributions[0].root)):
        assert private not in text


def test_licence_texts_come_along(unpacked):
    texts = [path for path in (unpacked.directory / "share").rglob("*") if path.is_file()]
    assert any("NVIDIA" in path.read_text(errors="replace") for path in texts)


def test_whatever_a_library_links_is_in_the_bundle_or_the_hosts(unpacked):
    """By readelf, so that it holds for another machine's bundle too, whose loader cannot run here."""
    files = [unpacked.directory / "bin/mnist", *sorted((unpacked.directory / "lib").iterdir())]
    there = {path.name for path in files} | {*GLIBC, DRIVER, "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
    for path in files:
        command = ["readelf", "--dynamic", "--wide", path]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        needed = re.findall(r"\(NEEDED\) +Shared library: \[(.+)\]", told)
        assert set(needed) <= there, path.name


@pytest.fixture(scope="session")
def sandbox(case, unpacked, peer: Callable[[str], str]) -> Sandbox:
    """The unpacked bundle in an empty mount namespace; only where this machine is the target's kind."""
    if case.machine != platform.machine():
        pytest.skip(f"made for {case.machine}: its files were read, its loader cannot run here")
    asker = compile_asker(case.directory / "ask", case.compiler)
    program = unpacked.directory / "bin/mnist"
    return Sandbox(peer("bwrap"), unpacked.directory / "lib", program, asker, host_glibc(case.compiler))


def test_the_real_loader_loads_every_library_where_nothing_else_is(sandbox, unpacked):
    paths = sorted((unpacked.directory / "lib").iterdir())
    needing = needing_driver(paths)
    answers = sandbox.ask([path.name for path in paths])
    assert {name for name, answer in answers.items() if answer != "ok"} == set(needing)
    assert all("libcuda.so.1: cannot open" in answers[name] for name in needing)


def test_with_a_driver_every_library_loads(sandbox, unpacked, case):
    """Whatever else the libraries that link the driver need is in the bundle: a stand-in driver is enough."""
    paths = sorted((unpacked.directory / "lib").iterdir())
    driver = compile_driver(
        case.directory / "libcuda.so.1", case.compiler, list(needing_driver(paths).values())
    )
    answers = replace(sandbox, driver=driver).ask([path.name for path in paths])
    assert answers == dict.fromkeys((path.name for path in paths), "ok")


def test_the_namespace_holds_nothing_else(sandbox, case):
    """The control: without the bundle's lib/ even the C++ runtime of this machine is out of reach."""
    empty = case.directory / "empty"
    empty.mkdir()
    bare = replace(sandbox, lib=empty)
    answers = bare.ask(["libstdc++.so.6", "libz.so.1", "libcudnn.so.9", "libm.so.6"])
    assert answers.pop("libm.so.6") == "ok"
    assert all("cannot open shared object file" in answer for answer in answers.values()), answers


def test_the_libraries_in_the_bundle_tell_the_versions_of_the_wheels(sandbox, case):
    major, minor, patch = case.version("cudnn")[:3]
    cublas, runtime, nvrtc = (case.version(part)[:3] for part in ("cublas", "cuda-runtime", "cuda-nvrtc"))
    cuda = case.cuda
    questions = {
        "libcudnn.so.9:cudnnGetVersion": str(major * 10_000 + minor * 100 + patch),
        f"libcublasLt.so.{cuda}:cublasLtGetVersion": str(cublas[0] * 10_000 + cublas[1] * 100 + cublas[2]),
        f"libcudart.so.{cuda}:cudaRuntimeGetVersion": f"0 {runtime[0] * 1000 + runtime[1] * 10} 0",
        f"libnvrtc.so.{cuda}:nvrtcVersion": f"0 {nvrtc[0]} {nvrtc[1]}",
    }
    assert sandbox.ask(list(questions)) == questions


@pytest.mark.parametrize("cwd", ["/", "/tmp", "/bundle/lib"])
def test_the_bundled_program_starts_from_any_directory_with_an_empty_environment(cwd, sandbox, case):
    """Its own version checks make the shim open ops and cnn: the parts that no DT_NEEDED names are found too."""
    major, minor, patch = case.version("cudnn")[:3]
    done = sandbox.run("/bundle/bin/mnist", cwd=cwd)
    assert (done.returncode, done.stdout) == (0, f"{major * 10_000 + minor * 100 + patch} 0 0\n"), done.stderr


def test_the_dropped_part_is_truly_absent(sandbox):
    """The other control: what was left out cannot be called, so the tests above did not find it elsewhere."""
    answers = sandbox.ask(["libcudnn.so.9:cudnnAdvVersionCheck", "libcudnn.so.9:cudnnCnnVersionCheck"])
    assert answers["libcudnn.so.9:cudnnCnnVersionCheck"] == "0"
    assert answers["libcudnn.so.9:cudnnAdvVersionCheck"] != "0"
