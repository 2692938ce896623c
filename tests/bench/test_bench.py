"""The figures of the benchmarks: that they add up, and that a failure is told and not measured."""

import sys

import measure
import pytest
from builders.fatbin import compressed, container, cubin, elf_file, member
from measure import Cost, FailedError, Tool
from remaining import parts, remaining

SECTIONS = {
    ".text": b"\x90" * 300,
    ".nv_fatbin": container("sm_80", "sm_86") + container("compute_120"),
    ".ldata": bytes(64) + compressed(cubin("sm_80"), "zstd"),
    ".rodata": b"constant" * 20,
}


def test_every_byte_of_a_file_is_of_one_kind(tmp_path):
    path = tmp_path / "libgpu.so.1"
    path.write_bytes(elf_file(SECTIONS))
    found = {(part.section, part.what): part.size for part in parts(path)}
    assert found[".text", "machine code of the CPU"] == 300
    assert found[".rodata", "constants"] == 160
    assert found[".nv_fatbin", "GPU code, sm_86"] == len(member("sm_86"))
    assert found[".nv_fatbin", "GPU code, compute_120"] == len(member("compute_120"))
    assert found[".ldata", "GPU code, sm_80"] == len(compressed(cubin("sm_80"), "zstd"))
    headers = next(size for (section, what), size in found.items() if what.startswith("containers"))
    assert headers == 2 * 16
    assert sum(found.values()) == path.stat().st_size
    assert min(found.values()) > 0


def test_files_are_counted_together_the_largest_first_and_small_rows_as_one(tmp_path):
    paths = [tmp_path / "liba.so.1", tmp_path / "libb.so.1"]
    paths[0].write_bytes(elf_file({".text": bytes(5000), ".rodata": bytes(3000)}))
    paths[1].write_bytes(elf_file({".text": bytes(1000)}))
    rows = remaining(paths, 1000).rows
    assert [row[:3] for row in rows[:2]] == [
        ("machine code of the CPU", ".text", "6 kB"),
        ("constants", ".rodata", "3 kB"),
    ]
    assert rows[0][4] == "liba 5 kB, libb 1 kB"
    assert [row[0] for row in rows[2:]] == ["all else", "total"]


def test_a_peer_is_compared_round_by_round():
    ours, peer = Tool("dpack", (("dpack",),), "< 2 s"), Tool("peer", (("peer",),))
    costs = {
        "dpack": [Cost(1.0, 3.0, 9_000_000, 0), Cost(4.0, 3.0, 5_000_000, 0), Cost(2.0, 3.0, 5_000_000, 0)],
        "peer": [Cost(2.0, 1.0, 100, 7_000_000)] * 3,
    }
    assert measure.rows([ours, peer, Tool("absent", ())], costs, 1_000_000) == [
        ["dpack", "2.000", "3.000", "9", "", "", "< 2 s"],
        ["peer", "2.000", "1.000", "< 1", "7.0", "1.00 wall, 3.00 CPU", ""],
    ]


def test_a_command_that_fails_has_no_cost(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "WORK", tmp_path)
    output = tmp_path / "written"
    write = f"open({str(output)!r}, 'w').write('12345')"
    done = measure.measure(Tool("writes", ((sys.executable, "-c", write),), writes=output))
    assert done.written == 5
    assert done.memory > 0
    with pytest.raises(FailedError, match="no luck"):
        measure.measure(Tool("fails", ((sys.executable, "-c", "raise SystemExit('no luck')"),)))
    with pytest.raises(FileNotFoundError, match="no-such-tool is not installed"):
        measure.measure(Tool("absent", (("no-such-tool",),)))
