"""The nouns: the GPU code in one ELF file, container by container and member by member.

Offsets are places in the file, addresses are virtual addresses before relocation, both in bytes, as all sizes
are. ``offset`` of a member is where its header begins; its payload begins ``header_size`` bytes later.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from packager.arch import Arch, Kind
from packager.resolve.machine import Machine


class Member(NamedTuple):
    """One entry of a fatbin container.

    ``payload_size`` is what the payload takes in the file, its padding included; ``uncompressed_size`` is that of
    the code itself. ``compressed`` is "" (stored as it is), "lz4" (one LZ4 block), "zstd" (one frame) or
    "unknown".
    """

    kind: Kind
    arch: Arch
    offset: int
    header_size: int
    payload_size: int
    compressed: str
    compressed_size: int
    uncompressed_size: int
    flags: int

    @property
    def size(self) -> int:
        """Header and payload: what the member takes in its container."""
        return self.header_size + self.payload_size

    @property
    def payload(self) -> int:
        """Where the payload begins in the file."""
        return self.offset + self.header_size

    @property
    def stored_size(self) -> int:
        """The payload without its padding."""
        return self.compressed_size if self.compressed else min(self.uncompressed_size, self.payload_size)

    @property
    def end(self) -> int:
        """Where the next member begins in the file."""
        return self.offset + self.size


class Container(NamedTuple):
    """One fatbin: a header of ``header_size`` bytes and its members without gaps; ``size`` is all of it.

    ``wrapped`` is True where an element of ``.nvFatBinSegment``, the table through which the CUDA runtime
    registers a program's fatbins, points at the container, or may. Nobody has looked for other pointers.
    """

    section: str
    offset: int
    address: int
    header_size: int
    size: int
    members: tuple[Member, ...]
    wrapped: bool = False

    @property
    def end(self) -> int:
        """Where the container ends in the file."""
        return self.offset + self.size


class Loose(NamedTuple):
    """A cubin outside every container, stored as it is or as one zstd frame; ``size`` is what it takes in the file.

    ``uncompressed_size`` is 0 where the frame does not say it.
    """

    section: str
    offset: int
    address: int
    size: int
    kind: Kind
    arch: Arch
    compressed: str
    uncompressed_size: int

    @property
    def end(self) -> int:
        """Where the piece ends in the file."""
        return self.offset + self.size


class Section(NamedTuple):
    """One section whose bytes the file holds and the loader maps, or one PT_LOAD where there are no sections."""

    name: str
    offset: int
    address: int
    size: int
    flags: int
    type: int


@dataclass(frozen=True, slots=True)
class GpuCode:
    """The GPU code of the file ``path`` (``size`` bytes, ``modified`` in nanoseconds); containers and loose pieces
    in file order.

    ``sections`` are all that were looked at, those without GPU code included.
    """

    path: str
    machine: Machine
    size: int
    sections: tuple[Section, ...] = ()
    containers: tuple[Container, ...] = ()
    loose: tuple[Loose, ...] = ()
    modified: int = 0
    members: tuple[Member, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = tuple(member for container in self.containers for member in container.members)
        object.__setattr__(self, "members", found)

    def __bool__(self) -> bool:
        """True where there is any code: a container without members has none."""
        return bool(self.members or self.loose)

    @property
    def pieces(self) -> tuple[Member | Loose, ...]:
        """Every member, then every loose piece."""
        return (*self.members, *self.loose)

    @property
    def names(self) -> tuple[str, ...]:
        """The sections that hold GPU code, by name, in file order."""
        places = [(each.offset, each.section) for each in self.containers]
        places += [(each.offset, each.section) for each in self.loose]
        return tuple(dict.fromkeys(name for _, name in sorted(places)))

    @property
    def arches(self) -> tuple[Arch, ...]:
        """The architectures that there is machine code for, ascending."""
        return tuple(sorted({piece.arch for piece in self.pieces if piece.kind is Kind.CUBIN}))

    @property
    def gpu_size(self) -> int:
        """Bytes of all members, headers included, and of all loose pieces."""
        return sum(piece.size for piece in self.pieces)
