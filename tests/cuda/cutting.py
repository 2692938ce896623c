"""Cut a file for some GPUs, and everything that must be true of the result, read by others than the cutter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builders.oracle import require
from elftools.elf.elffile import ELFFile

from packager.arch import Gpu
from packager.cuda.code import GpuCode
from packager.cuda.cut import Cut, plan_cut, write
from packager.cuda.scan import read_gpu_code
from packager.cuda.select import Policy, Selection, keep
from packager.transform.verify import verify

PLAIN = Policy()

_LOADED = """
import ctypes, hashlib, json, sys
path, ranges = sys.argv[1], json.loads(sys.argv[2])
library = ctypes.CDLL(path)
maps = [line.split() for line in open("/proc/self/maps")]
base = min(int(row[0].split("-")[0], 16) for row in maps if row[-1] == path)
digests = [hashlib.sha256(ctypes.string_at(base + start, size)).hexdigest() for start, size in ranges]
print(json.dumps([library.answer(), digests]))
"""


@dataclass(frozen=True, slots=True)
class Done:
    """One cut: the file before and after, what was in it and what was to stay."""

    original: Path
    path: Path
    code: GpuCode
    selection: Selection
    cut: Cut

    @property
    def after(self) -> GpuCode:
        """The GPU code of the new file, as our own reader sees it."""
        return read_gpu_code(self.path)


def sliced(path: Path, target: Path, *gpus: str, policy: Policy = PLAIN) -> Done:
    """``path`` cut for these GPUs, written to ``target``."""
    code = read_gpu_code(path)
    selection = keep(code, [Gpu.of(each) for each in gpus], policy)
    cut = plan_cut(code, selection)
    write(path, target, cut)
    return Done(path, target, code, selection, cut)


def contents(path: Path, code: GpuCode) -> list[list[bytes]]:
    """Every container's members, headers included, then the loose pieces, as bytes."""
    file = path.read_bytes()
    found = [[file[m.offset : m.end] for m in each.members] for each in code.containers]
    return [*found, [file[piece.offset : piece.end] for piece in code.loose]]


def wanted(done: Done) -> list[list[bytes]]:
    """What the selection says must be there afterwards, in the form of :func:`contents`."""
    file = done.original.read_bytes()
    found = [[file[m.offset : m.end] for m in kept.members] for kept in done.selection.containers]
    return [*found, [file[piece.offset : piece.end] for piece in done.selection.loose]]


class Memory:
    """The bytes of a file by address, as its program headers say: a small loader of its own."""

    def __init__(self, path: Path) -> None:
        self.file = path.read_bytes()
        with path.open("rb") as stream:
            elf = ELFFile(stream)
            self.segments = [dict(s.header) for s in elf.iter_segments() if s.header.p_type == "PT_LOAD"]
            self.sections = [(s.name, dict(s.header)) for s in elf.iter_sections()]

    def read(self, start: int, size: int) -> bytes:
        """The bytes from an address on; what no segment holds is missing from the answer."""
        out = b""
        while size:
            row = next((s for s in self.segments if 0 <= start - s["p_vaddr"] < s["p_memsz"]), None)
            if row is None:
                return out
            inside = start - row["p_vaddr"]
            stored = max(0, min(size, row["p_filesz"] - inside))
            zeros = min(size - stored, row["p_memsz"] - inside - stored) if not stored else 0
            piece = self.file[row["p_offset"] + inside :][:stored] + bytes(zeros)
            out, start, size = out + piece, start + len(piece), size - len(piece)
        return out


def check_memory(done: Done) -> None:
    """Every byte outside the sections with GPU code is the same at the same address, in memory of the same size,
    relative relocations into a packed section aside.
    """
    before, after = Memory(done.original), Memory(done.path)
    packed = {each.name for each in done.cut.sections if each.technique == "packed"}
    changed = {each.name for each in done.cut.sections if each.technique}
    ranges = [(h["sh_addr"], h["sh_size"]) for name, h in before.sections if name in packed]
    for name, header in before.sections:
        if not header["sh_flags"] & 2 or not header["sh_size"] or header["sh_flags"] & 0x400:
            continue
        old = before.read(header["sh_addr"], header["sh_size"])
        new = after.read(header["sh_addr"], header["sh_size"])
        assert len(old) == len(new) == header["sh_size"], name
        if name in changed:
            continue
        if name.startswith(".rela"):
            assert _without_followed(old, ranges, 16) == _without_followed(new, ranges, 16), name
        elif name == ".nvFatBinSegment" and any(other == ".relr.dyn" for other, _ in before.sections):
            assert _without_followed(old, ranges, 8) == _without_followed(new, ranges, 8), name
        else:
            assert old == new, name


def _without_followed(table: bytes, ranges: list[tuple[int, int]], at: int) -> list[bytes]:
    """Rows of 24 bytes, those whose eight bytes at ``at`` are an address in the ranges without these bytes."""
    rows = [table[start : start + 24] for start in range(0, len(table), 24)]
    place = [int.from_bytes(row[at : at + 8], "little") for row in rows]
    inside = [any(start <= each < start + size for start, size in ranges) for each in place]
    return [row[:at] + row[at + 8 :] if hit else row for row, hit in zip(rows, inside, strict=True)]


def check_file(done: Done, *, complete: bool = True) -> None:
    """The promises about the file itself; ``complete`` where everything not wanted must be gone."""
    assert done.path.stat().st_size == done.cut.size
    assert done.path.stat().st_mode & 0o777 == 0o755
    assert done.path.stat().st_blocks * 512 >= done.cut.size
    verify(done.original, done.path, None)
    check_memory(done)
    if complete:
        assert contents(done.path, done.after) == wanted(done)
    told = subprocess.run(
        [require("readelf"), "-W", "-a", done.path], capture_output=True, text=True, check=True
    )
    assert not told.stderr


def check_loaded(done: Done) -> None:
    """The real loader loads it, it works, and memory holds what was kept and, elsewhere, what was there."""
    old, new = Memory(done.original), Memory(done.path)
    plain = [
        (h["sh_addr"], h["sh_size"])
        for name, h in old.sections
        if name in {".text", ".eh_frame", ".dynstr", ".note.gnu.build-id", ".gnu.hash"}
    ]
    kept = [(each.address, each.size) for each in done.after.containers]
    kept += [(each.address, each.size) for each in done.after.loose]
    command = [sys.executable, "-c", _LOADED, str(done.path), json.dumps([*plain, *kept])]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    answer, digests = json.loads(told)
    assert answer == 42
    assert digests == [_sha256(each) for each in _read(old, plain) + _read(new, kept)]


def _read(memory: Memory, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    return [memory.read(*each) for each in ranges]


def _sha256(content: bytes) -> str:
    import hashlib  # noqa: PLC0415 - only here

    return hashlib.sha256(content).hexdigest()
