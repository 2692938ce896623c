"""Symbol versions, compared with binutils on this machine's own libraries, and on files that lie."""

import re
import struct
import subprocess
from pathlib import Path

import pytest
from builders.elf import Tiny, _sysv_hash
from builders.oracle import require
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.resolve.closure import Object
from packager.resolve.elf import ElfError, read_elf
from packager.resolve.search import How
from packager.resolve.versions import (
    Defined,
    Unmet,
    defined_versions,
    highest,
    unmet,
    wanted_versions,
)

SYSTEM = sorted(
    {
        path.resolve()
        for folder in ("/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/lib64")
        for path in Path(folder).glob("lib*.so.*")
        if path.is_file()
    }
)
CHOSEN = [
    *SYSTEM[:: max(1, len(SYSTEM) // 40)],
    *(p for p in SYSTEM if re.match(r"lib(c|m|stdc|gcc_s)\W", p.name)),
]


def dumped(path):
    """objdump's view: the versions defined, and (library, version) to the symbols that want it."""
    head = subprocess.run([require("objdump"), "-p", path], capture_output=True, text=True, check=True).stdout
    table = subprocess.run(["objdump", "-T", path], capture_output=True, text=True, check=True).stdout
    _, _, definitions = head.partition("Version definitions:\n")
    rows = re.findall(r"^(\d+) 0x(\w\w) 0x\w+ (\S+)", definitions.partition("\n\n")[0], re.MULTILINE)
    defined = {name for _, flags, name in rows if flags != "01"}
    wanted, library = {}, ""
    for line in head.partition("Version References:\n")[2].splitlines():
        if hit := re.match(r"  required from (\S+):", line):
            library = hit[1]
        elif hit := re.match(r"    0x\w+ 0x(\w\w) (\d+) (\S+)", line):
            wanted[library, hit[3]] = set()
    for line in table.splitlines():
        if "*UND*" in line and (hit := re.search(r"\s\(?([\w.]+)\)?\s+(\S+)$", line)):
            for (_, version), symbols in wanted.items():
                if version == hit[1]:
                    symbols.add(hit[2])
    return defined, wanted


@pytest.mark.parametrize("path", CHOSEN, ids=lambda path: path.name)
def test_binutils_see_the_same(path):
    defined, expected = dumped(path)
    assert defined_versions(path) == defined
    found = {(each.library, each.version): set(each.symbols) for each in wanted_versions(path)}
    assert found.keys() == expected.keys()
    for key, symbols in found.items():
        same = [other for other in found if other[1] == key[1]]
        if len(same) == 1:  # objdump does not say of which library a version is
            assert symbols == expected[key], key


def test_this_machine_has_libraries_to_compare():
    assert {re.split(r"\W", path.name)[0] for path in CHOSEN} >= {"libc", "libm", "libgcc_s"}


def needing(*versions):
    return Tiny(soname="libneeds.so", needed=("libv.so.1",), versions=(("libv.so.1", versions),))


def as_object(path):
    return Object(str(path), str(path), str(path), read_elf(path), How.DEFAULT)


COMPILED = """\
extern int one(void), two(void), weak(void) __attribute__((weak));
int all(void) { return one() + two() + (weak ? weak() : 0); }
"""
LIBRARY = "int one(void) { return 1; } int two(void) { return 2; } int weak(void) { return 3; }"
MAP = {1: "V_1.9 { one; };", 2: "V_1.10 { two; } V_1.9;", 3: "V_2 { weak; } V_1.10;"}


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """libneeds.so wants V_1.9, V_1.10 and weakly V_2; old/libv.so.1 has the first alone, new/libv.so.1 all."""
    folder, compiler = tmp_path_factory.mktemp("versions"), require("gcc")

    def compiled(source, target, *flags):
        target.parent.mkdir(exist_ok=True)
        command = [compiler, "-shared", "-fPIC", "-nostdlib", "-xc", "-", "-xnone", "-o", target, *flags]
        subprocess.run(command, input=source, text=True, check=True)
        return target

    for name, rows in (("old", 1), ("new", 3), ("none", 0)):
        script = folder / f"{name}.map"
        script.write_text("\n".join(MAP[number] for number in range(1, rows + 1)))
        flags = [f"-Wl,--version-script={script}"] if rows else []
        compiled(LIBRARY, folder / name / "libv.so.1", "-Wl,-soname,libv.so.1", *flags)
    path = compiled(COMPILED, folder / "libneeds.so", "-Wl,-soname,libneeds.so", folder / "new/libv.so.1")
    hashed = struct.pack("<I", _sysv_hash("V_2"))  # ld does not set VER_FLG_WEAK
    content = path.read_bytes()
    assert content.count(hashed + b"\0\0") == 1
    path.write_bytes(content.replace(hashed + b"\0\0", hashed + b"\2\0"))
    return folder


def test_each_symbol_stands_with_its_version(built):
    rows = [(each.version, each.symbols, each.weak) for each in wanted_versions(built / "libneeds.so")]
    assert sorted(rows) == [("V_1.10", ("two",), False), ("V_1.9", ("one",), False), ("V_2", ("weak",), True)]


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        ("new", ()),
        ("none", ()),  # a library without versions satisfies the loader
        ("old", (Unmet("libneeds.so", "libv.so.1", "V_1.10", ("two",)),)),  # V_2 is wanted weakly
    ],
)
def test_what_is_unmet(built, provider, expected):
    offered = Defined({"libv.so.1": defined_versions(built / provider / "libv.so.1")})
    assert unmet([as_object(built / "libneeds.so")], offered) == expected


def test_a_library_that_is_not_there_is_another_matter(built):
    assert unmet([as_object(built / "libneeds.so")], Defined({})) == ()


def test_an_unmet_version_reads_well():
    assert (
        str(Unmet("app", "libc.so.6", "GLIBC_2.38", ("a", "b"))) == "app wants GLIBC_2.38 of libc.so.6 (a, b)"
    )
    assert str(Unmet("app", "libc.so.6", "V", ("a", "b", "c", "d"))).endswith("(a, b, c, …)")
    assert (
        str(Unmet("app", "libc.so.6", "GLIBC_ABI_DT_RELR", ())) == "app wants GLIBC_ABI_DT_RELR of libc.so.6"
    )


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        ((), {}),
        (("GLIBC_2.9", "GLIBC_2.34", "GLIBC_PRIVATE", "GLIBC_2.2.5"), {"GLIBC": "2.34"}),
        (
            ("GLIBCXX_3.4.9", "GLIBCXX_3.4.30", "CXXABI_1.3", "CXXABI_TM_1"),
            {"CXXABI": "1.3", "CXXABI_TM": "1", "GLIBCXX": "3.4.30"},
        ),
    ],
)
def test_highest(versions, expected):
    assert highest(versions) == expected


def test_files_without_versions(tmp_path):
    path = Tiny(soname="libx.so").write(tmp_path / "libx.so")
    assert (defined_versions(path), wanted_versions(path)) == (frozenset(), ())
    path = Tiny(interp="/ld.so", dynamic=False).write(tmp_path / "static")
    assert (defined_versions(path), wanted_versions(path)) == (frozenset(), ())


def test_versions_without_a_table_of_symbols(tmp_path):
    path = needing("V_1").write(tmp_path / "libneeds.so")
    assert [(each.version, each.symbols) for each in wanted_versions(path)] == [("V_1", ())]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=12), st.integers(0, 1))
def test_damaged_files_end_in_an_error(built, tmp_path_factory, changes, which):
    content = bytearray((built / ("new/libv.so.1" if which else "libneeds.so")).read_bytes())
    head = min(len(content), 0x3000)
    for offset, value in changes:
        content[64 + offset % (head - 64)] = value
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(content)
    try:
        assert len(defined_versions(path)) <= 1 << 14
        assert len(wanted_versions(path)) <= 1 << 14
    except ElfError:
        pass


@pytest.mark.parametrize("tag", [0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF, 0x6FFFFFF0, 5, 10])
@pytest.mark.parametrize("value", [0, 1, 0x1FF8, 1 << 31, (1 << 64) - 1])
def test_tags_that_point_anywhere(built, tmp_path, tag, value):
    for source in (built / "new/libv.so.1", built / "libneeds.so"):
        content = bytearray(source.read_bytes())
        at = content.find(struct.pack("<Q", tag), 0x1000)
        while at >= 0:
            if at % 8 == 0:
                content[at + 8 : at + 16] = struct.pack("<Q", value)
            at = content.find(struct.pack("<Q", tag), at + 8)
        path = tmp_path / source.name
        path.write_bytes(content)
        try:
            defined_versions(path)
            wanted_versions(path)
        except ElfError:
            pass
