from __future__ import annotations

import base64
import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from local_index import LocalIndex, wheel_file

from packager.errors import DpackError
from packager.source import fetch

FILE = wheel_file()
NOISE = 400_000
NEED = "nvidia-demo-cu12==1.0"

FETCH = """
import sys
from pathlib import Path
from packager.source import fetch
for one in fetch(sys.argv[2:], machine="x86_64", cache=Path(sys.argv[1])):
    print(one.sha256)
"""


class Recorder:
    """A Progress that keeps what it is told."""

    def __init__(self):
        self.lines = []

    def start(self, label, total):
        self.lines.append(("start", label, total))
        return self

    def advance(self, n):
        self.lines.append(("advance", n))

    def finish(self):
        self.lines.append(("finish",))

    @property
    def received(self):
        return sum(line[1] for line in self.lines if line[0] == "advance")


def get(*requirements, **options):
    return fetch(requirements or (NEED,), machine="x86_64", **options)


def part(cache):
    return cache / "downloads" / f"{FILE}.part"


def leave_part(cache, content):
    part(cache).parent.mkdir(parents=True)
    part(cache).write_bytes(content)


def until(condition):
    """Wait for something that another process does; a minute is only for machines that hang."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.usefixtures("no_pip")
@pytest.mark.parametrize(("etag", "condition"), [(True, '"'), (False, "")])
def test_a_cut_connection_is_resumed_where_it_broke(index, etag, condition):
    content = index.add(FILE, noise=NOISE)
    index.cuts, index.etag = [200_000, 100_000], etag
    progress = Recorder()
    (got,) = get(progress=progress)
    assert got.sha256 == hashlib.sha256(content).hexdigest()
    ranges = [entry[1] for entry in index.requests_of(".whl")]
    assert ranges[0] == ""
    assert 100_000 < int(ranges[1].removeprefix("bytes=").rstrip("-")) <= 200_000
    assert len(ranges) == 3
    assert all(entry[2].startswith(condition) for entry in index.requests_of(".whl")[1:])
    assert progress.lines[0] == ("start", FILE, len(content))
    assert progress.lines[-1] == ("finish",)
    assert progress.received == len(content)


@pytest.mark.usefixtures("no_pip")
@pytest.mark.parametrize(
    ("kept", "ignore_range", "ranges"),
    [
        (0.5, False, ["half"]),  # resumed
        (0.5, True, ["half"]),  # the server sends all of it: start over within the same answer
        (1.0, False, []),  # nothing is missing
        (1.5, False, ["beyond", ""]),  # 416
    ],
)
def test_an_older_part_is_built_on(index, cache, kept, ignore_range, ranges):
    content = index.add(FILE, noise=NOISE)
    index.ignore_range = ignore_range
    there = (content + bytes(len(content)))[: int(len(content) * kept)]
    leave_part(cache, there)
    progress = Recorder()
    (got,) = get(progress=progress)
    assert got.sha256 == hashlib.sha256(content).hexdigest()
    names = {f"bytes={len(content) // 2}-": "half", f"bytes={int(len(content) * 1.5)}-": "beyond", "": ""}
    assert [names[entry[1]] for entry in index.requests_of(".whl")] == ranges
    assert progress.received == (len(content) if ranges else 0)
    assert not part(cache).exists()


@pytest.mark.usefixtures("no_pip")
def test_another_range_than_the_one_asked_for_is_not_appended(index, cache):
    content = index.add(FILE, noise=NOISE)
    leave_part(cache, content[:1000])
    index.wrong_range = True
    progress = Recorder()
    (got,) = get(progress=progress)
    assert got.sha256 == hashlib.sha256(content).hexdigest()
    assert [entry[1] for entry in index.requests_of(".whl")] == ["bytes=1000-", ""]
    # One bar: had the wrong range been written, its bad hash would have led to a second download.
    assert [line[0] for line in progress.lines].count("start") == 1


@pytest.mark.usefixtures("no_pip")
def test_a_damaged_part_costs_one_more_download_and_no_error(index, cache):
    content = index.add(FILE, noise=NOISE)
    leave_part(cache, b"x" * 1000)
    (got,) = get()
    assert got.sha256 == hashlib.sha256(content).hexdigest()
    assert [entry[1] for entry in index.requests_of(".whl")] == ["bytes=1000-", ""]


@pytest.mark.usefixtures("no_pip")
def test_a_part_of_another_file_of_that_name_is_dropped(index, cache, monkeypatch):
    index.add(FILE, noise=NOISE)
    index.cuts = [200_000]
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(DpackError, match="cannot fetch"):
        get()
    assert part(cache).stat().st_size > 100_000
    index.add(FILE, noise=NOISE + 1)
    index.log.clear()
    get()
    assert [entry[1] for entry in index.requests_of(".whl")] == [""]


@pytest.mark.usefixtures("no_pip")
def test_a_connection_that_brings_nothing_is_given_up_and_the_part_kept(index, cache, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "1")
    index.add(FILE, noise=NOISE)
    index.cuts = [200_000, 0, 0, 0]
    with pytest.raises(DpackError, match="cannot fetch nvidia-demo-cu12==") as error:
        get()
    assert "--offline" in error.value.next
    assert part(cache).stat().st_size > 100_000
    index.cuts = []
    get()
    assert index.requests_of(".whl")[-1][1].startswith("bytes=")


@pytest.mark.usefixtures("no_pip")
def test_a_busy_server_is_asked_again_and_one_that_says_no_is_not(index):
    index.add(FILE)
    index.statuses = [403]
    with pytest.raises(DpackError, match="answers 403") as error:
        get()
    assert "credentials" in error.value.next
    index.statuses = [503]
    assert len(get()) == 1


@pytest.mark.usefixtures("no_pip")
def test_a_wrong_hash_is_an_error_and_the_file_is_removed(index, cache):
    content = index.add(FILE, sha256="0" * 64)
    with pytest.raises(DpackError, match=FILE) as error:
        get()
    text = "\n".join(error.value.lines())
    assert all(word in text for word in ("0" * 64, hashlib.sha256(content).hexdigest(), "next:"))
    assert list((cache / "downloads").iterdir()) == []
    assert len(index.requests_of(".whl")) == 1


@pytest.mark.usefixtures("no_pip")
@pytest.mark.parametrize("form", ["json", "html"])
def test_a_file_without_a_hash_is_refused(index, form):
    index.form = form
    index.add(FILE, sha256=None)
    with pytest.raises(DpackError, match="states no sha256"):
        get()
    assert index.requests_of(".whl") == []


@pytest.mark.usefixtures("no_pip")
def test_credentials_reach_the_server_and_no_message(index, monkeypatch):
    index.base = index.url.removesuffix("/simple")
    index.add(FILE, sha256="0" * 64)
    monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", "//user:secret@"))
    with pytest.raises(DpackError) as error:
        get()
    expected = f"Basic {base64.b64encode(b'user:secret').decode()}"
    assert index.users == {"/simple/nvidia-demo-cu12/": expected, f"/files/{FILE}": expected}
    assert "secret" not in "\n".join(error.value.lines())


@pytest.mark.usefixtures("no_pip")
def test_a_full_disk_is_told_with_the_bytes_needed(index, cache):
    content = index.add(FILE, noise=NOISE)
    part(cache).parent.mkdir(parents=True)
    part(cache).symlink_to("/dev/full")
    with pytest.raises(DpackError, match="no space left") as error:
        get()
    assert str(cache) in str(error.value)
    assert f"{len(content):,} bytes" in str(error.value)
    part(cache).unlink()
    index.claimed_length = 1 << 60
    with pytest.raises(DpackError, match=f"{1 << 60:,} bytes"):
        get()
    assert part(cache).stat().st_size == 0


def test_two_processes_download_once(cache):
    with LocalIndex() as index:
        index.add(FILE, noise=NOISE)
        index.gate = threading.Event()
        first = start(cache, index, NEED)
        until(lambda: index.requests_of(".whl"))
        second = start(cache, index, NEED)
        until(lambda: holds_open(second.pid, f"{FILE.removesuffix('.whl')}.lock"))
        index.gate.set()
        digests = {process.communicate()[0] for process in (first, second)}
        assert len(index.requests_of(".whl")) == 1
    assert digests == {f"{index.files[FILE].sha256}\n".encode()}


@pytest.mark.parametrize("needs", [(NEED,), (NEED, "nvidia-other-cu12==1.0")])
def test_an_interrupt_leaves_a_part_that_is_resumed(cache, needs):
    other = wheel_file("nvidia-other-cu12")
    with LocalIndex() as index:
        index.add(FILE, noise=NOISE)
        index.add(other, noise=NOISE)
        index.gate = threading.Event()
        process = start(cache, index, *needs)
        until(lambda: part(cache).exists() and part(cache).stat().st_size > 100_000)
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == -signal.SIGINT
        assert list((cache / "wheels").glob("*")) == []
        left = {path.name for path in (cache / "downloads").iterdir()}
        files = {FILE, other} if len(needs) > 1 else {FILE}
        assert left <= {f"{file}.part{note}" for file in files for note in ("", ".json")}
        size = part(cache).stat().st_size
        index.gate.set()
        index.log.clear()
        process = start(cache, index, *needs)
        assert process.communicate()[0].splitlines()[0].decode() == index.files[FILE].sha256
        assert [entry[1] for entry in index.requests_of(FILE)] == [f"bytes={size}-"]


def start(cache, index, *needs):
    environment = {**os.environ, "PIP_INDEX_URL": index.url}
    command = [sys.executable, "-c", FETCH, str(cache), *needs]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def holds_open(pid, name):
    try:
        return any(link.readlink().name == name for link in Path(f"/proc/{pid}/fd").iterdir())
    except FileNotFoundError:
        return False
