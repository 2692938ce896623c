"""What a program stands on when it is resolved: recipes, destination, base image, and the loader over all of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packager.arch import Gpu
from packager.destination import Destination, parse_platform
from packager.errors import EXIT_USAGE, DpackError, usage
from packager.recipes import Host, Recipes
from packager.request import Aim, Request
from packager.resolve.elf import Elf, read_elf
from packager.resolve.hostcsv import read_host_csv
from packager.resolve.machine import MACHINES
from packager.resolve.provided import supplement, with_own_c_library
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot

if TYPE_CHECKING:
    from packager.oci.base import Base
    from packager.source import Distribution, Progress


@dataclass(frozen=True, slots=True)
class Ground:
    """``loader`` searches the base where there is one, else the root; ``other`` is the root's then, for what the
    base lacks, which is gathered in the directory ``gathered``.
    """

    recipes: Recipes
    destination: Destination
    loader: Loader
    program: str
    base: Base | None = None
    other: Loader | None = None
    gathered: tempfile.TemporaryDirectory[str] | None = None

    def with_store(self, fetched: Sequence[Distribution]) -> Ground:
        """The same, with the libraries of ``fetched`` in reach. What was read of other files stays valid."""
        from packager.source import library_directories  # noqa: PLC0415 - the index client is slow to import

        store = tuple(str(path) for each in fetched for path in library_directories(each))
        lent = (self.gathered.name,) if self.gathered else ()
        sysroot = self.loader.sysroot.seeing((*lent, *store))
        return replace(self, loader=replace(self.loader, sysroot=sysroot, lent=lent, store=store))

    def gathering(self, names: Iterable[str], fetched: Sequence[Distribution]) -> Ground | None:
        """The ground with those of ``names`` that the base lacks and the root has; None where that adds nothing."""
        if self.other is None or self.gathered is None:
            return None
        program = self.other.read(self.other.sysroot.inside(self.program))
        more = supplement(names, program, self.other, Path(self.gathered.name))
        return self.with_store(fetched) if more else None


def ground_of(request: Request, recipes: Recipes, progress: Progress | None = None) -> Ground:
    """Read the program and what surrounds it.

    Raises DpackError for a program that dpack cannot plan for, and for a wrong target, host, base or directory.
    """
    _check_directories(request)
    _check_program(request)
    read = read_elf(request.program)
    _check_machine(read, request)
    destination = destination_of(request.aim, recipes).for_machine(read.machine.name, request.program)
    if request.aim.image or request.aim.base:
        destination = destination.in_an_image()
    base = _base(request.aim, destination, progress)
    if base is None or base.root is None:
        own = recipes if base is None else with_own_c_library(recipes)
        destination = replace(destination, base=base.reference if base else "")
        loader = _loader(request, read, request.root)
        return Ground(own, destination, loader, loader.sysroot.inside(request.program), base)
    return _on_base(request, read, recipes, destination, base)


def destination_of(aim: Aim, recipes: Recipes) -> Destination:
    """Where the bundle is to run, as far as the user says it; the target's own values where the user is silent."""
    target = recipes.target(aim.target) if aim.target else None
    platform = parse_platform(aim.platform) if aim.platform else ""
    other = target is not None and platform not in {"", target.platform}  # such as an L4 in an Arm server
    if target and other and target.host:
        raise usage(
            f"cannot bundle for {aim.target} on {platform}",
            f"{aim.target} is {target.platform}, --platform says {platform}",
            next=f"leave --platform out, or name the GPU instead of the target: --gpu {target.gpu}",
        )
    host = _host(aim.host or (target.host if target else ""), recipes)
    compression = (host.compression if host and aim.host else "") or (target.compression if target else "")
    gpus = tuple(Gpu.of(text) for text in aim.gpus) or ((target.gpu,) if target else ())
    return Destination(
        name=f"{aim.target} on {platform}" if other else aim.target or ", ".join(map(str, gpus)) or platform,
        target=target.name if target else "",
        platform=platform or (target.platform if target else ""),
        gpus=tuple(dict.fromkeys(gpus)),
        host=host,
        device=read_host_csv(aim.host_csv) if aim.host_csv else None,
        compression=compression,
    )


def _host(name: str, recipes: Recipes) -> Host | None:
    return recipes.host(name) if name else None


def _base(aim: Aim, destination: Destination, progress: Progress | None) -> Base | None:
    if not aim.base:
        return None
    # Images, and registries above all, are slow to import, and most bundles have no base.
    from packager.oci.base import open_base  # noqa: PLC0415
    from packager.oci.descriptor import Base as Image  # noqa: PLC0415
    from packager.oci.descriptor import Platform  # noqa: PLC0415
    from packager.source.cache import default_cache  # noqa: PLC0415

    def from_registry(text: str, platform: Platform | None) -> Image:
        from packager.registry import Access, Reference, pull  # noqa: PLC0415

        access = Access(frozenset(aim.plain_http))
        return pull(Reference.parse(text), platform, access=access, progress=progress)

    platform = Platform.parse(destination.platform)
    return open_base(aim.base, platform, cache=default_cache(), pull=from_registry)


def _on_base(request: Request, read: Elf, recipes: Recipes, destination: Destination, base: Base) -> Ground:
    loader = _loader(request, read, base.root or Path("/"), base.library_path)
    other = _loader(request, read, request.root)
    gathered = tempfile.TemporaryDirectory(prefix="dpack-base-")
    there = replace(destination, base=_digest(base), base_root=str(base.root))
    ground = Ground(recipes, there, loader, loader.sysroot.inside(request.program), base, other, gathered)
    return ground.with_store(())


def _digest(base: Base) -> str:
    """How the manifest names it: its reference may be a path of this machine."""
    return base.image.descriptor.digest if base.image else base.reference


def _loader(request: Request, read: Elf, root: Path, further: Sequence[str] = ()) -> Loader:
    sysroot = Sysroot.at(root, (request.program.absolute().parent, *request.library_path))
    paths = [sysroot.inside(path) for path in request.library_path]
    return Loader.of(read, sysroot, [*paths, *further], request.cpu)


def _check_directories(request: Request) -> None:
    for path in request.library_path:
        if not path.is_dir():
            raise usage(f"cannot search {path}", "no such directory", next="check --library-path")


def _check_program(request: Request) -> None:
    """Say so when the program is named by its path on the target."""
    inside = Path(request.root) / str(request.program).lstrip("/")
    if request.root != Path("/") and not request.program.exists() and inside.exists():
        raise usage(
            f"cannot read {request.program}",
            f"no such file on this machine; there is one in the root {request.root}",
            next=f"name it by its path on this machine: {inside}",
        )


def _check_machine(read: Elf, request: Request) -> None:
    if request.cpu and request.cpu not in read.machine.hwcaps:
        levels = ", ".join(read.machine.hwcaps) or "none"
        raise usage(
            f"unknown --cpu {request.cpu}",
            f"{read.machine.name} has no such glibc-hwcaps level",
            next=f"name one of its levels: {levels}",
        )
    if not read.machine.known:
        raise DpackError(
            f"cannot plan for {request.program}",
            f"it is made for {read.machine.name}, whose loader's rules dpack does not know",
            next=f"dpack knows {', '.join(machine.name for machine in MACHINES)}",
            exit=EXIT_USAGE,
        )
