"""Targets: the device that a bundle is made for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packager.arch import Arch, Gpu
from packager.errors import DpackError
from packager.recipes.host import Compression, Platform
from packager.recipes.reader import check_schema, close, stem
from packager.recipes.table import Table


@dataclass(frozen=True, slots=True)
class Target:
    """A device, or several with the same GPU architecture.

    ``arch``         compute capability of its GPU.
    ``exact``        True where the GPU runs machine code of exactly this architecture alone (Tegra).
    ``host``         name of the :class:`~packager.recipes.host.Host` that it comes with; empty where the system
                     is its owner's choice.
    ``compression``  of image layers: what the device's container engine reads.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    platform: Platform
    arch: Arch
    exact: bool
    host: str
    compression: Compression
    evidence: str
    source: Path

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that means this target, its own first."""
        return (self.name, *self.aliases)

    @property
    def gpu(self) -> Gpu:
        """The GPU, to ask which code runs on it."""
        return Gpu(self.arch, self.exact)


def read_target(top: Table, source: Path, compressions: dict[str, Compression]) -> Target:
    """``targets/NAME.toml``; ``compressions`` has those of the hosts that fix one, by the host's names."""
    check_schema(top)
    table = top.table("target") or Table({}, top.file, [], "target")
    host = table.text("host", "")
    target = Target(
        name=stem(table, source),
        aliases=table.texts("aliases", ()),
        title=table.text("title"),
        platform=table.choice("platform", Platform),
        arch=_arch(table),
        exact=table.flag("exact"),
        host=host,
        compression=table.choice("compression", Compression, compressions.get(host)),
        evidence=table.text("evidence"),
        source=source,
    )
    close(table, top)
    return target


def _arch(table: Table) -> Arch:
    text = table.text("arch")
    try:
        arch = Arch.parse(text)
    except DpackError:
        arch = None
    if arch is None or arch.suffix:
        if text:
            table.complain("arch", f'must be the architecture of a GPU such as "sm_87", not "{text}"')
        return Arch(0, 0)
    return arch
