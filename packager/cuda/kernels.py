"""The names of the kernels in a piece of GPU code, decompressed where it is compressed.

A cubin has one section ``.text.NAME`` for each kernel, and for each function that kernels call and that was not
inlined. PTX has ``.entry NAME``. LTO-IR is LLVM bitcode, whose names are not read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from packager.arch import Kind
from packager.cuda.code import Loose, Member
from packager.cuda.compression import decompressed
from packager.resolve.elf import ElfFile

_ENTRY = re.compile(rb"\.entry\s+([\w$.]+)")
_TEXT = b".text."
_SECTION = struct.Struct("<IIQQQQIIQQ")
_LIMIT = 256 << 20  # bytes of one decompressed piece; the largest seen, in NCCL, has 134 MB


def kernels_of(path: Path | str, pieces: Sequence[Member | Loose]) -> Iterator[tuple[str, ...]]:
    """The kernels of each of ``pieces`` of the file at ``path``, in turn, in the piece's order.

    Empty for LTO-IR, and for a piece that is damaged. Raises DpackError where the file cannot be read.
    """
    with ElfFile(path) as file:
        for piece in pieces:
            if piece.kind not in {Kind.CUBIN, Kind.PTX} or piece.uncompressed_size > _LIMIT:
                yield ()
                continue
            start, size = (
                (piece.payload, piece.stored_size)
                if isinstance(piece, Member)
                else (piece.offset, piece.size)
            )
            content = decompressed(
                file.read_at(start, size), piece.compressed, piece.uncompressed_size or _LIMIT
            )
            yield names_in(content, piece.kind)


def names_in(content: bytes, kind: Kind) -> tuple[str, ...]:
    """The kernels of one cubin or one PTX text; empty for anything else, and for what is damaged."""
    if kind is Kind.PTX:
        return tuple(hit.decode("ascii") for hit in _ENTRY.findall(content))
    return tuple(_cubin(content)) if kind is Kind.CUBIN and len(content) >= 64 else ()


def _cubin(content: bytes) -> Iterator[str]:
    (table,) = struct.unpack_from("<Q", content, 40)
    size, count, names = struct.unpack_from("<HHH", content, 58)
    end = table + size * count
    if not content.startswith(b"\x7fELF") or size != _SECTION.size or names >= count or end > len(content):
        return
    rows = list(_SECTION.iter_unpack(content[table:end]))
    start = rows[names][4]
    for name, *_ in rows:
        if content.startswith(_TEXT, start + name):
            text, found, _ = content[start + name + len(_TEXT) : start + name + 4096].partition(b"\0")
            if found and text:
                yield text.decode("utf-8", "replace")
