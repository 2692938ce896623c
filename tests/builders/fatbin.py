"""Writers of GPU code: cubins, fatbin containers, and the ELF files that hold them.

A member is named as nvcc spells its architecture: "sm_90a" is a cubin, "compute_120" PTX, "lto_50" LTO-IR.
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from builders.elf import X86_64
from builders.oracle import require
from packager.arch import Arch

PTX, CUBIN, LTO = 1, 2, 8
LZ4, ZSTD = 0x2000, 0x8000
ARCH_SPECIFIC, FAMILY, NEW_ABI = 0x100000, 0x200000, 0x1000000

_KINDS = {"compute": PTX, "sm": CUBIN, "lto": LTO}
_SUFFIXES = {"": 0, "a": ARCH_SPECIFIC, "f": FAMILY}
_COMPRESSIONS = {"": 0, "lz4": LZ4, "zstd": ZSTD}
_SECTION = struct.Struct("<IIQQQQIIQQ")


def cubin(name: str, kernels: Sequence[str] = ("add",), code: bytes = bytes(range(64))) -> bytes:
    """A cubin for ``name`` ("sm_90a"), each kernel a section of ``code``; ABI version 8 from sm_100 on, else 7."""
    arch = Arch.parse(name)
    new = arch.major >= 10
    flags = arch.number << 8 | 0x6000002 if new else arch.number << 16 | 0x500 | arch.number
    flags |= (0x8 if new else 0x800) if arch.suffix == "a" else 0
    names = b"\0" + b"".join(f".text.{kernel}\0".encode() for kernel in kernels) + b".shstrtab\0"
    body = code * len(kernels) + names
    table = -(-(64 + len(body)) // 8) * 8
    rows, at, label = [bytes(64)], 64, 1
    for kernel in kernels:
        rows.append(_SECTION.pack(label, 1, 6, 0, at, len(code), 0, 0, 1, 0))
        at, label = at + len(code), label + len(f".text.{kernel}") + 1
    rows.append(_SECTION.pack(label, 3, 0, 0, at, len(names), 0, 0, 1, 0))
    ident = b"\x7fELF\x02\x01\x01" + (b"\x41\x08" if new else b"\x33\x07") + bytes(7)
    rest = (2, 190, 1, 0, 0, table, flags, 64, 56, 0, 64, len(rows), len(rows) - 1)
    head = ident + struct.pack("<HHIQQQIHHHHHH", *rest)
    return (head + body).ljust(table, b"\0") + b"".join(rows)


def ptx(name: str, kernels: Sequence[str] = ("add",)) -> bytes:
    """The text of a PTX module, with the zero at its end that fatbins have."""
    arch = Arch.parse(name)
    entries = "".join(f".visible .entry {kernel}()\n{{ ret; }}\n" for kernel in kernels)
    return f".version 8.7\n.target sm_{arch.number}{arch.suffix}\n{entries}".encode() + b"\0"


def compressed(content: bytes, compression: str) -> bytes:
    """``content`` as one LZ4 block or one zstd frame, or as it is."""
    if compression == "lz4":
        import lz4.block  # noqa: PLC0415 - only where it is asked for

        return lz4.block.compress(content, store_size=False)
    if compression == "zstd":
        import zstandard  # noqa: PLC0415 - only where it is asked for

        return zstandard.ZstdCompressor().compress(content)
    return content


def member(
    name: str, content: bytes | None = None, compression: str = "", header_size: int = 64, kind: int = 0
) -> bytes:
    """One member, header and padded payload. ``content`` is a cubin or PTX with one kernel where it is left out."""
    arch, kind = Arch.parse(name), kind or _KINDS[name.partition("_")[0]]
    if content is None:
        content = ptx(name) if kind == PTX else cubin(name) if kind == CUBIN else b"BC\xc0\xde" + bytes(28)
    stored = compressed(content, compression)
    padded = stored.ljust(-(-len(stored) // 8) * 8, b"\0")
    flags = 0x11 | _COMPRESSIONS[compression] | _SUFFIXES[arch.suffix]
    flags |= NEW_ABI if kind == CUBIN and arch.major >= 10 else 0
    header = struct.pack(
        "<HHIQIIHHIIIQQQ",
        kind,
        0x0101,
        header_size,
        len(padded),
        len(stored) if compression else 0,
        0 if header_size == 64 else 64,
        7,
        1,
        arch.number,
        0,
        0,
        flags,
        0,
        len(content) if compression else 0,
    )
    return header.ljust(header_size, b"\0") + padded


def container(*members: bytes | str) -> bytes:
    """A fatbin of these members; a name stands for :func:`member` of it."""
    body = b"".join(member(each) if isinstance(each, str) else each for each in members)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def wrapper(address: int) -> bytes:
    """One element of .nvFatBinSegment that points at ``address``."""
    return struct.pack("<IIQQ", 0x466243B1, 1, address, 0)


_NAMES = {".text": 6, ".data": 3, ".nvFatBinSegment": 3}


def elf_file(sections: Mapping[str, bytes], *, headers: bool = True, machine: int = X86_64) -> bytes:
    """A fixed-address ELF program with these sections, each at a multiple of 64 bytes, in one PT_LOAD.

    An address is the offset in the file: there are no relocations, pointers stand where they are used.
    """
    at, body, rows, names = 64 + 56, b"", [bytes(64)], b"\0"
    for name, content in sections.items():
        start = -(-at // 64) * 64
        body += bytes(start - at) + content
        rows.append(
            _SECTION.pack(len(names), 1, _NAMES.get(name, 2), start, start, len(content), 0, 0, 64, 0)
        )
        names += name.encode() + b"\0"
        at = start + len(content)
    load = struct.pack("<IIQQQQQQ", 1, 7, 0, 0, 0, at, at, 0x1000)
    rows.append(_SECTION.pack(len(names), 3, 0, 0, at, len(names) + 10, 0, 0, 1, 0))
    body += names + b".shstrtab\0"
    table = 64 + 56 + len(body)
    place = (table if headers else 0, 0, 64, 56, 1, 64, len(rows) if headers else 0)
    head = struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0, 64, *place, len(rows) - 1 if headers else 0)
    return b"\x7fELF\x02\x01\x01" + bytes(9) + head + load + body + (b"".join(rows) if headers else b"")


def offsets(sections: Mapping[str, bytes]) -> dict[str, int]:
    """Where :func:`elf_file` puts each section: its offset in the file, and its address."""
    places, at = {}, 64 + 56
    for name, content in sections.items():
        places[name] = -(-at // 64) * 64
        at = places[name] + len(content)
    return places


def shared_object(
    directory: Path,
    sections: Mapping[str, Sequence[bytes]],
    *,
    wrapped: Sequence[str] = (".nv_fatbin", "__nv_relfatbin"),
    align: int = 8,
    flags: Sequence[str] = (),
    compiler: str = "cc",
) -> Path:
    """A real shared object, made by ``compiler``: each section holds its blobs, each at a multiple of ``align``.

    Each blob of a section in ``wrapped`` gets an element of .nvFatBinSegment, and with it the relative relocation
    that nvcc's output has. The object exports ``int answer(void)``, which returns 42.
    """
    lines, wrappers = [], []
    for name, blobs in sections.items():
        mode = {3: "aw", 6: "ax"}.get(_NAMES.get(name, 2), "a")
        lines += [f'.section {name},"{mode}",%progbits', f".balign {align}"]
        for number, blob in enumerate(blobs):
            path = directory / f"{name.strip('._')}.{number}.bin"
            path.write_bytes(blob)
            label = f".L{name.strip('._')}{number}"
            lines += [f".balign {align}", f"{label}:", f'.incbin "{path}"']
            wrappers += [f".long 0x466243B1, 1\n.quad {label}, 0"] if name in wrapped else []
    if wrappers:
        lines += ['.section .nvFatBinSegment,"aw",%progbits', ".balign 8", *wrappers]
    lines.append('.section .note.GNU-stack,"",%progbits')
    assembly, source, output = directory / "gpu.s", directory / "answer.c", directory / "libgpu.so"
    assembly.write_text("\n".join(lines) + "\n")
    source.write_text("int answer(void) { return 42; }\n")
    command = [require(compiler), "-shared", "-fPIC", *flags, source, assembly, "-o", output]
    subprocess.run(command, check=True, capture_output=True)
    return output
