"""Nothing partial is ever left, and nothing of the user's is ever lost."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.oracle import missing, require

from packager.account.manifest import SCHEMA_ID
from packager.emit import Entry, Format, Item, write
from packager.errors import DpackError
from packager.place import LAYOUT_MARK

ITEMS = [Item("bin/app", 0o755, b"app")]


def manifest(entries: tuple[Entry, ...]) -> Item:
    """A last item that names what came before it."""
    files = [{"path": entry.path} for entry in entries if not entry.link]
    links = [{"path": entry.path} for entry in entries if entry.link]
    told = {"$schema": SCHEMA_ID, "files": files, "links": links}
    return Item("dpack.json", 0o644, json.dumps(told).encode())


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def write_here(output: Path, form: Format = Format.TAR, *, force: bool = False) -> None:
    write(ITEMS, manifest, output, format=form, force=force)


@pytest.mark.parametrize("form", list(Format))
def test_output_that_exists_is_kept_without_force(tmp_path, form):
    output = tmp_path / "out"
    write_here(output, form)
    before = output.stat().st_ino
    with pytest.raises(DpackError, match="out: it exists already") as caught:
        write_here(output, form)
    assert (caught.value.exit, "--force" in caught.value.next) == (2, True)
    assert output.stat().st_ino == before


@pytest.mark.parametrize("new", [Format.DIR, Format.TAR])
@pytest.mark.parametrize("old", ["file", "bundle", "empty directory", "symlink", "dangling symlink"])
def test_force_replaces(tmp_path, old, new):
    output, other = tmp_path / "out", tmp_path / "other"
    other.mkdir()
    (other / "precious").write_text("mine")
    match old:
        case "file":
            output.write_text("old")
        case "bundle":
            write(
                [Item("bin/old", 0o755, b""), Item("lib/old", 0o777, b"", "so")],
                manifest,
                output,
                format=Format.DIR,
            )
        case "empty directory":
            output.mkdir()
        case "symlink":
            output.symlink_to(other)
        case "dangling symlink":
            output.symlink_to(tmp_path / "nowhere")
    write_here(output, new, force=True)
    assert names(tmp_path) == ["other", "out"]
    assert names(other) == ["precious"]
    assert not output.is_symlink()
    assert names(output) == ["bin", "dpack.json"] if new is Format.DIR else output.stat().st_size == 10_240


OURS = json.dumps({"$schema": SCHEMA_ID, "files": [{"path": "bin/app"}], "links": [{"path": "lib/b"}]})
IMAGE = json.dumps({"manifests": [], "annotations": {LAYOUT_MARK: "1"}})
STRANGERS = {
    "no manifest": ({"thesis.tex": ""}, "not a bundle"),
    "somebody else's dpack.json": ({"dpack.json": "{}"}, "not a bundle"),
    "one that is no JSON": ({"dpack.json": "{", "index.json": "\xff"}, "not a bundle"),
    "a list": ({"dpack.json": "[]"}, "not a bundle"),
    "half a manifest": ({"dpack.json": json.dumps({"$schema": SCHEMA_ID})}, "not a bundle"),
    "a stranger": ({"dpack.json": OURS, "bin/app": "", "keep.me": "mine"}, "it holds keep.me, which dpack"),
    "a stranger below": ({"dpack.json": OURS, "bin/app": "", "bin/b/c": ""}, "it holds bin/b/c, which"),
    "a foreign link": ({"dpack.json": OURS, "lib/b": None, "lib/c": None}, "it holds lib/c, which"),
    "a stranger in an image": (
        {"index.json": IMAGE, "oci-layout": "", "blobs/mine": ""},
        "it holds blobs/mine",
    ),
    "somebody else's image": ({"index.json": "{}", "oci-layout": ""}, "not a bundle"),
}


@pytest.mark.parametrize("form", [Format.DIR, Format.TAR])
@pytest.mark.parametrize("name", STRANGERS)
def test_what_dpack_did_not_write_is_never_removed(tmp_path, form, name):
    output = tmp_path / "home"
    files, message = STRANGERS[name]
    for path, content in files.items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            (output / path).symlink_to(tmp_path)
        else:
            (output / path).write_text(content, "latin-1")
    with pytest.raises(DpackError, match=message) as caught:
        write_here(output, form, force=True)
    assert (caught.value.exit, "-o" in caught.value.next) == (2, True)
    assert all(os.path.lexists(output / path) for path in files)


@pytest.mark.parametrize("form", [Format.DIR, Format.TAR])
def test_an_image_is_replaced(tmp_path, form):
    output = tmp_path / "out"
    (output / "blobs/sha256").mkdir(parents=True)
    for path, content in {"index.json": IMAGE, "oci-layout": "", f"blobs/sha256/{'a' * 64}": ""}.items():
        (output / path).write_text(content)
    write_here(output, form, force=True)
    assert names(tmp_path) == ["out"]


def test_a_name_that_is_too_long_is_refused_before_any_work(tmp_path):
    for path in ("n" * 300, f"{'n' * 300}/out"):
        with pytest.raises(DpackError, match="cannot write") as caught:
            write_here(tmp_path / path)
        assert caught.value.exit == 2
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("no/such/out.tar", "there is no directory .*no/such"),
        ("file/out.tar", "file is not a directory"),
        ("..", "no name of its own"),
        ("pipe", "neither a file nor a directory"),
    ],
)
def test_places_where_nothing_can_be_written(tmp_path, output, message):
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DpackError, match=message) as caught:
        write_here(tmp_path / output, force=True)
    assert caught.value.exit == 2
    assert names(tmp_path) == ["file", "pipe"]


def test_a_directory_without_write_permission_is_named(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    if os.access(closed, os.W_OK):
        command = [*without_capabilities(), sys.executable, "-c", WRITE, str(closed / "a.tar"), "10", "0"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
        if "DpackError" not in result.stderr:
            missing(f"cannot give up root's rights: {result.stderr[-200:]}")
        message = result.stderr
    else:
        with pytest.raises(DpackError) as caught:
            write_here(closed / "a.tar")
        message = str(caught.value)
    assert f"no permission to write in {closed}" in message
    assert names(closed) == []


def without_capabilities() -> list[str]:
    """A command prefix that gives up root's right to write everywhere, and nothing else."""
    return [require("setpriv"), "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


WRITE = """
import os, signal, sys
from pathlib import Path
from packager.emit import Format, Item, write
output, size, stop = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
output_format = Format(sys.argv[4]) if len(sys.argv) > 4 else Format.TAR
done = 0
def progress(count):
    global done
    done += count
    if stop and done >= stop:
        os.kill(os.getpid(), signal.SIGINT)
items = [Item("lib/a", 0o755, os.urandom(size)), Item("lib/b", 0o755, os.urandom(size))]
last = lambda entries: Item("dpack.json", 0o644, b"{}")
write(items, last, output, format=output_format, force=True, progress=progress)
"""


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("old", [False, True])
def test_an_interrupt_leaves_nothing_but_the_old_output(tmp_path, form, old):
    output = tmp_path / "out"
    if old:
        output.write_text("old")
    command = [sys.executable, "-c", WRITE, str(output), "12000000", "16000000", form]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in result.stderr
    assert result.returncode in (-signal.SIGINT, 130)
    assert names(tmp_path) == (["out"] if old else [])
    assert not old or output.read_text() == "old"


@pytest.mark.parametrize("form", list(Format))
def test_a_file_size_limit_is_an_error_that_names_the_place(tmp_path, form):
    """RLIMIT_FSIZE stands in for a full disk where no file system can be mounted."""
    data = os.urandom(3_000_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        with pytest.raises(DpackError, match=r"File too large in .*3,000,\d{3} bytes") as caught:
            write([Item("lib/a", 0o755, data)], manifest, tmp_path / "out", format=form)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert str(tmp_path) in str(caught.value)
    assert names(tmp_path) == []


@pytest.mark.parametrize("form", list(Format))
def test_a_full_disk_names_the_place_and_the_bytes(tmp_path, form):
    unshare = [require("unshare"), "--user", "--map-root-user", "--mount"]
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2M", "tmpfs", str(disk)]
    probe = subprocess.run([*unshare, *mount], capture_output=True, text=True, check=False)
    if probe.returncode:
        missing(f"no mount namespace here: {probe.stderr}")
    script = '"$@" && "$PYTHON" -c "$WRITE" "$DISK/out" 1500000 0 "$FORMAT" 2>&1; ls -A "$DISK"'
    environment = {
        **os.environ,
        "PYTHON": sys.executable,
        "WRITE": WRITE,
        "DISK": str(disk),
        "FORMAT": form,
    }
    command = [*unshare, "sh", "-c", script, "sh", *mount]
    text = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    *_, message = text.splitlines()
    assert f"cannot write {disk}/out: No space left on device in {disk}: " in message
    assert "it takes up to 3,000,000 bytes, 2,097,152 bytes are free there" in message


def test_the_swap_of_directories_is_undone_when_it_fails(tmp_path, monkeypatch):
    output = tmp_path / "out"
    write_here(output, Format.DIR)
    before = output.stat().st_ino
    rename, calls = Path.rename, []

    def second_fails(path: Path, target: Path) -> Path:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(KeyboardInterrupt):
        write_here(output, Format.DIR, force=True)
    assert names(tmp_path) == ["out"]
    assert output.stat().st_ino == before


@pytest.mark.parametrize("after", ["the second rename", "half of the old one"])
def test_an_interrupt_after_the_swap_leaves_nothing_of_the_old_one(tmp_path, monkeypatch, after):
    output = tmp_path / "out"
    write_here(output, Format.DIR)
    before = output.stat().st_ino
    rename, rmtree = Path.rename, shutil.rmtree

    def renamed(path: Path, target: Path) -> None:
        rename(path, target)
        if target == output:
            raise KeyboardInterrupt

    def removed(path: Path, **options: bool) -> None:
        if not options:
            (path / "dpack.json").unlink()
            raise KeyboardInterrupt
        rmtree(path, **options)

    if after == "the second rename":
        monkeypatch.setattr(Path, "rename", renamed)
    else:
        monkeypatch.setattr(shutil, "rmtree", removed)
    with pytest.raises(KeyboardInterrupt):
        write_here(output, Format.DIR, force=True)
    assert names(tmp_path) == ["out"]
    assert (names(output), output.stat().st_ino == before) == (["bin", "dpack.json"], False)


def test_an_old_bundle_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    output = tmp_path / "out"
    write_here(output, Format.DIR)

    def refuses(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path / "bin/app"))

    monkeypatch.setattr(shutil, "rmtree", refuses)
    with pytest.raises(DpackError, match=r"cannot remove all of the old .*out: Permission denied") as caught:
        write_here(output, Format.DIR, force=True)
    (aside,) = (path for path in tmp_path.iterdir() if path != output)
    assert f"remove {aside} yourself" in caught.value.next
    assert names(output) == ["bin", "dpack.json"]


def test_a_name_of_the_longest_length_can_be_written(tmp_path):
    write_here(tmp_path / ("n" * 251 + ".tar"))
    assert [len(name) for name in names(tmp_path)] == [255]


def test_an_archive_itself_obeys_the_umask(tmp_path):
    umask = os.umask(0o027)
    try:
        write_here(tmp_path / "a.tar")
    finally:
        os.umask(umask)
    assert (tmp_path / "a.tar").stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["a.tar"]
