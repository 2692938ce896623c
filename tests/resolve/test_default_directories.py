"""ld.so.cache, ld.so.conf, the default directories and what stands beside them: asked in a root of their own.

The real loader runs in that root (chroot) with a cache that the real ldconfig made; dpack reads the same root from
outside. The last tests are the cases in which the loader stops with an error, or in which dpack leaves its ways.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from builders import elf as build
from builders import table
from builders.elf import Tiny, write_tree
from builders.oracle import missing, ours, real_loader, require, trace, traced, walked

from packager.resolve.cache import parse_cache
from packager.resolve.elf import read_elf
from packager.resolve.search import How, Loader
from packager.resolve.sysroot import Sysroot

APP = "/bin/app"


def _root(root: Path, program: Tiny, files: tuple[tuple[str, Tiny | bytes | str], ...]) -> None:
    """A root with the real loader, ``program`` at /bin/app, and ``files``; %LIB% is the first default directory."""
    real = real_loader()
    default = _default()

    def native(tiny: Tiny) -> Tiny:
        return tiny.with_(machine=real.machine.number)

    placed = [
        (name.replace("/%LIB%", default), native(what) if isinstance(what, Tiny) else what)
        for name, what in files
    ]
    write_tree(root, placed)
    native(program).with_(interp=real.path).write(root / APP[1:])
    loader = root / real.path[1:]
    loader.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(real.path, loader)


def _default() -> str:
    """The first default directory of this machine's loader, as its own help tells it."""
    told = subprocess.run([real_loader().path, "--help"], capture_output=True, text=True, check=True).stdout
    return next(line.split()[0] for line in told.splitlines() if line.endswith("(system search path)"))


def _ldconfig(root: Path) -> None:
    """Make etc/ld.so.cache of ``root``."""
    command = [require("ldconfig"), "-X", "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache", "-r", str(root)]
    (root / "etc").mkdir(exist_ok=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and os.geteuid():
        missing(f"ldconfig -r needs root: {done.stderr}")
    assert (root / "etc/ld.so.cache").is_file(), done.stderr


def _answers(root: Path, hwcaps: tuple[str, ...] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """The real loader's answer in ``root``, and ours."""
    real = real_loader()
    mask = [] if hwcaps is None else ["--glibc-hwcaps-mask", ":".join(hwcaps)]
    told = trace([real.path, *mask, APP], root=root)
    return traced(told.stdout, real.path), walked(ours(APP, root=root, hwcaps=hwcaps))


CONF = (("/etc/ld.so.conf", b"# ours\ninclude /etc/ld.so.conf.d/*.conf\n/opt/two\n"),)
INCLUDED = (
    ("/etc/ld.so.conf.d/b.conf", b"/opt/b  # the second\n"),
    ("/etc/ld.so.conf.d/a.conf", b"\n/opt/a/\n"),
    ("/etc/ld.so.conf.d/not-read", b"/opt/not-read\n"),
)
PLAIN = Tiny(soname="libx.so")

SYSTEM = (
    ("a default directory", Tiny(needed=("libx.so",)), (("/%LIB%/libx.so", PLAIN),), "/%LIB%/libx.so"),
    (
        "the first default directory comes before the last",
        Tiny(needed=("libx.so",)),
        (("/%LIB%/libx.so", PLAIN), ("/usr/lib/libx.so", PLAIN)),
        "/%LIB%/libx.so",
    ),
    (
        "DT_RUNPATH comes before the cache",
        Tiny(needed=("libx.so",), runpath="/opt/r"),
        (*CONF, ("/opt/two/libx.so", PLAIN), ("/opt/r/libx.so", PLAIN)),
        "/opt/r/libx.so",
    ),
    (
        "a directory of ld.so.conf comes before the default ones",
        Tiny(needed=("libx.so",)),
        (*CONF, ("/opt/two/libx.so", PLAIN), ("/%LIB%/libx.so", PLAIN)),
        "/opt/two/libx.so",
    ),
    (
        "an include stands where it is written, its files in alphabetical order",
        Tiny(needed=("libx.so",)),
        (*CONF, *INCLUDED, ("/opt/two/libx.so", PLAIN), ("/opt/b/libx.so", PLAIN), ("/opt/a/libx.so", PLAIN)),
        "/opt/a/libx.so",
    ),
    (
        "only files that match an include are read",
        Tiny(needed=("libx.so",)),
        (*CONF, *INCLUDED, ("/opt/not-read/libx.so", PLAIN)),
        "",
    ),
    (
        "-z nodefaultlib leaves the default directories out",
        Tiny(needed=("libx.so",), flags_1=build.DF_1_NODEFLIB),
        (("/%LIB%/libx.so", PLAIN), ("/usr/lib/libx.so", PLAIN)),
        "",
    ),
    (
        "-z nodefaultlib keeps the other directories of ld.so.conf",
        Tiny(needed=("libx.so",), flags_1=build.DF_1_NODEFLIB),
        (*CONF, ("/opt/two/libx.so", PLAIN), ("/usr/lib/libx.so", PLAIN)),
        "/opt/two/libx.so",
    ),
    (
        "glibc-hwcaps in a default directory",
        Tiny(needed=("libx.so",)),
        (("/%LIB%/libx.so", PLAIN), ("/%LIB%/glibc-hwcaps/x86-64-v2/libx.so", PLAIN)),
        "/%LIB%/glibc-hwcaps/x86-64-v2/libx.so",
    ),
    (
        "glibc-hwcaps in a directory of ld.so.conf",
        Tiny(needed=("libx.so",)),
        (*CONF, ("/opt/two/libx.so", PLAIN), ("/opt/two/glibc-hwcaps/x86-64-v2/libx.so", PLAIN)),
        "/opt/two/glibc-hwcaps/x86-64-v2/libx.so",
    ),
)


@pytest.mark.parametrize("cached", [True, False], ids=["with a cache", "without a cache"])
@table("program files expected", SYSTEM)
def test_the_system_directories_are_searched_as_the_loader_does(program, files, expected, cached, tmp_path):
    real = real_loader()
    if "x86-64-v2" in str(files) and "x86-64-v2" not in real.hwcaps:
        pytest.skip("this machine's CPU is not x86-64-v2")
    _root(tmp_path, program, files)
    expected = {"libx.so": expected.replace("/%LIB%", _default())}
    _ldconfig(tmp_path)
    theirs, mine = _answers(tmp_path)
    assert theirs == expected
    if not cached:  # where there is no cache, we read the ld.so.conf from which ldconfig makes it
        (tmp_path / "etc/ld.so.cache").unlink()
        _, mine = _answers(tmp_path)
    assert mine == expected


def test_a_masked_level_is_not_taken_from_the_cache(tmp_path):
    if "x86-64-v3" not in real_loader().hwcaps:
        pytest.skip("this machine's CPU is not x86-64-v3")
    levels = tuple((f"/opt/two/glibc-hwcaps/{level}/libx.so", PLAIN) for level in ("x86-64-v2", "x86-64-v3"))
    _root(tmp_path, Tiny(needed=("libx.so",)), (*CONF, *levels, ("/opt/two/libx.so", PLAIN)))
    _ldconfig(tmp_path)
    for hwcaps, directory in (
        (("x86-64-v3", "x86-64-v2"), "/opt/two/glibc-hwcaps/x86-64-v3"),
        (("x86-64-v2",), "/opt/two/glibc-hwcaps/x86-64-v2"),
        ((), "/opt/two"),
    ):
        theirs, mine = _answers(tmp_path, hwcaps)
        assert theirs == mine == {"libx.so": f"{directory}/libx.so"}


def test_a_cache_entry_whose_file_is_gone_gives_way_to_the_default_directory(tmp_path):
    _root(
        tmp_path, Tiny(needed=("libx.so",)), (*CONF, ("/opt/two/libx.so", PLAIN), ("/%LIB%/libx.so", PLAIN))
    )
    _ldconfig(tmp_path)
    (tmp_path / "opt/two/libx.so").unlink()
    theirs, mine = _answers(tmp_path)
    assert theirs == mine == {"libx.so": f"{_default()}/libx.so"}


def test_the_cache_that_ldconfig_makes_is_read_whole(tmp_path):
    files = tuple(
        (f"{place}/lib{name}.so", Tiny(soname=f"lib{name}.so"))
        for name in ("one", "two", "two10", "two9")
        for place in ("/opt/two", "/opt/two/glibc-hwcaps/x86-64-v2", "/%LIB%")
    )
    _root(tmp_path, Tiny(), (*CONF, *files))
    _ldconfig(tmp_path)
    cache = tmp_path / "etc/ld.so.cache"
    told = subprocess.run(
        [require("ldconfig"), "-p", "-C", cache], capture_output=True, text=True, check=True
    )
    rows = [line.split(" => ") for line in told.stdout.splitlines() if " => " in line]
    entries = parse_cache(cache.read_bytes())
    assert [e.path for e in entries] == [path for _, path in rows]
    assert [e.name for e in entries] == [text.split()[0] for text, _ in rows]
    if real_loader().machine.hwcaps:
        assert {e.hwcaps for e in entries} == {"", "x86-64-v2"}


def test_a_program_that_is_started_through_a_link_has_its_own_directory_as_origin(tmp_path):
    real = real_loader()
    Tiny(machine=real.machine.number).write(tmp_path / "real/libx.so")
    Tiny(machine=real.machine.number).write(tmp_path / "bin/libx.so")
    program = Tiny(machine=real.machine.number, interp=real.path, needed=("libx.so",), runpath="$ORIGIN")
    program.write(tmp_path / "real/app")
    link = tmp_path / "bin/app"
    link.symlink_to("../real/app")
    theirs = traced(trace([str(link)]).stdout, real.path)
    assert theirs == walked(ours(str(link))) == {"libx.so": str(tmp_path / "real/libx.so")}


def test_two_hard_links_to_one_file_are_one_object(tmp_path):
    real = real_loader()
    Tiny(machine=real.machine.number).write(tmp_path / "libx.so")
    (tmp_path / "liby.so").hardlink_to(tmp_path / "libx.so")
    program = Tiny(
        machine=real.machine.number, interp=real.path, needed=("libx.so", "liby.so"), rpath="$ORIGIN"
    )
    program.write(tmp_path / "app")
    theirs = traced(trace([str(tmp_path / "app")]).stdout, real.path)
    assert theirs == walked(ours(str(tmp_path / "app"))) == {"libx.so": str(tmp_path / "libx.so")}


OTHER = tuple(
    pytest.param(content, told, id=told)
    for content, told in (
        (Tiny(machine=build.AARCH64).build(), "passed over: made for aarch64, the program is for x86_64"),
        (build.elf32(), "passed over: a 32-bit little-endian ELF file"),
    )
)


@pytest.mark.parametrize(("content", "told"), OTHER)
def test_a_candidate_that_is_passed_over_is_told(content, told, tmp_path):
    write_tree(tmp_path, [("/a/libx.so", content), ("/b/libx.so", Tiny())])
    Tiny(needed=("libx.so",), rpath="$ORIGIN/a:$ORIGIN/b").write(tmp_path / "app")
    found = ours(str(tmp_path / "app")).objects[-1]
    assert found.path == str(tmp_path / "b/libx.so")
    assert [(a.path, a.outcome) for a in found.passed_over] == [(str(tmp_path / "a/libx.so"), told)]


UNUSABLE = (
    ("text", b"INPUT(libreal.so)\n" * 8, "invalid ELF header", "unusable: not an ELF file"),
    ("empty", b"", "file too short", "unusable: an empty file"),
    ("truncated", Tiny().build()[:40], "file too short", "unusable: truncated"),
    (
        "a relocatable object",
        Tiny(type=build.ET_REL).build(),
        "only ET_DYN and ET_EXEC",
        "unusable: a relocatable",
    ),
    (
        "a program",
        Tiny(type=build.ET_EXEC).build(),
        "cannot dynamically load exec",
        "unusable: a program, not a",
    ),
    (
        "a position-independent program",
        Tiny(flags_1=build.DF_1_PIE).build(),
        "cannot dynamically load position-independent exec",
        "unusable: a program, not a",
    ),
    ("no dynamic section", Tiny(dynamic=False).build(), "no dynamic section", "unusable: no dynamic section"),
)


@table("content loader_says told", UNUSABLE)
def test_where_the_loader_stops_dpack_says_unusable_and_goes_on(content, loader_says, told, tmp_path):
    """The loader ends with an error here. We report the file and go on: all that is wrong is seen at once."""
    real = real_loader()
    native = Tiny(machine=real.machine.number)
    if content[:4] == b"\x7fELF" and len(content) > 40:
        content = content[:18] + real.machine.number.to_bytes(2, "little") + content[20:]
    write_tree(tmp_path, [("/a/libx.so", content), ("/b/libx.so", native)])
    app = native.with_(interp=real.path, needed=("libx.so",), rpath="$ORIGIN/a:$ORIGIN/b").write(
        tmp_path / "app"
    )
    done = trace([str(app)])
    assert done.returncode != 0
    assert loader_says in done.stderr
    found = ours(str(app)).objects[-1]
    assert found.path == str(tmp_path / "b/libx.so")
    assert [a.path for a in found.passed_over] == [str(tmp_path / "a/libx.so")]
    assert found.passed_over[0].outcome.startswith(told)


def test_a_candidate_that_may_not_be_read_is_passed_over():
    """As in ld.so, for which EACCES is like ENOENT."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root, real = Path(name), real_loader()
        root.chmod(0o755)
        native = Tiny(machine=real.machine.number)
        write_tree(root, [("/a/libx.so", native), ("/b/libx.so", native)])
        (root / "a/libx.so").chmod(0)
        app = str(
            native.with_(interp=real.path, needed=("libx.so",), rpath="$ORIGIN/a:$ORIGIN/b").write(
                root / "app"
            )
        )
        uid = os.geteuid()
        if uid == 0:
            os.seteuid(65534)
        try:
            found = ours(app).objects[-1]
        finally:
            os.seteuid(uid)
        assert found.path == f"{root}/b/libx.so"
        assert "Permission denied" in found.passed_over[0].outcome


@pytest.mark.parametrize("rpath", ["", "a", ":a", "./a", "a:$ORIGIN/none"])
def test_a_relative_or_empty_entry_is_left_out(rpath, tmp_path, monkeypatch):
    """The loader takes it from the directory in which the program is started, of which we know nothing."""
    real = real_loader()
    native = Tiny(machine=real.machine.number)
    native.write(tmp_path / "a/libx.so")
    app = native.with_(interp=real.path, needed=("libx.so",), rpath=rpath).write(tmp_path / "app")
    theirs = traced(trace([str(app)], cwd=tmp_path).stdout, real.path)
    assert bool(theirs["libx.so"]) == bool(rpath)
    monkeypatch.chdir(tmp_path)
    closure = ours(str(app))
    assert walked(closure) == {"libx.so": ""}
    left_out = [a for a in closure.misses[0].attempts if a.outcome.startswith("left out")]
    assert [a.how for a in left_out] == [How.RPATH] * len(
        [e for e in rpath.split(":") if rpath and e[:1] != "$"]
    )


def test_the_default_directories_are_read_from_the_loader_itself():
    real = real_loader()
    loader = Loader.of(read_elf("/bin/sh"), Sysroot.at("/"))
    told = subprocess.run([real.path, "--help"], capture_output=True, text=True, check=True).stdout
    theirs = [line.split()[0] for line in told.splitlines() if line.endswith("(system search path)")]
    assert list(loader.defaults) == theirs


def test_a_root_without_a_loader_has_the_directories_of_its_layout(tmp_path):
    program = replace(
        read_elf(Tiny(machine=build.AARCH64).write(tmp_path / "bin/app")), interp="/lib/ld-linux.so"
    )
    plain = Loader.of(program, Sysroot.at(tmp_path))
    assert (plain.defaults, plain.lib) == (("/lib64", "/usr/lib64", "/lib", "/usr/lib"), "lib64")
    (tmp_path / "usr/lib/aarch64-linux-gnu").mkdir(parents=True)
    debian = Loader.of(program, Sysroot.at(tmp_path))
    assert debian.defaults[:2] == ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
    assert debian.lib == "lib/aarch64-linux-gnu"


@pytest.mark.parametrize(("where", "found"), [(".", True), ("sub", False)])
def test_a_relative_name_with_a_slash_is_a_path_from_the_working_directory(
    where, found, tmp_path, monkeypatch
):
    """What a program gets that was linked with `gcc main.c sub/libx.so`, where libx.so has no soname."""
    real = real_loader()
    native = Tiny(machine=real.machine.number)
    native.write(tmp_path / "sub/libx.so")
    app = native.with_(interp=real.path, needed=("sub/libx.so",)).write(tmp_path / "app")
    told = trace([str(app)], cwd=tmp_path / where).stdout
    assert ("sub/libx.so => not found" in told) is not found
    monkeypatch.chdir(tmp_path / where)
    assert walked(ours(str(app))) == {"sub/libx.so": str(tmp_path / "sub/libx.so") if found else ""}


@pytest.mark.parametrize("flag", ["--filter", "--auxiliary"])
def test_a_filter_is_followed_as_the_loader_follows_it(flag, tmp_path):
    """DT_FILTER and DT_AUXILIARY (ld(1), -F and -f): the loader maps what they name with the library itself."""
    real = real_loader()
    library = [require("gcc"), "-shared", "-fPIC", "-nostdlib", "-x", "c", "-"]
    for name, options in (("libbar.so", []), ("libflt.so", [f"-Wl,{flag},libbar.so"])):
        target = ["-o", str(tmp_path / name), f"-Wl,-soname,{name}", *options]
        subprocess.run([*library, *target], input=b"int bar(void) { return 1; }", check=True)
    program = Tiny(machine=real.machine.number, interp=real.path, needed=("libflt.so",), rpath="$ORIGIN")
    app = str(program.write(tmp_path / "app"))
    assert f"{tmp_path}/libbar.so" in trace([app]).stdout
    assert f"{tmp_path}/libbar.so" in {o.path for o in ours(app).objects}
