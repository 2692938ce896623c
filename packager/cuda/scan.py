"""The GPU code of a file: every fatbin container and every loose cubin in what the loader maps.

The file is read a window at a time and never mapped, so that memory stays flat and a file that shrinks under us
is an error rather than a signal. What is found is jumped over: of a section that is one container after the other
little more than their headers is read. In sections with machine code for the CPU nobody has seen a loose cubin,
and none is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import stringzilla

from packager.cuda import fatbin, loose
from packager.cuda.code import Container, GpuCode, Loose, Section
from packager.cuda.compression import ZSTD_MAGIC
from packager.cuda.sections import (
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHT_PROGBITS,
    sections_of,
    wrapped_addresses,
)
from packager.resolve.elf import ElfFile

_WINDOW = 1 << 16  # small: it stays in the processor's cache, and each false hit searches the rest again
_FIRST_WINDOW = 1 << 12  # what comes next is most often near
_CONTAINERS = (fatbin.MAGIC,)
_EVERY = (*_CONTAINERS, ZSTD_MAGIC, loose.ELF_MAGIC)
_LONGEST = max(map(len, _EVERY))


def read_gpu_code(path: Path | str, name: str | None = None) -> GpuCode:
    """The GPU code of the ELF file at ``path``; ``name`` is the path to show (default: the same).

    Raises ElfError (not a program or shared object) or DpackError (the file cannot be opened).
    """
    with ElfFile(path, name) as file:
        every = sections_of(file)
        mapped = tuple(each for each in every if each.type == SHT_PROGBITS and each.flags & SHF_ALLOC)
        pieces = list(_pieces(_Window(file), mapped))
        containers = [each for each in pieces if isinstance(each, Container)]
        pointers = wrapped_addresses(file, every)
        return GpuCode(
            file.name,
            file.machine,
            file.size,
            mapped,
            tuple(
                each._replace(wrapped=True) if pointers is None or each.address in pointers else each
                for each in containers
            ),
            tuple(each for each in pieces if isinstance(each, Loose)),
            file.modified,
        )


class _Window:
    """A file through one window of its bytes, for scans that go forward."""

    def __init__(self, file: ElfFile) -> None:
        self.file = file
        self.start = 0
        self.content = b""

    def read(self, offset: int, size: int) -> bytes:
        """The bytes there, fewer where the file ends; outside the window they are read without moving it."""
        at = offset - self.start
        if at >= 0 and at + size <= len(self.content):
            return self.content[at : at + size]
        offset = min(offset, self.file.size)
        return self.file.read_at(offset, min(size, self.file.size - offset))

    def find(self, magics: Sequence[bytes], start: int, end: int) -> int:
        """Where in this range of the file the first of the magics begins; -1 where none does."""
        size = _FIRST_WINDOW
        while start < end:
            if not self.start <= start <= self.start + len(self.content) - _LONGEST:
                self.start = start
                self.content = self.file.read_at(start, min(size, self.file.size - start))
                size = min(4 * size, _WINDOW)
            hit = _first(self.content, magics, start - self.start, end - self.start)
            if hit >= 0:
                return self.start + hit
            if self.start + len(self.content) >= end:
                break
            start = self.start + len(self.content) - _LONGEST + 1
        return -1


def _first(content: bytes, magics: Sequence[bytes], low: int, high: int) -> int:
    """Where between ``low`` and ``high`` the first of the magics begins, none of which overlaps another; or -1.

    ``bytes.find`` reads less than 1.5 GB a second, ``re`` 2, stringzilla some 20.
    """
    found = -1
    for magic in magics:
        hit = stringzilla.find(content, magic, low, high)
        if hit >= 0:
            found = high = hit
    return found


def _pieces(window: _Window, sections: Sequence[Section]) -> Iterator[Container | Loose]:
    """What GPU code there is, in file order, without overlaps."""
    done = 0
    for section in sorted(sections, key=lambda each: each.offset):
        magics = _CONTAINERS if section.flags & SHF_EXECINSTR else _EVERY
        at, end = max(done, section.offset), section.offset + section.size
        while (at := window.find(magics, at, end)) >= 0:
            found = fatbin.container_at(window.read, section, at) or loose.loose_at(window.read, section, at)
            if found is None:
                at += 1
            else:
                yield found
                at = done = found.end
