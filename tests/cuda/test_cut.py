"""A cut file is smaller, loads, and holds what was kept, bit for bit."""

import ctypes
import mmap
import os
import random
import struct
import subprocess
import sys
import tempfile
from types import SimpleNamespace
from unittest import mock

import pytest
from builders.fatbin import container, cubin, member, shared_object
from builders.oracle import require
from cutting import Memory, check_file, check_loaded, check_memory, contents, sliced
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packager.arch import Gpu
from packager.cuda import instructions
from packager.cuda.cut import plan_cut, write
from packager.cuda.image import SHF_EXECINSTR, Mapped, read_image
from packager.cuda.layout import table_limit
from packager.cuda.scan import read_gpu_code
from packager.cuda.select import Policy, keep
from packager.errors import DpackError

ARCHES = ("sm_50", "sm_75", "sm_80", "sm_86", "sm_90a", "sm_100", "sm_120f", "compute_120")


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def code(name, size=30000, seed=1):
    """A member whose payload no compressor and no zero test takes for nothing."""
    content = cubin(name, code=noise(size, seed)) if name.startswith("sm") else None
    return member(name, content)


def fatbin(*names, size=30000):
    return container(*(code(name, size, seed) for seed, name in enumerate(names)))


def forget_sections(path):
    """Take the section headers off a file, and what only they lead to."""
    content = bytearray(path.read_bytes())
    struct.pack_into("<Q", content, 40, 0)
    struct.pack_into("<HHH", content, 58, 0, 0, 0)
    path.write_bytes(content[: max(row["p_offset"] + row["p_filesz"] for row in Memory(path).segments)])


ALL = fatbin(*ARCHES)
LAYOUTS = {
    "one segment for code and data": ("-Wl,-z,noseparate-code",),
    "a segment for each kind": ("-Wl,-z,separate-code",),
    "2 MiB pages": ("-Wl,-z,noseparate-code,-z,max-page-size=0x200000",),
    "full relro": ("-Wl,-z,relro,-z,now",),
    "stripped": ("-s",),
    "debug": ("-g",),
    "sysv hash": ("-Wl,--hash-style=sysv",),
}


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda name: name.replace(" ", "-"))
def library(request, tmp_path_factory):
    """Packed containers, containers among other data, and a cubin of its own, as cuBLASLt has them."""
    sections = {
        ".nv_fatbin": [ALL, fatbin("sm_100", "sm_90a"), fatbin("sm_86"), fatbin("sm_80", "sm_90a")],
        ".cask_resource": [noise(5000, 2), fatbin("sm_90a", "sm_86"), noise(5000, 3), fatbin("sm_90a")],
        ".ldata": [noise(700, 4), cubin("sm_100", code=noise(50000)), cubin("sm_80", code=noise(9000, 5))],
    }
    return shared_object(tmp_path_factory.mktemp("built"), sections, flags=LAYOUTS[request.param])


@pytest.mark.parametrize("gpus", [("8.6",), ("9.0",), ("7.0",), ("12.0", "8.0")], ids="+".join)
def test_every_promise_holds(library, tmp_path, gpus):
    done = sliced(library, tmp_path / "cut", *gpus)
    assert done.cut.removed > 200_000
    assert not done.cut.left
    assert [each.technique for each in done.cut.sections] == ["packed", "in place", "in place"]
    check_file(done)
    check_loaded(done)


def test_cutting_twice_changes_nothing(library, tmp_path):
    once = sliced(library, tmp_path / "once", "8.6")
    twice = sliced(once.path, tmp_path / "twice", "8.6")
    assert twice.cut.assembly is None
    assert twice.path.read_bytes() == once.path.read_bytes()


def test_a_cut_of_a_cut_is_the_cut(library, tmp_path):
    both = sliced(library, tmp_path / "both", "8.6", "9.0")
    second = sliced(both.path, tmp_path / "second", "8.6")
    assert second.path.read_bytes() == sliced(library, tmp_path / "at-once", "8.6").path.read_bytes()
    third = sliced(both.path, tmp_path / "third", "9.0")
    assert third.path.read_bytes() == sliced(library, tmp_path / "at-once", "9.0").path.read_bytes()


def test_the_same_input_gives_the_same_output(library, tmp_path, monkeypatch):
    first = sliced(library, tmp_path / "first", "8.6").path.read_bytes()
    monkeypatch.chdir(tmp_path)
    os.umask(os.umask(0o077))
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    assert sliced(library, tmp_path / "second", "8.6").path.read_bytes() == first


def test_gdb_says_the_same_of_both(library, tmp_path):
    done = sliced(library, tmp_path / library.name, "8.6")
    gdb = [
        require("gdb"),
        "-batch",
        "-nx",
        "-ex",
        "info files",
        "-ex",
        "disassemble answer",
        "-ex",
        "x/8xb answer",
    ]
    before, after = (
        subprocess.run([*gdb, library.name], cwd=each.parent, capture_output=True, text=True, check=True)
        for each in (library, done.path)
    )
    assert "End of assembler dump" in after.stdout
    assert after.stderr.replace(str(tmp_path), "") == before.stderr.replace(str(library.parent), "")
    code_of = [text.stdout.partition("Dump of assembler")[2] for text in (before, after)]
    assert code_of[0] == code_of[1]


def wrapper_targets(path):
    """Where the wrappers of a library point once it is loaded, as offsets from its base, and how many members
    stand there.
    """
    script = """\
import ctypes, struct, sys
path, start, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
ctypes.CDLL(path)
base = min(int(r.split("-")[0], 16) for r in open("/proc/self/maps") if r.rstrip().endswith(path))
for row in struct.iter_unpack("<IIQQ", ctypes.string_at(base + start, 24 * count)):
    magic, version, size, body = struct.unpack("<IHHQ", ctypes.string_at(row[2], 16))
    print(hex(row[0]), hex(magic), body, ctypes.string_at(row[2] + 16, body).hex()[:8])
"""
    header = next(h for name, h in Memory(path).sections if name == ".nvFatBinSegment")
    count = header["sh_size"] // 24
    command = [sys.executable, "-c", script, str(path), str(header["sh_addr"]), str(count)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_every_wrapper_finds_its_container_where_it_moved(library, tmp_path):
    done = sliced(library, tmp_path / "cut", "8.6")
    sizes = [each.size - 16 for each in done.after.containers if each.section == ".nv_fatbin"]
    first = ["02000101" if size else "" for size in sizes]
    expected = [
        f"0x466243b1 0xba55ed50 {size} {head}".rstrip() for size, head in zip(sizes, first, strict=True)
    ]
    assert [line.rstrip() for line in wrapper_targets(done.path)] == expected
    assert 0 in sizes


def test_nothing_goes_from_a_file_that_needs_all_of_it(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [fatbin("sm_86"), fatbin("sm_80")]})
    done = sliced(path, tmp_path / "cut", "8.6")
    assert done.cut.removed == 0
    assert done.path.read_bytes() == path.read_bytes()
    assert done.path.stat().st_mode & 0o777 == 0o755


def test_what_frees_no_page_stays(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [fatbin("sm_86", "sm_90a", size=100)]})
    done = sliced(path, tmp_path / "cut", "8.6")
    assert done.path.read_bytes() == path.read_bytes()
    assert [left.reason for left in done.cut.left] == ["too little goes to free a page"]
    assert [str(piece.arch) for piece in done.cut.kept] == ["sm_86", "sm_90a"]


ASIDE = {
    "code takes a container's address": ("leaq .Lnv_fatbin1(%rip), %rax", ".text", "ax"),
    "data points at a container": (".quad .Lnv_fatbin1", ".data", "aw"),
    "data points into a container": (".quad .Lnv_fatbin1 + 32", ".data", "aw"),
    "a symbol names a container": (".globl named\n.set named, .Lnv_fatbin1", ".nv_fatbin", "a"),
    "other data stands in the section": ('.ascii "other data"', ".nv_fatbin", "a"),
}


def with_assembly(folder, why, align=8):
    """A library of two containers in .nv_fatbin, and a few lines of assembly behind them."""
    text, section, mode = ASIDE[why]
    extra = folder / "extra.s"
    path = shared_object(
        folder,
        {".nv_fatbin": [fatbin("sm_86", "sm_90a"), fatbin("sm_90a", "sm_80", "sm_100")]},
        align=align,
        flags=["-Wl,-z,noseparate-code"],
    )
    lines = (folder / "gpu.s").read_text()
    extra.write_text(f'{lines}\n.section {section},"{mode}",%progbits\n.balign 8\n{text}\n')
    command = ["cc", "-shared", "-fPIC", "-Wl,-z,noseparate-code", folder / "answer.c", extra, "-o", path]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="assembly of x86_64")
@pytest.mark.parametrize("why", ASIDE)
def test_what_is_not_proven_stays_at_its_address(tmp_path, why):
    path = with_assembly(tmp_path, why)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert [each.technique for each in done.cut.sections] == ["in place"]
    assert [each.address for each in done.after.containers] == [each.address for each in done.code.containers]
    left = "a container" in why and "into" in why
    assert [each.reason for each in done.cut.left] == ["something points into what would go"] * left
    check_file(done, complete=not left)
    check_loaded(done)
    again = sliced(sliced(path, tmp_path / "both", "8.6", "9.0").path, tmp_path / "again", "8.6")
    assert again.path.read_bytes() == done.path.read_bytes()


def test_without_section_headers_addresses_stay(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [ALL, ALL]}, flags=["-s"])
    forget_sections(path)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert done.cut.removed > 300_000
    assert contents(done.path, done.after)[:2] == [[code("sm_86", seed=3)]] * 2
    assert ctypes.CDLL(str(done.path)).answer() == 42


@pytest.mark.parametrize("before", ["the end", "the section headers"])
def test_data_that_nothing_leads_to_is_not_lost(tmp_path, before):
    path = shared_object(tmp_path, {".nv_fatbin": [ALL]})
    content = path.read_bytes()
    (table,) = struct.unpack_from("<Q", content, 40)
    at = len(content) if before == "the end" else table
    content = content[:at] + b"a payload" + bytes(7) + content[at:]
    moved = struct.pack("<Q", table if before == "the end" else table + 16)
    path.write_bytes(content[:40] + moved + content[48:])
    done = sliced(path, tmp_path / "cut", "8.6")
    assert done.path.read_bytes() == path.read_bytes()
    assert "data that no section" in done.cut.left[0].reason


def test_alignment_of_containers_is_kept(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [ALL, fatbin("sm_90a"), ALL]}, align=256)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert {each.address % 256 for each in done.after.containers} == {0}
    check_file(done)


def test_a_file_that_changed_is_refused(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [ALL]})
    done = sliced(path, tmp_path / "cut", "8.6")
    path.write_bytes(path.read_bytes() + bytes(8))
    with pytest.raises(DpackError, match="changed after it was read"):
        write(path, tmp_path / "again", done.cut)
    with pytest.raises(DpackError, match="changed after it was read"):
        plan_cut(done.code, done.selection)


MAIN = """
#define _GNU_SOURCE
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
extern const unsigned char first[], last[];
static int seen(struct dl_phdr_info *info, size_t size, void *count) { *(int *)count = info->dlpi_phnum; return 1; }
int main(int count, char **arguments) {
    int headers = 0;
    dl_iterate_phdr(seen, &headers);
    const ElfW(Phdr) *table = (void *)getauxval(AT_PHDR);
    printf("%d %d %d %02x %02x\\n", headers, headers == (int)getauxval(AT_PHNUM), table[0].p_type, *first, *last);
    return 0;
}
"""


def program(folder, *flags, early=False, fat=ALL):
    """A program with two containers, their wrappers and two bytes of its own; one more between these, if asked."""
    (folder / "fat.bin").write_bytes(fat)
    quoted = f'"{folder}/fat.bin"' if early else ""
    (folder / "main.c").write_text(MAIN)
    (folder / "gpu.s").write_text(f"""
.section .nv_fatbin,"a",%progbits
.balign 8
.La: .incbin "{folder}/fat.bin"
.Lb: .incbin "{folder}/fat.bin"
.section .nvFatBinSegment,"aw",%progbits
.long 0x466243B1, 1
.quad .La, 0
.long 0x466243B1, 1
.quad .Lb, 0
.section .rodata,"a",%progbits
.globl first, last
first: .byte 0x11
{f".balign 8{chr(10)}.incbin {quoted}" if quoted else ""}
last: .byte 0x22
.section .note.GNU-stack,"",%progbits
""")
    path = folder / "program"
    command = [require("cc"), folder / "main.c", folder / "gpu.s", *flags, "-o", path]
    subprocess.run(command, check=True, capture_output=True)
    return path


PROGRAMS = {
    "position-independent": (["-pie", "-fPIE"], "packed"),
    "fixed address": (["-no-pie"], "in place"),
    "2 MiB pages": (["-pie", "-fPIE", "-Wl,-z,max-page-size=0x200000"], "packed"),
    "position-independent, one segment": (["-pie", "-fPIE", "-Wl,-z,noseparate-code"], "packed"),
    "fixed address, one segment": (["-no-pie", "-Wl,-z,noseparate-code"], "in place"),
    "static": (["-static"], "in place"),
    "static, position-independent": (["-static-pie", "-fPIE"], "packed"),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_a_program_starts_and_finds_its_headers(tmp_path, kind):
    flags, technique = PROGRAMS[kind]
    path = program(tmp_path, *flags)
    before = subprocess.run([path], capture_output=True, text=True, check=True).stdout.split()
    done = sliced(path, tmp_path / "cut", "8.6")
    assert not done.cut.left
    assert [each.technique for each in done.cut.sections] == [technique]
    assert done.cut.removed > 300_000
    after = subprocess.run([done.path], capture_output=True, text=True, check=True).stdout.split()
    assert after == [str(done.cut.segments), *before[1:]]
    assert done.cut.segments <= table_limit(read_image(path)) == 73
    assert contents(done.path, done.after)[:2] == [[code("sm_86", seed=3)]] * 2
    check_memory(done)


def test_what_lies_before_the_place_of_a_program_s_headers_stays(tmp_path):
    path = program(tmp_path, "-pie", "-fPIE", early=True)
    before = subprocess.run([path], capture_output=True, text=True, check=True).stdout.split()
    done = sliced(path, tmp_path / "cut", "8.6")
    assert [(left.section, "no room" in left.reason) for left in done.cut.left] == [(".rodata", True)]
    assert [each.technique for each in done.cut.sections] == ["", "packed"]
    after = subprocess.run([done.path], capture_output=True, text=True, check=True).stdout.split()
    assert after == [str(done.cut.segments), *before[1:]]
    both = sliced(path, tmp_path / "both", "8.6", "9.0")
    assert sliced(both.path, tmp_path / "again", "8.6").path.read_bytes() == done.path.read_bytes()


@pytest.mark.parametrize(("section", "technique"), [(".nv_fatbin", "packed"), (".cask_resource", "in place")])
def test_zeros_at_the_end_of_what_stays_are_in_the_file(tmp_path, section, technique):
    """A page of them belongs to the container, though memory would be the same without it."""

    def library(size):
        stays = member("sm_86", cubin("sm_86", code=noise(20_000)) + bytes(size))
        return shared_object(tmp_path, {section: [container(stays, code("sm_90a"))]})

    def end(path):
        (only,) = read_gpu_code(path).containers
        return only.address + only.header_size + only.members[0].size

    path = library(0x1000 - end(library(0)) % 0x1000 + 64)
    assert end(path) % 0x1000 == 64
    done = sliced(path, tmp_path / "cut", "8.6")
    assert technique in [each.technique for each in done.cut.sections]
    check_file(done)
    assert end(done.path) == end(path)
    assert sliced(done.path, tmp_path / "twice", "8.6").cut.assembly is None


def test_a_program_of_which_an_earlier_cut_finished_the_first_section(tmp_path):
    """The first cut made room for the program headers; the second finds it there."""
    (tmp_path / "data.bin").write_bytes(fatbin("sm_86", "sm_90a"))
    extra = tmp_path / "data.s"
    extra.write_text(f'.section .data,"aw",%progbits\n.balign 8\n.incbin "{tmp_path}/data.bin"\n')
    path = program(tmp_path, "-pie", "-fPIE", str(extra), fat=fatbin("sm_86", "sm_75"))
    done = sliced(path, tmp_path / "cut", "8.6")
    assert [(each.name, each.technique) for each in done.cut.sections] == [
        (".nv_fatbin", "packed"),
        (".data", "in place"),
    ]
    both = sliced(path, tmp_path / "both", "8.6", "9.0")
    assert sliced(both.path, tmp_path / "again", "8.6").path.read_bytes() == done.path.read_bytes()


def test_a_variable_keeps_its_alignment_whichever_segment_asks_for_it(tmp_path):
    """GNU ld gives each segment the p_align of its own sections: the first has less than a later one."""
    extra = tmp_path / "big.c"
    extra.write_text("""
static char big[8] __attribute__((aligned(1 << 18))) = {1};
unsigned long beside(void) { char *p = big; __asm__("" : "+r"(p)); return (unsigned long)p % (1 << 18); }
""")
    path = shared_object(tmp_path, {".nv_fatbin": [ALL]}, flags=[str(extra)])
    done = sliced(path, tmp_path / "cut", "8.6")
    aligned = [max(row["p_align"] for row in Memory(each).segments) for each in (path, done.path)]
    assert aligned == [1 << 18, 1 << 18]
    assert ctypes.CDLL(str(done.path)).beside() == 0
    assert sliced(done.path, tmp_path / "twice", "8.6").cut.assembly is None


def test_without_section_headers_what_runs_stays_executable(tmp_path):
    """CPU code between two containers, in a segment of which nobody knows the sections."""
    (tmp_path / "fat.bin").write_bytes(ALL)
    extra = tmp_path / "between.s"
    extra.write_text(f"""
.text
.balign 4096
.incbin "{tmp_path}/fat.bin"
.globl between
.type between, @function
between: mov $7, %eax
ret
.balign 8
.incbin "{tmp_path}/fat.bin"
""")
    path = shared_object(tmp_path, {}, flags=[str(extra)])
    forget_sections(path)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert ctypes.CDLL(str(path)).between() == ctypes.CDLL(str(done.path)).between() == 7


def test_without_section_headers_exported_names_still_count(tmp_path):
    """The loader knows them by the dynamic section."""
    (tmp_path / "fat.bin").write_bytes(ALL)
    extra = tmp_path / "exported.s"
    extra.write_text(f"""
.section .rodata,"a",%progbits
.balign 8
fatbin: .incbin "{tmp_path}/fat.bin"
.globl inside
.type inside, @object
.set inside, fatbin + 100000
""")
    path = shared_object(tmp_path, {}, flags=[str(extra)])
    forget_sections(path)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert [left.reason for left in done.cut.left] == ["something points into what would go"]
    assert done.cut.assembly is None


def test_a_section_that_the_loader_writes_to_is_not_packed(tmp_path):
    """A relative relocation inside a member that stays: its place would not move with the member."""
    whole = container(code("sm_90a"), code("sm_86"))
    (tmp_path / "before").write_bytes(whole[:50_000])
    (tmp_path / "behind").write_bytes(whole[50_008:])
    source = tmp_path / "written.s"
    source.write_text(f"""
.section .nv_fatbin,"aw",%progbits
.balign 8
.La: .incbin "{tmp_path}/before"
.quad .Ldata
.incbin "{tmp_path}/behind"
.section .nvFatBinSegment,"aw",%progbits
.balign 8
.long 0x466243B1, 1
.quad .La, 0
.data
.Ldata: .quad 1
""")
    command = [require("cc"), "-nostdlib", "-shared", source, "-o", tmp_path / "written.so"]
    subprocess.run(command, check=True)
    done = sliced(tmp_path / "written.so", tmp_path / "cut", "8.6")
    assert done.cut.assembly is None
    assert [left.section for left in done.cut.left] == [".nv_fatbin"]


def test_a_section_at_no_address_keeps_a_place_in_the_file(tmp_path):
    """An empty .bss at address 0 lies before every segment of a program at a fixed address."""
    path = program(tmp_path, "-no-pie")
    content = bytearray(path.read_bytes())
    image = read_image(path)
    (table,) = struct.unpack_from("<Q", content, 40)
    struct.pack_into("<Q", content, table + 64 * image.names.index(".bss") + 16, 0)
    path.write_bytes(content)
    assert sliced(path, tmp_path / "cut", "8.6").cut.removed > 300_000


def test_on_aarch64_every_hole_fits_kernels_with_64_kib_pages(tmp_path):
    big = fatbin("sm_86", "sm_90a", "sm_100", size=200_000)
    sections = {".nv_fatbin": [big, big], ".cask_resource": [noise(3000), big, noise(3000, 2), big]}
    path = shared_object(tmp_path, sections, align=256, compiler="aarch64-linux-gnu-gcc")
    done = sliced(path, tmp_path / "cut", "8.6")
    assert [each.technique for each in done.cut.sections] == ["packed", "in place"]
    check_file(done)
    for row in Memory(done.path).segments:
        assert row["p_vaddr"] % 0x10000 == row["p_offset"] % 0x10000
        assert row["p_align"] % 0x10000 == 0
    qemu = [require("qemu-aarch64"), "-L", "/usr/aarch64-linux-gnu"]
    (tmp_path / "main.c").write_text("int answer(void); int main(void) { return answer(); }\n")
    command = [require("aarch64-linux-gnu-gcc"), tmp_path / "main.c", done.path, "-o", tmp_path / "main"]
    subprocess.run([*command, f"-Wl,-rpath,{tmp_path}"], check=True)
    for page in ("4096", "65536"):
        assert subprocess.run([*qemu, "-p", page, tmp_path / "main"], check=False).returncode == 42


def test_adr_and_adrp_are_found(tmp_path):
    """The address of a container taken by aarch64 code, in the middle of a page and beside other data."""
    (tmp_path / "fat.bin").write_bytes(fatbin("sm_86", "sm_90a"))
    pair, single = "adrp x0, {0}\nadd x0, x0, :lo12:{0}\n", "adr x0, {0}\n"
    uses = (pair.format(".Lb"), pair.format(".La"), single.format(".Lb"), single.format(".La"), "")
    for number, text in enumerate(uses):
        source, path = tmp_path / f"{number}.s", tmp_path / f"{number}.so"
        source.write_text(f"""
.text
adrp x1, .Lother
add x1, x1, :lo12:.Lother
adr x1, .Lother
{text}ret
.section .rodata,"a",%progbits
.Lother: .quad 1
.section .nv_fatbin,"a",%progbits
.balign 8
.La: .incbin "{tmp_path}/fat.bin"
.Lb: .incbin "{tmp_path}/fat.bin"
""")
        command = [require("aarch64-linux-gnu-gcc"), "-nostdlib", "-shared", source, "-o", path]
        subprocess.run(command, check=True)
        image = read_image(path)
        header = image.headers[image.names.index(".nv_fatbin")]
        with Mapped(path) as content:
            assert instructions.code_refers(image, content, header.address, header.end) == bool(text)


_NOP = 0xD503201F


@st.composite
def _aarch64_code(draw):
    """The address of some code, its words, a range, and whether one of the words names an address in it."""
    address, start = draw(st.integers(1, 1 << 16)) << 12, draw(st.integers(0, 1 << 25)) << 3
    size = draw(st.sampled_from((8, 4096, 100_000, 70_000_000)))
    words = [_NOP] * draw(st.integers(1, 64))
    refers = False
    for place in draw(st.sets(st.integers(0, len(words) - 1), max_size=8)):
        at = address + 4 * place
        near = (
            draw(st.sampled_from((start, start + size // 2, start + size)))
            + draw(st.integers(-3000, 3000)) * 8
        )
        paged = draw(st.booleans())
        number = (near >> 12) - (at >> 12) if paged else near - at
        if not -(1 << 20) <= number < 1 << 20:
            continue
        words[place] = paged << 31 | (number & 3) << 29 | 0x10000000 | (number >> 2 & 0x7FFFF) << 5
        first, last = ((near >> 12) << 12, (near >> 12) + 1 << 12) if paged else (near, near + 1)
        refers |= first < start + size and start < last
    return address, words, start, start + size, refers


@settings(max_examples=300)
@given(_aarch64_code(), st.sampled_from((8, 64, 1 << 22)))
def test_adr_and_adrp_are_read_as_one_by_one(made, block):
    address, words, start, end, refers = made
    code = struct.pack(f"<{len(words)}I", *words)
    text = SimpleNamespace(address=address, offset=0, size=len(code), flags=SHF_EXECINSTR, type=1)
    image = SimpleNamespace(machine=SimpleNamespace(name="aarch64"), headers=[text])
    with tempfile.TemporaryFile() as file, mock.patch.object(instructions, "_BLOCK", block):
        file.write(code)
        file.flush()
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
            assert instructions.code_refers(image, content, start, end) == refers


@st.composite
def libraries(draw):
    names = st.lists(st.sampled_from(ARCHES), max_size=5, unique=True)
    blob = st.tuples(names, st.sampled_from((0, 200, 5000, 40000))).map(
        lambda row: fatbin(*row[0], size=row[1])
    )
    other = st.integers(1, 9000).map(lambda size: noise(size, size))
    zeros = st.integers(1, 9000).map(bytes)
    loose = st.sampled_from(("sm_80", "sm_100")).map(lambda name: cubin(name, code=noise(7000)))
    mixed = st.lists(st.one_of(blob, other, zeros, loose), max_size=6)
    sections = {".nv_fatbin": draw(st.lists(blob, min_size=1, max_size=8))}
    for name in (".cask_resource", ".ldata", ".data"):
        sections[name] = draw(mixed)
    flags = draw(st.sampled_from(sorted(LAYOUTS)))
    return (
        {name: blobs for name, blobs in sections.items() if blobs},
        LAYOUTS[flags],
        draw(st.sampled_from((8, 64, 256))),
    )


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    libraries(),
    st.sampled_from(("7.5", "8.6", "9.0")),
    st.sampled_from(("8.0", "10.0", "12.1")),
    st.booleans(),
)
def test_any_library_keeps_its_promises(tmp_path_factory, built, gpu, other, minors):
    sections, flags, align = built
    folder = tmp_path_factory.mktemp("any")
    path = shared_object(folder, sections, flags=flags, align=align)
    policy = Policy(prior_minors=minors)
    done = sliced(path, folder / "cut", gpu, policy=policy)
    check_file(done, complete=not done.cut.left)
    check_loaded(done)
    both = sliced(path, folder / "both", gpu, other, policy=policy)
    assert sliced(both.path, folder / "again", gpu, policy=policy).path.read_bytes() == done.path.read_bytes()
    assert sliced(done.path, folder / "twice", gpu, policy=policy).cut.assembly is None


def test_a_file_that_changes_before_it_is_written_is_no_slice(tmp_path):
    path = shared_object(tmp_path, {".nv_fatbin": [ALL]})
    code = read_gpu_code(path)
    cut = plan_cut(code, keep(code, [Gpu.of("8.6")]))
    os.utime(path, ns=(0, code.modified + 1))  # as long as before
    with pytest.raises(DpackError, match="changed after it was read"):
        write(path, tmp_path / "cut", cut)
    with pytest.raises(DpackError, match="changed after it was read"):
        plan_cut(code, keep(code, [Gpu.of("8.6")]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_files_end_in_an_error_or_in_a_file_of_the_planned_size(damaged, data):
    good, path = damaged
    content = bytearray(good)
    for _ in range(data.draw(st.integers(1, 6))):
        places = st.one_of(st.integers(0, 1200), st.integers(len(good) - 4000, len(good) - 1))
        at = data.draw(places)
        content[at] = data.draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xFF)))
    path.write_bytes(content[: data.draw(st.sampled_from((len(good), len(good) - 100, 2000)))])
    try:
        done = sliced(path, path.with_name("cut"), "8.6")
    except DpackError:
        return
    assert done.path.stat().st_size == done.cut.size <= len(content)


@pytest.fixture(scope="module", params=[False, True], ids=["linked", "cut-before"])
def damaged(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("damaged")
    sections = {".nv_fatbin": [fatbin("sm_86", "sm_90a"), fatbin("sm_90a")], ".ldata": [fatbin("sm_75")]}
    path = shared_object(folder, sections, flags=["-s"])
    if request.param:
        path = sliced(path, folder / "cut-before", "8.6", "7.5").path
    return path.read_bytes(), folder / "damaged.so"


def test_relative_relocations_in_a_bitmap_are_read(tmp_path):
    flags = ["-Wl,-z,pack-relative-relocs"]
    sections = {".nv_fatbin": [ALL, fatbin("sm_90a")]}
    try:
        path = shared_object(tmp_path, sections, flags=flags)
    except subprocess.CalledProcessError:
        pytest.skip("this linker cannot pack relocations")
    done = sliced(path, tmp_path / "cut", "8.6")
    check_file(done)
    if (
        "DT_RELR"
        in subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
    ):
        assert [each.technique for each in done.cut.sections] == ["packed"]
    check_loaded(done)


def test_a_library_of_more_holes_than_headers_may_be_cuts_the_larger_ones(tmp_path):
    small, large = fatbin("sm_86", "sm_90a", size=5000), fatbin("sm_86", "sm_90a", size=20000)
    sections = {".ldata": [noise(64), *[small] * 2100, *[large] * 30]}
    path = shared_object(tmp_path, sections)
    done = sliced(path, tmp_path / "cut", "8.6")
    assert 32 < done.cut.segments <= 2048
    assert done.cut.removed > 400_000
    check_loaded(done)
    read = read_gpu_code(done.path)
    assert {len(each.members) for each in read.containers} == {1}
