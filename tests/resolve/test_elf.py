"""read_elf: tables over built files, pyelftools and readelf on this machine's files, and mutations of both."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from builders import elf as build
from builders import table
from builders.elf import Tiny
from builders.oracle import require
from elftools.elf.dynamic import DynamicSegment
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packager.errors import EXIT_USAGE, DpackError
from packager.resolve.elf import ElfError, ElfFile, OtherMachineError, VersionNeed, read_elf
from packager.resolve.strings import library_names
from packager.resolve.symbols import Symbol, symbols

WHOLE = Tiny(
    interp="/lib64/ld-linux-x86-64.so.2",
    soname="libwhole.so.1",
    needed=("liba.so", "libb.so.2", "/abs/libc.so"),
    runpath="$ORIGIN/../lib:/opt",
    flags_1=build.DF_1_NODEFLIB,
    versions=(("liba.so", ("A_1", "A_2")), ("libb.so.2", ("B_1",))),
    imports=("dlopen", "puts"),
    exports=("main", "whole"),
    notes=(("FDO", 0x407C0C0A, b"[]"), ("GNU", 3, b"build id")),
    rodata=("libcuda.so.1", "not a library", "libnvrtc.so.%d"),
    sections=True,
)

FACTS = (
    (
        "a shared object",
        Tiny(soname="libx.so"),
        {"soname": "libx.so", "interp": None, "type": 3, "dynamic": True},
    ),
    ("needed, in its order", Tiny(needed=("b", "a", "b")), {"needed": ("b", "a", "b")}),
    ("rpath", Tiny(rpath="/a:/b"), {"rpath": "/a:/b", "runpath": None}),
    ("rpath beside runpath", Tiny(rpath="/a", runpath="/b"), {"rpath": None, "runpath": "/b"}),
    ("rpath beside an empty runpath", Tiny(rpath="/a", runpath=""), {"rpath": None, "runpath": ""}),
    ("nodeflib", Tiny(flags_1=build.DF_1_NODEFLIB), {"nodeflib": True}),
    ("other flags", Tiny(flags_1=1), {"nodeflib": False, "flags_1": 1}),
    ("no dynamic section", Tiny(dynamic=False), {"dynamic": False, "static": True, "needed": ()}),
    ("ET_EXEC", Tiny(type=build.ET_EXEC), {"type": 2}),
    ("a program", Tiny(interp="/lib/ld.so"), {"interp": "/lib/ld.so", "static": False}),
    ("names that are not ASCII", Tiny(needed=("libé.so",)), {"needed": ("libé.so",)}),
    (
        "symbol versions",
        Tiny(versions=(("liba.so", ("A_1", "A_2")), ("libb.so", ("B_1",)))),
        {"versions": (VersionNeed("liba.so", ("A_1", "A_2")), VersionNeed("libb.so", ("B_1",)))},
    ),
)


@pytest.mark.parametrize("sections", [False, True], ids=["no section headers", "section headers"])
@table("tiny facts", FACTS)
def test_the_facts_of_a_built_file(tiny, facts, sections, tmp_path):
    elf = read_elf(tiny.with_(sections=sections).write(tmp_path / "x"))
    assert {name: getattr(elf, name) for name in facts} == facts


@pytest.mark.parametrize(
    ("number", "name", "known"),
    [
        (62, "x86_64", True),
        (183, "aarch64", True),
        (21, "ppc64le", True),
        (243, "riscv64", True),
        (9999, "machine-9999", False),
    ],
)
def test_the_machine_of_a_built_file(number, name, known, tmp_path):
    machine = read_elf(Tiny(machine=number).write(tmp_path / "x")).machine
    assert (machine.name, machine.known) == (name, known)


def test_symbols_notes_and_strings_of_a_built_file(tmp_path):
    with ElfFile(WHOLE.write(tmp_path / "x")) as file:
        assert list(symbols(file)) == [
            Symbol("dlopen", defined=False),
            Symbol("puts", defined=False),
            Symbol("main", defined=True),
            Symbol("whole", defined=True),
        ]
        assert list(file.notes()) == [("FDO", 0x407C0C0A, b"[]"), ("GNU", 3, b"build id")]
        assert library_names(file) == ("libcuda.so.1", "libnvrtc.so.%d")


STRINGS = (
    ("the first string of the section", ("libfirst.so.1", "x"), ("libfirst.so.1",)),
    ("a path", ("x", "/opt/lib/libx.so", "sub/liby.so.2"), ("/opt/lib/libx.so", "sub/liby.so.2")),
    (
        "a format in the version, none in the name",
        ("x", "lib%s.so", "libnvrtc.so.%d.%d"),
        ("libnvrtc.so.%d.%d",),
    ),
    ("prose", ("x", "cannot open libx.so, sorry", ".so", "a.some", "libx.so "), ()),
    ("one of each", ("x", "libx.so", "libx.so", "libx.so.1"), ("libx.so", "libx.so.1")),
    ("too long a name", ("x", "lib" + "y" * 300 + ".so"), ()),
)


@pytest.mark.parametrize("sections", [False, True], ids=["no section headers", "section headers"])
@table("strings names", STRINGS)
def test_names_of_libraries_among_the_strings(strings, names, sections, tmp_path):
    with ElfFile(Tiny(rodata=strings, sections=sections).write(tmp_path / "x")) as file:
        assert library_names(file) == names


@pytest.mark.parametrize("before", [*range((1 << 20) - 530, (1 << 20) + 20, 11), 3 << 20])
def test_a_name_is_found_wherever_it_lies_in_the_pieces(before, tmp_path):
    """The section is read in pieces of 1 MiB; a name that two of them share must be found whole."""
    with ElfFile(
        Tiny(rodata=("x" * before, "libacross.so.1", "y"), sections=True).write(tmp_path / "x")
    ) as file:
        assert library_names(file) == ("libacross.so.1",)


def _make(kind: str, path: Path) -> None:
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "dangling":
        path.symlink_to("nothing")


def _header(**fields: int) -> bytes:
    """A built file with some 16-bit fields of its header overwritten, by their offset."""
    content = bytearray(WHOLE.build())
    for name, value in fields.items():
        struct.pack_into("<H", content, int(name.removeprefix("at_")), value)
    return bytes(content)


BAD = (
    ("nothing at all", None, DpackError, "no such file"),
    ("a directory", "directory", ElfError, "a directory"),
    ("a FIFO", "fifo", ElfError, "not a regular file"),
    ("a link in a circle", "loop", DpackError, "Too many levels of symbolic links"),
    ("a link to nothing", "dangling", DpackError, "no such file"),
    ("an empty file", b"", ElfError, "an empty file"),
    ("a script", b"#!/usr/bin/env python3\nprint()\n", ElfError, "a script, run by /usr/bin/env python3"),
    ("text", b"INPUT(libreal.so)\n", ElfError, "not an ELF file (it begins with b'INPUT(li')"),
    ("the magic alone", b"\x7fELF", ElfError, "truncated: an ELF header of 4 bytes"),
    ("half a header", WHOLE.build()[:40], ElfError, "truncated: an ELF header of 40 bytes"),
    ("no program headers", WHOLE.build()[:64], ElfError, "truncated"),
    ("ELF32", build.elf32(), OtherMachineError, "a 32-bit little-endian ELF file"),
    ("a short ELF32", build.elf32()[:52], OtherMachineError, "a 32-bit little-endian ELF file"),
    ("big-endian", build.big_endian(), OtherMachineError, "a 64-bit big-endian ELF file"),
    ("a relocatable object", Tiny(type=build.ET_REL).build(), ElfError, "a relocatable object (.o)"),
    ("a core dump", Tiny(type=build.ET_CORE).build(), ElfError, "a core dump"),
    ("an unknown type", Tiny(type=0xFE00).build(), ElfError, "of ELF type 65024"),
    ("e_phnum 0", _header(at_56=0), ElfError, "damaged: 0 program headers"),
    ("PN_XNUM", _header(at_56=0xFFFF), ElfError, "truncated"),
    ("another e_phentsize", _header(at_54=32), ElfError, "damaged"),
    ("without its dynamic section", WHOLE.build()[:700], ElfError, "truncated"),
)


@table("content kind why", BAD)
def test_what_cannot_be_read_is_told(content, kind, why, tmp_path):
    path = tmp_path / "thing"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        _make(content, path)
    with pytest.raises(kind) as caught:
        read_elf(path)
    assert caught.value.what == f"cannot read {path}"
    assert why in caught.value.why
    assert caught.value.exit == EXIT_USAGE


def test_a_device_cannot_be_read():
    with pytest.raises(ElfError, match="not a regular file"):
        read_elf("/dev/null")


def test_the_path_in_a_message_is_the_one_that_was_given(tmp_path):
    (tmp_path / "x").write_bytes(b"text")
    with pytest.raises(ElfError, match=r"cannot read /usr/lib/libx\.so: not an ELF file"):
        read_elf(tmp_path / "x", "/usr/lib/libx.so")


def test_a_file_that_cannot_be_read_leaves_no_descriptor_open(tmp_path):
    (tmp_path / "x").write_bytes(_header(at_56=0))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in ("x", "none", "."):
        with pytest.raises(DpackError):
            read_elf(tmp_path / path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("options", "static", "interp"),
    [
        ((), False, True),
        (("-static",), True, False),
        (("-static-pie",), True, False),
        (("-no-pie",), False, True),
    ],
    ids=["pie", "static", "static-pie", "no-pie"],
)
def test_what_the_compiler_builds(options, static, interp, tmp_path):
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    command = [require("gcc"), *options, "x.c", "-o", "x"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip(f"gcc {' '.join(options)} has no library to link")
    elf = read_elf(tmp_path / "x")
    assert (elf.static, elf.interp is not None) == (static, interp)
    assert ("libc.so.6" in elf.needed) is interp


def _system_files(count: int) -> list[Path]:
    """Every so many-th dynamic file of this machine, programs and libraries, each once."""
    places = [Path("/usr/bin"), *Path("/usr/lib").glob("*-linux-gnu"), Path("/usr/lib64")]
    found: dict[str, Path] = {}
    for path in sorted(each for place in places if place.is_dir() for each in place.iterdir()):
        real = Path(os.path.realpath(path))
        if real.is_file() and real.stat().st_size < 5_000_000:
            with real.open("rb") as stream:
                head = stream.read(18)
            if head[:5] == b"\x7fELF\2" and head[16:17] in {b"\2", b"\3"}:
                found.setdefault(str(real), real)
    return list(islice(found.values(), 0, None, max(1, len(found) // count)))


def test_pyelftools_reads_the_same_facts_and_symbols():
    checked = 0
    for path in [Path(os.path.realpath("/bin/sh")), *_system_files(50)]:
        with path.open("rb") as stream:
            theirs = ELFFile(stream)
            dynamic = next((s for s in theirs.iter_segments() if isinstance(s, DynamicSegment)), None)
            if dynamic is None:
                continue
            tags = list(dynamic.iter_tags())
            elf = read_elf(path)
            assert elf.needed == tuple(t.needed for t in tags if t.entry.d_tag == "DT_NEEDED")
            assert elf.soname == next((t.soname for t in tags if t.entry.d_tag == "DT_SONAME"), None)
            assert elf.runpath == next((t.runpath for t in tags if t.entry.d_tag == "DT_RUNPATH"), None)
            assert elf.flags_1 == next((t.entry.d_val for t in tags if t.entry.d_tag == "DT_FLAGS_1"), 0)
            needs = [s for s in theirs.iter_sections() if isinstance(s, GNUVerNeedSection)]
            assert elf.versions == tuple(
                VersionNeed(need.name, tuple(a.name for a in rows))
                for s in needs
                for need, rows in s.iter_versions()
            )
            _same_symbols(path, theirs)
            checked += 1
    assert checked > 20


def _same_symbols(path: Path, theirs: ELFFile) -> None:
    table = theirs.get_section_by_name(".dynsym")
    assert isinstance(table, SymbolTableSection)
    rows = [(s.name, s.entry.st_shndx != "SHN_UNDEF") for s in table.iter_symbols() if s.name]
    with ElfFile(path) as file:
        mine = [(s.name, s.defined) for s in symbols(file)]
    assert mine == rows, path


@pytest.mark.parametrize(
    "options", [(), ("-no-pie",), ("-Wl,--hash-style=sysv",), ("-no-pie", "-Wl,-z,nosectionheader")]
)
def test_the_imports_of_a_program_that_exports_nothing(options, tmp_path):
    """Its DT_GNU_HASH is empty, and tells nothing of how many symbols there are."""
    (tmp_path / "x.c").write_text(
        '#include <dlfcn.h>\nint main(void) { return !dlopen("libq.so.1", RTLD_NOW); }\n'
    )
    command = [require("gcc"), *options, "x.c", "-o", "x"]
    if subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode:
        pytest.skip(f"this linker does not know {options}")
    assert Symbol("dlopen", defined=False) in _symbols(tmp_path / "x")


def test_readelf_reads_the_same_dynamic_section():
    files = [*_system_files(50)]
    told = subprocess.run(
        [require("readelf"), "-dW", *files], capture_output=True, text=True, check=True
    ).stdout
    parts = re.split(r"^File: (.*)$", told, flags=re.MULTILINE)[1:]
    assert len(parts) == 2 * len(files)
    for path, text in zip(parts[::2], parts[1::2], strict=True):
        elf = read_elf(path)
        assert list(elf.needed) == re.findall(r"\(NEEDED\).*\[(.*)\]", text)
        assert [elf.soname] == (re.findall(r"\(SONAME\).*\[(.*)\]", text) or [None])
        assert [elf.runpath] == (re.findall(r"\(RUNPATH\).*\[(.*)\]", text) or [None])


def _small_real_file() -> bytes:
    """A real program of this machine, the smallest of a few that are everywhere."""
    found = [Path(path) for name in ("true", "false", "echo") if (path := shutil.which(name))]
    return min((path.read_bytes() for path in found), key=len)


SEEDS = (WHOLE.build(), WHOLE.with_(sections=False).build(), _small_real_file())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid file with bytes flipped, fields overwritten, pieces moved, or its end cut off."""
    content = bytearray(draw(st.sampled_from(SEEDS)))
    near = min(len(content), 4096)
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, (near if draw(st.booleans()) else len(content)) - 9))
        match draw(st.sampled_from(("byte", "word", "small", "splice"))):
            case "byte":
                content[at] = draw(st.integers(0, 255))
            case "word":
                content[at : at + 8] = draw(st.binary(min_size=8, max_size=8))
            case "small":
                content[at & ~3 : (at & ~3) + 4] = draw(st.integers(0, 300)).to_bytes(4, "little")
            case _:
                start = draw(st.integers(0, len(content) - 1))
                piece = content[start : start + draw(st.integers(0, 200))]
                content[at : at + len(piece)] = piece
    if draw(st.booleans()):
        del content[draw(st.integers(0, len(content))) :]
    return bytes(content)


@settings(max_examples=400, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=mutated())
def test_a_damaged_file_gives_a_value_or_an_error_that_says_so(content, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(content)
    for question in (read_elf, _symbols, _notes, _strings):
        error = _refusal(question, path)
        assert error is None or (str(path) in error.what and error.why)


def _refusal(question: Callable[[Path], object], path: Path) -> DpackError | None:
    try:
        question(path)
    except DpackError as error:
        return error
    return None


def _symbols(path: Path) -> list[Symbol]:
    with ElfFile(path) as file:
        return list(symbols(file))


def _notes(path: Path) -> list[tuple[str, int, bytes]]:
    with ElfFile(path) as file:
        return list(file.notes())


def _strings(path: Path) -> tuple[str, ...]:
    with ElfFile(path) as file:
        return library_names(file)


def test_version_tables_that_never_end_are_refused(tmp_path):
    """Two chains whose steps are one byte long: read as they stand, they would be walked millions of times."""
    content = bytearray(Tiny(versions=(("liba.so", tuple(f"V{n}" for n in range(1200))),) * 30).build())
    table = content.index(struct.pack("<HH", 1, 1200))
    for row in range(30):
        at = table + row * (16 + 16 * 1200)
        struct.pack_into("<HHIII", content, at, 1, 1200, 1, 16, 16 + 16 * 1200)
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ElfError, match="more symbol versions"):
        read_elf(tmp_path / "x")
