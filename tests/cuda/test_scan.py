"""A file's GPU code: every section, what no container holds, what only looks like one, and damaged files."""

import ctypes
import subprocess
from itertools import pairwise

import pytest
from builders.elf import AARCH64, Tiny
from builders.fatbin import (
    compressed,
    container,
    cubin,
    elf_file,
    member,
    offsets,
    shared_object,
    wrapper,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packager.arch import spelling
from packager.cuda import scan
from packager.cuda.fatbin import MAGIC
from packager.cuda.scan import read_gpu_code
from packager.errors import DpackError


def found(path):
    """Section, then what each container holds, in the order of the file."""
    code = read_gpu_code(path)
    return [
        (each.section, " ".join(spelling(m.kind, m.arch) for m in each.members)) for each in code.containers
    ]


def written(path, *arguments, **options):
    path.write_bytes(elf_file(*arguments, **options))
    return path


def test_every_section_is_searched_and_false_containers_are_not_believed(tmp_path):
    lying = bytearray(container("sm_80"))
    lying[8] ^= 8
    sections = {
        ".text": b"\x90" * 24 + MAGIC + b"\x90" * 32 + bytes(lying),
        ".rodata": b"text....".ljust(40, b".") + container("sm_80", "lto_50"),
        ".nv_fatbin": container("sm_75", "compute_120") + bytes(200) + container() + container("sm_90a"),
        ".data": container("sm_120f"),
    }
    path = written(tmp_path / "program", sections, machine=AARCH64)
    assert found(path) == [
        (".rodata", "sm_80 lto_50"),
        (".nv_fatbin", "sm_75 compute_120"),
        (".nv_fatbin", ""),
        (".nv_fatbin", "sm_90a"),
        (".data", "sm_120f"),
    ]
    code = read_gpu_code(path, "shown")
    assert (code.path, code.machine.name, code.size) == ("shown", "aarch64", path.stat().st_size)
    assert [str(arch) for arch in code.arches] == ["sm_75", "sm_80", "sm_90a", "sm_120f"]
    assert code.names == (".rodata", ".nv_fatbin", ".data")
    assert code.containers[0].offset == offsets(sections)[".rodata"] + 40
    assert code.gpu_size == sum(member.size for member in code.members)


def test_segments_stand_for_sections_that_are_gone(tmp_path):
    path = written(tmp_path / "program", {".nv_fatbin": container("sm_80")}, headers=False)
    assert found(path) == [("PT_LOAD 0", "sm_80")]


def test_a_section_table_outside_the_file_counts_as_none(tmp_path):
    content = elf_file({".nv_fatbin": container("sm_80")})
    path = tmp_path / "program"
    path.write_bytes(content[:40] + (len(content) * 2).to_bytes(8, "little") + content[48:])
    assert found(path) == [("PT_LOAD 0", "sm_80")]


def test_cubins_outside_containers_are_found_whole(tmp_path):
    frame, raw = compressed(cubin("sm_80"), "zstd"), cubin("sm_120")
    sections = {
        ".ldata": b"??"
        + frame
        + b"???"
        + raw
        + b"\x28\xb5\x2f\xfdnot a frame"
        + compressed(b"text" * 99, "zstd"),
        ".lrodata": cubin("sm_90a") + raw[:-1],
        ".text": raw,
        ".nv_fatbin": container(member("sm_86", compression="zstd"), "sm_86"),
    }
    code = read_gpu_code(written(tmp_path / "program", sections))
    places = offsets(sections)
    rows = [(each.section, str(each.arch), each.offset, each.size, each.compressed) for each in code.loose]
    assert rows == [
        (".ldata", "sm_80", places[".ldata"] + 2, len(frame), "zstd"),
        (".ldata", "sm_120", places[".ldata"] + 5 + len(frame), len(raw), ""),
        (".lrodata", "sm_90a", places[".lrodata"], len(cubin("sm_90a")), ""),
    ]
    assert [each.uncompressed_size for each in code.loose[:2]] == [len(cubin("sm_80")), len(raw)]


def test_an_elf_file_for_the_cpu_is_not_a_cubin(tmp_path):
    sections = {".rodata": Tiny(sections=True).build(), ".ldata": compressed(Tiny().build(), "zstd")}
    assert not read_gpu_code(written(tmp_path / "program", sections))


@pytest.mark.parametrize("width", [8, 9, 64, 100, 1000])
def test_what_lies_across_two_windows_is_found(tmp_path, monkeypatch, width):
    blob = b"".join(bytes(8 * n) + container("sm_80") + bytes(8 * n) for n in range(12))
    stream = b"".join(bytes(n) + compressed(cubin("sm_80"), "zstd") + bytes(n) for n in range(12))
    path = written(tmp_path / "program", {".nv_fatbin": blob, ".ldata": stream})
    monkeypatch.setattr(scan, "_WINDOW", width)
    code = read_gpu_code(path)
    assert (len(code.containers), len(code.loose)) == (12, 12)


def test_a_wrapped_container_has_a_wrapper_or_two(tmp_path):
    sections = {".nv_fatbin": container("sm_80") * 3}
    start, size = offsets(sections)[".nv_fatbin"], len(container("sm_80"))
    pointers = [start, start + size, start + size, 0]
    path = written(
        tmp_path / "program", sections | {".nvFatBinSegment": b"".join(wrapper(each) for each in pointers)}
    )
    assert [each.wrapped for each in read_gpu_code(path).containers] == [True, True, False]


def test_a_wrapper_that_follows_a_symbol_may_be_of_any_container(tmp_path):
    for number, exported in enumerate(("", ".globl fatbin")):
        (tmp_path / "fatbin").write_bytes(container("sm_80"))
        (tmp_path / f"{number}.s").write_text(f"""
.section .nv_fatbin,"a",%progbits
.balign 8
.incbin "{tmp_path}/fatbin"
{exported}
fatbin: .incbin "{tmp_path}/fatbin"
.section .nvFatBinSegment,"aw",%progbits
.long 0x466243B1, 1
.quad fatbin, 0
""")
        command = ["cc", "-nostdlib", "-shared", tmp_path / f"{number}.s", "-o", tmp_path / f"{number}.so"]
        subprocess.run(command, check=True)
    assert [each.wrapped for each in read_gpu_code(tmp_path / "0.so").containers] == [False, True]
    assert [each.wrapped for each in read_gpu_code(tmp_path / "1.so").containers] == [True, True]


def test_a_real_shared_object_has_its_wrappers_in_relocations(tmp_path):
    sections = {
        ".nv_fatbin": [container("sm_80", "compute_80"), container("sm_86")],
        ".ldata": [container("sm_90"), compressed(cubin("sm_70"), "zstd")],
    }
    path = shared_object(tmp_path, sections)
    code = read_gpu_code(path)
    assert [(each.section, each.wrapped) for each in code.containers] == [
        (".nv_fatbin", True),
        (".nv_fatbin", True),
        (".ldata", False),
    ]
    assert [str(each.arch) for each in code.loose] == ["sm_70"]
    assert ctypes.CDLL(str(path)).answer() == 42


def test_without_gpu_code_there_is_none(tmp_path):
    code = read_gpu_code(Tiny(rodata=("text",), sections=True).write(tmp_path / "libtiny.so"))
    assert (bool(code), code.containers, code.loose, code.arches) == (False, (), (), ())


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "an empty file"), (b"#!/bin/sh\n", "a script"), (cubin("sm_80"), "relocat|type")],
)
def test_a_file_of_another_kind_is_refused(tmp_path, content, why):
    path = tmp_path / "file"
    path.write_bytes(content if content != cubin("sm_80") else content[:16] + b"\x01\0" + content[18:])
    with pytest.raises(DpackError, match=why):
        read_gpu_code(path)


SOUND = elf_file(
    {
        ".nv_fatbin": container("sm_80", member("sm_90a", compression="lz4")),
        ".ldata": compressed(cubin("sm_80"), "zstd") + cubin("sm_120"),
        ".nvFatBinSegment": wrapper(128),
    }
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    damage=st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=8),
    length=st.integers(0, len(SOUND)),
)
def test_a_damaged_file_is_read_soundly_or_refused(tmp_path, damage, length):
    content = bytearray(SOUND)
    for at, value in damage:
        content[at] = value
    path = tmp_path / "program"
    path.write_bytes(content[: length or len(content)])
    try:
        code = read_gpu_code(path)
    except DpackError:
        return
    pieces = sorted([*code.containers, *code.loose], key=lambda each: each.offset)
    assert all(before.end <= after.offset for before, after in pairwise(pieces))
    assert all(each.end <= code.size for each in pieces)
