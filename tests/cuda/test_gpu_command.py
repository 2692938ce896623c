"""``dpack gpu``: what is printed for a file, for people and as JSON."""

import json

from builders.elf import Tiny
from builders.fatbin import compressed, container, cubin, elf_file, member, ptx
from click.testing import CliRunner

from packager.cli.gpu import gpu
from packager.errors import DpackError

SECTIONS = {
    ".nv_fatbin": container(
        member("sm_80", cubin("sm_80", ("add", "mul")) + bytes(2000)),
        member("sm_90a", cubin("sm_90a", ("add",)), "lz4"),
        member("compute_90", ptx("compute_90", ("add", "mul")), "zstd"),
        "lto_50",
    ),
    ".ldata": compressed(cubin("sm_80", ("gemm",)), "zstd") + cubin("sm_120", ("gemm",)),
}

# No compressor's version has a say in these.
PLAIN = {
    ".nv_fatbin": container(
        member("sm_80", cubin("sm_80", ("add", "mul")) + bytes(2000)),
        member("sm_90a", cubin("sm_90a", ("add",))),
        member("compute_90", ptx("compute_90", ("add", "mul"))),
        "lto_50",
    ),
    ".ldata": cubin("sm_80", ("gemm",)) + cubin("sm_120", ("gemm",)),
}

TEXT = """\
program (x86_64, 4 kB): 4 kB of GPU code in 1 container and 2 cubins outside any

architecture    kind     section  count   size  uncompressed
lto_50        lto-ir  .nv_fatbin      1   96 B          32 B
sm_80          cubin      .ldata      1  344 B         344 B
sm_80          cubin  .nv_fatbin      1   3 kB          2 kB
compute_90       ptx  .nv_fatbin      1  160 B          96 B
sm_90a         cubin  .nv_fatbin      1  408 B         344 B
sm_120         cubin      .ldata      1  344 B         344 B
total                                 6   4 kB          4 kB
not GPU code                             469 B
"""


def ran(tmp_path, monkeypatch, *arguments, sections=PLAIN):
    (tmp_path / "program").write_bytes(elf_file(sections))
    Tiny(rodata=("text",)).write(tmp_path / "libtiny.so")
    monkeypatch.chdir(tmp_path)
    return CliRunner().invoke(gpu, arguments)


def test_a_table_by_architecture_and_section(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "program")
    assert (done.exit_code, done.output) == (0, TEXT)


def test_a_file_without_gpu_code_says_so(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "libtiny.so")
    size = (tmp_path / "libtiny.so").stat().st_size
    assert (done.exit_code, done.output) == (0, f"libtiny.so (x86_64, {size} B): no GPU code\n")


def test_kernels_are_listed_with_their_architectures(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "program", "--kernels")
    assert done.output == TEXT + "\n" + (
        "add  sm_80 compute_90 sm_90a\n"
        "gemm  sm_80 sm_120\n"
        "mul  sm_80 compute_90\n"
    )  # fmt: skip


def test_json_has_every_piece(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "program", "libtiny.so", "--json", "--kernels", sections=SECTIONS)
    first, second = json.loads(done.output)["files"]
    (only,) = first["containers"]
    rows = [
        (m["kind"], m["arch"], m["compressed"], m["kernels"]) for m in (*only["members"], *first["loose"])
    ]
    assert rows == [
        ("cubin", "sm_80", "", ["add", "mul"]),
        ("cubin", "sm_90a", "lz4", ["add"]),
        ("ptx", "sm_90", "zstd", ["add", "mul"]),
        ("lto-ir", "sm_50", "", []),
        ("cubin", "sm_80", "zstd", ["gemm"]),
        ("cubin", "sm_120", "", ["gemm"]),
    ]
    pieces = [*only["members"], *first["loose"]]
    assert first["gpu_size"] == sum(each["size"] for each in pieces)
    assert only["size"] == 16 + sum(each["size"] for each in only["members"])
    assert [each["name"] for each in first["sections"]] == [".nv_fatbin", ".ldata"]
    assert (second["path"], second["containers"], second["loose"]) == ("libtiny.so", [], [])


def test_json_without_kernels_names_none(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "program", "--json")
    assert "kernels" not in done.output


def test_a_file_that_is_not_there_is_named(tmp_path, monkeypatch):
    done = ran(tmp_path, monkeypatch, "absent")
    assert isinstance(done.exception, DpackError)
    assert "cannot read absent: no such file" in str(done.exception)
