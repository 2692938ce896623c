"""Programs that cannot be bundled: each is refused with its name, the reason and a next step."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from builders import fake_cuda
from builders.elf import ET_CORE, ET_REL, Tiny, big_endian, elf32

PROGRAM = Tiny(interp="/lib64/ld-linux-x86-64.so.2", needed=("libc.so.6",)).build()
PHOFF, DYNAMIC_OFFSET = 32, 8


def damaged(offset: int, content: bytes) -> bytes:
    return PROGRAM[:offset] + content + PROGRAM[offset + len(content) :]


FILES = {
    "script": (b"#!/bin/sh\nexec ./mnist\n", ("a script, run by /bin/sh",)),
    "text": (b"hello, world", ("not an ELF file", "hello, w")),
    "archive": (b"!<arch>\n", ("not an ELF file", "!<arch>")),
    "empty": (b"", ("an empty file",)),
    "magic alone": (b"\x7fELF", ("truncated",)),
    "header cut": (PROGRAM[:63], ("truncated",)),
    "program headers cut": (PROGRAM[:100], ("truncated",)),
    "dynamic section cut": (PROGRAM[:-24], ("truncated",)),
    "headers elsewhere": (damaged(PHOFF, b"\xff" * 8), ("truncated",)),
    "no program headers": (damaged(56, b"\0\0"), ("damaged",)),
    "32-bit": (elf32(), ("32-bit",)),
    "big-endian": (big_endian(), ("big-endian",)),
    "relocatable": (Tiny(type=ET_REL).build(), ("a relocatable object (.o)", "next: link it")),
    "core dump": (Tiny(type=ET_CORE).build(), ("core dump", "next: give dpack the program")),
    "unheard-of machine": (Tiny(machine=0x9999, needed=("libc.so.6",)).build(), ("machine-39321",)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_program_is_refused(name, dpack):
    content, words = FILES[name]
    (dpack.cwd / "app").write_bytes(content)
    dpack("bundle", "app").refused(2, "dpack: cannot ", "app: ", *words)
    assert dpack.written == {"app"}


@pytest.mark.parametrize("command", ["bundle", "plan", "tree", "why"])
def test_a_program_that_is_not_there_is_refused_by_every_command(command, dpack):
    name = ["libc.so.6"] if command == "why" else []
    result = dpack(command, "./mnist", *name).refused(2, "cannot read mnist: no such file")
    assert not result.out
    assert not dpack.written


def test_a_directory_is_refused(dpack):
    (dpack.cwd / "build").mkdir()
    dpack("bundle", "build").refused(2, "cannot read build: a directory")
    assert dpack.written == {"build"}


def test_a_link_to_itself_is_refused(dpack):
    (dpack.cwd / "app").symlink_to("app")
    dpack("bundle", "app").refused(2, "cannot read app", "symbolic link")


def test_a_dangling_link_is_refused(dpack):
    (dpack.cwd / "app").symlink_to("gone")
    dpack("bundle", "app").refused(2, "cannot read app", "no such file")


def test_a_pipe_is_refused_and_not_waited_for(dpack):
    os.mkfifo(dpack.cwd / "app")
    dpack("bundle", "app").refused(2, "cannot read app")


def test_a_program_that_may_not_be_read_is_refused(dpack, unprivileged, plain):
    app = dpack.cwd / "app"
    app.write_bytes(plain.read_bytes())
    app.chmod(0)
    unprivileged("bundle", "app").refused(2, "cannot read app", "ermission denied")
    assert dpack.written == {"app"}


@pytest.mark.parametrize("part", range(1, 16, 2))
def test_a_program_cut_anywhere_is_refused_or_bundled_whole(part, dpack, plain):
    """Where only debug information and section headers are lost, the loader starts what is left; so may dpack."""
    content = plain.read_bytes()
    app = dpack.cwd / "app"
    app.write_bytes(content[: len(content) * part // 16])
    app.chmod(0o755)
    result = dpack("bundle", "app", "-o", "out/")
    assert "Traceback" not in result.err
    if result.code:
        result.refused(result.code, "app")
        assert dpack.written == {"app"}
    else:
        original = subprocess.run([app], capture_output=True, check=False)
        bundled = subprocess.run([dpack.cwd / "out/bin/app"], capture_output=True, check=False)
        assert (bundled.returncode, bundled.stdout) == (original.returncode, original.stdout)


@pytest.mark.parametrize("flags", [("-static",), ("-static-pie",)], ids=lambda flags: flags[0])
def test_a_static_program_is_a_bundle_of_one_file(flags, dpack):
    fake_cuda.compile_program(dpack.cwd / "hello", (), None, (), *flags)
    dpack("bundle", "hello", "-o", "out/").done()
    files = {
        str(path.relative_to(dpack.cwd / "out")) for path in (dpack.cwd / "out").rglob("*") if path.is_file()
    }
    assert files == {"bin/hello", "dpack.json"}
    assert (
        subprocess.run([dpack.cwd / "out/bin/hello"], capture_output=True, check=True).stdout == b"started\n"
    )


def test_a_library_that_is_no_elf_file_is_a_miss_that_says_so(dpack, cnn, cuda):
    bad = dpack.cwd / "lib"
    bad.mkdir()
    for library in cuda.iterdir():
        (bad / library.name).symlink_to(library)
    (bad / "libcudart.so.12").unlink()
    (bad / "libcudart.so.12").write_text("GROUP ( libcudart.so.12 )\n")
    dpack("plan", cnn, "-L", "lib").refused(1, "libcudart.so.12", "not an ELF file", str(bad))


WRONG_USE: dict[str, tuple[Callable[[Path], list[str]], tuple[str, ...]]] = {
    "unknown command": (lambda _: ["bundel"], ("no command 'bundel'", "bundle?")),
    "no program": (lambda _: ["bundle"], ("Missing argument 'APP'",)),
    "unknown option": (lambda app: ["plan", str(app), "--modell", "cnn"], ("--modell", "--model")),
    "unknown format": (lambda app: ["bundle", str(app), "--format", "zip"], ("zip", "tar.zst")),
    "level is no number": (lambda app: ["bundle", str(app), "--level", "high"], ("--level", "high")),
}


@pytest.mark.parametrize("name", WRONG_USE)
def test_wrong_use_is_explained(name, dpack, plain):
    arguments, words = WRONG_USE[name]
    result = dpack(*arguments(plain))
    assert result.code == 2
    assert "Traceback" not in result.err
    assert not [word for word in words if word not in result.err], result.err
    assert not dpack.written


REFUSED: dict[str, tuple[list[str], tuple[str, ...]]] = {
    "unknown model": (["--model", "cn"], ("unknown model 'cn'", "'cnn'", "rnn", "transformer")),
    "unlike any model": (["--model", "zebra"], ("unknown model 'zebra'", "cnn")),
    "no such library path": (["-L", "nowhere"], ("nowhere: no such directory",)),
    "no such root": (["-R", "nowhere"], ("nowhere", "no such directory")),
    "no such recipes": (["--recipes", "nowhere"], ("nowhere", "no such directory")),
    "unknown CPU": (["--cpu", "x86-64-v9"], ("x86-64-v9", "x86-64-v3")),
    "requirement that cannot be read": (["--require", "==9"], ("==9",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_request_is_refused_with_a_next_step(name, dpack, cnn):
    options, words = REFUSED[name]
    dpack("bundle", cnn, *options).refused(2, *words)
    assert not dpack.written
