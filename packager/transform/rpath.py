"""Set the rpath of a program or library, so that it finds the bundle's lib/ from wherever it is unpacked.

It is written as DT_RPATH, not DT_RUNPATH: DT_RUNPATH serves only the object that has it, while DT_RPATH of the
program serves every object below that has no DT_RUNPATH of its own (ld.so(8)). libcudart and libnccl have
none, and they stay byte for byte what the vendor shipped. The only place that imports lief.
"""

from __future__ import annotations

from pathlib import Path

from packager.errors import DpackError


def prepare() -> None:
    """Import lief ahead of its use: it takes a third of a second."""
    import lief  # noqa: F401, PLC0415


def set_rpath(source: Path, target: Path, rpath: str) -> None:
    """Write ``source`` with ``rpath`` as its only search path to ``target``.

    Raises DpackError when lief cannot read or write the file.
    """
    import lief  # noqa: PLC0415 - takes a third of a second to import

    lief.logging.disable()
    with source.open("rb") as stream:
        binary = lief.ELF.parse(stream)
    if binary is None:
        raise DpackError(f"cannot set the rpath of {source}", "lief cannot read the file")
    for tag in (lief.ELF.DynamicEntry.TAG.RPATH, lief.ELF.DynamicEntry.TAG.RUNPATH):
        while binary.has(tag):
            binary.remove(tag)
    binary.add(lief.ELF.DynamicEntryRpath(rpath))
    try:
        binary.write(str(target))
    except RuntimeError as error:
        raise DpackError(f"cannot set the rpath of {source}", f"lief: {error}") from error
    target.chmod(0o755)
