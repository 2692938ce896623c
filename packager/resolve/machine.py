"""The machines an ELF file can be made for, and what the dynamic loader's rules take from each.

Sources: <elf.h> for e_machine; glibc's sysdeps/*/ldconfig.h for the cache flags and
sysdeps/*/dl-hwcaps-subdirs.c for the glibc-hwcaps names; Debian's multiarch specification for triplets.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """One instruction set. ``hwcaps`` are the glibc-hwcaps sub-directories, best first."""

    name: str
    number: int
    triplet: str = ""
    cache_flag: int = 0
    hwcaps: tuple[str, ...] = ()

    @property
    def known(self) -> bool:
        """False for a machine that stands in no row of the table below."""
        return bool(self.triplet)


MACHINES = (
    Machine("x86_64", 62, "x86_64-linux-gnu", 0x0303, ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
    Machine("aarch64", 183, "aarch64-linux-gnu", 0x0A03),
    Machine("ppc64le", 21, "powerpc64le-linux-gnu", 0x0503, ("power10", "power9")),
    Machine("s390x", 22, "s390x-linux-gnu", 0x0403, ("z16", "z15", "z14", "z13")),
    Machine("riscv64", 243, "riscv64-linux-gnu", 0x1003),
    Machine("loongarch64", 258, "loongarch64-linux-gnu", 0x1203),
)

_BY_NUMBER = {machine.number: machine for machine in MACHINES}


def machine_of(number: int) -> Machine:
    """The machine with this e_machine number; an unlisted number gives a machine without rules."""
    return _BY_NUMBER.get(number) or Machine(f"machine-{number}", number)


def machine_named(name: str) -> Machine | None:
    """The machine with this name, as ``uname -m`` prints it; None when it is not listed."""
    aliases = {"amd64": "x86_64", "arm64": "aarch64"}
    return next((m for m in MACHINES if m.name == aliases.get(name, name)), None)
