"""The sysroot: links that leave the root, directories outside it, and the kernel's own answer in a chroot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import table
from builders.elf import write_tree
from builders.oracle import missing
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.errors import DpackError
from packager.resolve.sysroot import Sysroot

LINKS = (
    ("an absolute link", "/usr/lib/libx.so", "/real/libx.so"),
    ("a link that climbs over the root", "/usr/lib/climbs.so", "/real/libx.so"),
    ("a linked directory", "/lib/libx.so", "/real/libx.so"),
    (".. after a linked directory", "/deep/../plain", "/one/plain"),
    (".. at the root", "/../../real/libx.so", "/real/libx.so"),
    ("a chain of links", "/chain", "/real/libx.so"),
    ("a slash at the end of a directory", "/real/", "/real"),
    ("slashes and dots", "//real/.//libx.so", "/real/libx.so"),
    ("a circle", "/circle", None),
    ("a circle of two", "/ping", None),
    ("a link to nothing", "/dangling", None),
    ("nothing", "/none/at/all", None),
    ("a file as a directory", "/real/libx.so/x", None),
    (".. after a file", "/real/libx.so/../libx.so", None),
    (". after a file", "/real/libx.so/.", None),
    ("a slash at the end of a file", "/real/libx.so/", None),
    ("the root", "/", "/"),
    ("a name longer than any file system takes", "/" + "x" * 5000, None),
    ("a zero byte", "/real/\0", None),
)

TREE = (
    ("/real/libx.so", b"x"),
    ("/one/two/x", b""),
    ("/one/plain", b"one"),
    ("/plain", b"root"),
    ("/deep", "/one/two"),
    ("/usr/lib/libx.so", "/real/libx.so"),
    ("/usr/lib/climbs.so", "../../../../../../../../real/libx.so"),
    ("/lib", "usr/lib"),
    ("/chain", "chain2"),
    ("/chain2", "/lib/libx.so"),
    ("/circle", "circle"),
    ("/ping", "pong"),
    ("/pong", "/ping"),
    ("/dangling", "/etc/passwd-that-is-not-here"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_tree(tmp_path / "root", TREE)
    return tmp_path / "root"


@table("path real", LINKS)
def test_links_are_resolved_inside_the_root(path, real, root):
    sysroot = Sysroot.at(root)
    assert sysroot.real(path) == real
    assert sysroot.host(path) == (None if real is None else f"{root}{real}")
    assert (sysroot.identity(path) is None) == (real is None)


# Those whose links stay where the tree stands.
RELATIVE = [
    row for row in LINKS if row[1].lstrip("/").startswith(("real", "circle", "dangling", "none", "x"))
]


@table("path real", RELATIVE)
def test_without_a_root_the_machine_answers(path, real, root):
    assert Sysroot.at("/").real(f"{root}{path}") == (None if real is None else f"{root}{real}")


def test_what_is_outside_the_root_is_never_seen(root, tmp_path):
    (tmp_path / "secret").write_bytes(b"outside")
    (root / "leak").symlink_to(tmp_path / "secret")
    (root / "climb").symlink_to("../secret")
    sysroot = Sysroot.at(root)
    assert sysroot.read("/leak") is None
    assert sysroot.read("/climb") is None
    assert sysroot.read("/../secret") is None


def test_a_directory_outside_the_root_keeps_its_path(root, tmp_path):
    write_tree(tmp_path / "build", [("/app", b"app"), ("/link", "app"), ("/into", "/real/libx.so")])
    build = f"{tmp_path}/build"
    sysroot = Sysroot.at(root, (build,))
    assert sysroot.host(f"{build}/link") == f"{build}/app"
    assert sysroot.inside(tmp_path / "build/app") == f"{build}/app"
    assert sysroot.names(build) == ("app", "into", "link")
    assert sysroot.host(f"{build}/into") == f"{root}/real/libx.so"
    assert sysroot.host("/real/libx.so") == f"{root}/real/libx.so"
    assert sysroot.host(f"{tmp_path}/root") is None


def test_questions_about_a_file_and_a_directory(root):
    os.mkfifo(root / "fifo")
    sysroot = Sysroot.at(root)
    table = {
        path: (sysroot.is_file(path), sysroot.is_directory(path))
        for path in ("/plain", "/lib", "/fifo", "/no")
    }
    assert table == {
        "/plain": (True, False),
        "/lib": (False, True),
        "/fifo": (False, False),
        "/no": (False, False),
    }
    assert sysroot.names("/lib") == ("climbs.so", "libx.so")
    assert sysroot.names("/plain") == sysroot.names("/no") == ()
    assert sysroot.read("/plain") == b"root"
    assert sysroot.read("/lib") is None


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("through", ["root", "link", "link/../link", "link/usr/.."])
def test_a_path_is_seen_from_inside_however_the_root_was_named(through, tmp_path):
    (tmp_path / "link").symlink_to("root")
    sysroot = Sysroot.at(tmp_path / through)
    for name in ("root", "link"):
        assert sysroot.inside(tmp_path / name / "usr/lib/libx.so") == "/usr/lib/libx.so"
        assert sysroot.inside(tmp_path / name) == "/"
    assert sysroot.inside(tmp_path / "rootless") == str(tmp_path / "rootless")


@pytest.mark.parametrize("name", ["none", "file"])
def test_a_root_must_be_a_directory(name, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DpackError, match="no such directory"):
        Sysroot.at(tmp_path / name)


def test_a_directory_that_may_not_be_read_has_no_names():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        path = Path(name)
        path.chmod(0o755)
        write_tree(path, [("/closed/libx.so", b"x")])
        (path / "closed").chmod(0)
        uid = os.geteuid()
        if uid == 0:
            os.seteuid(65534)
        try:
            for sysroot, at in ((Sysroot.at(path), ""), (Sysroot.at("/"), name)):
                assert sysroot.names(f"{at}/closed") == ()
                assert sysroot.host(f"{at}/closed/libx.so") is None
                assert not sysroot.is_file(f"{at}/closed/libx.so")
                assert sysroot.read(f"{at}/closed/libx.so") is None
        finally:
            os.seteuid(uid)
            (path / "closed").chmod(0o755)


_SERVER = """
import ctypes, json, os, sys
for line in sys.stdin:
    root, paths = json.loads(line)
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        continue
    answer = []
    try:
        if os.geteuid() and ctypes.CDLL(None).unshare(0x10000000):
            raise OSError("unshare")
        os.chroot(root)
        os.chdir("/")
        for path in paths:
            try:
                status = os.stat(path)
                answer.append([status.st_dev, status.st_ino])
            except OSError:
                answer.append(None)
    except OSError as error:
        answer = str(error)
    print(json.dumps(answer), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[subprocess.Popen[str]]:
    """A process that tells what the kernel finds at some paths of a root."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True) as server:
        yield server
        server.stdin.close()


def _found_in_chroot(
    kernel: subprocess.Popen[str], root: Path, paths: list[str]
) -> list[tuple[int, int] | None]:
    kernel.stdin.write(json.dumps([str(root), paths]) + "\n")
    kernel.stdin.flush()
    answer = json.loads(kernel.stdout.readline())
    if isinstance(answer, str):
        missing(f"cannot change the root directory ({answer})")
    return [None if row is None else (row[0], row[1]) for row in answer]


NAMES = st.sampled_from(["a", "b", "c"])
TARGETS = st.lists(st.sampled_from(["a", "b", "c", "..", "."]), min_size=1, max_size=4).map("/".join)
KINDS = st.one_of(st.just(b""), st.none(), TARGETS, TARGETS.map("/".__add__))
PLACES = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
ASKED = (
    st.lists(st.sampled_from(["a", "b", "c", "..", ".", ""]), min_size=1, max_size=6)
    .map("/".join)
    .map("/".__add__)
)


@settings(max_examples=150, deadline=None)
@given(tree=st.dictionaries(PLACES, KINDS, max_size=10), paths=st.lists(ASKED, min_size=1, max_size=12))
def test_the_kernel_finds_the_same_in_a_chroot(kernel, tree, paths):
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for place, what in sorted(tree.items()):
            if any(parent.is_symlink() for parent in (root / place).parents):
                continue
            try:
                if what is None:
                    (root / place).mkdir(parents=True)
                elif isinstance(what, bytes):
                    (root / place).write_bytes(what)
                else:
                    (root / place).symlink_to(what)
            except OSError:  # stands below a file, or below nothing
                continue
        sysroot = Sysroot.at(root)
        assert [sysroot.identity(path) for path in paths] == _found_in_chroot(kernel, root, paths)


@pytest.mark.parametrize("count", [39, 40, 41])
def test_as_many_links_are_followed_as_the_kernel_follows(count, kernel, tmp_path):
    (tmp_path / "0").write_bytes(b"")
    for number in range(1, count + 1):
        (tmp_path / str(number)).symlink_to(str(number - 1))
    path = f"/{count}"
    theirs = _found_in_chroot(kernel, tmp_path, [path])
    assert [Sysroot.at(tmp_path).identity(path)] == theirs
    assert [Sysroot.at("/").identity(f"{tmp_path}{path}")] == theirs
    assert (theirs == [None]) == (count > 40)
