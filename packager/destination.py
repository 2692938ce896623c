"""Where a bundle is to run: its platform and GPUs, and what the system there supplies by itself.

What a system supplies is known from a host profile (recipes/hosts), from the lists of a Jetson's container
runtime, or from a base image, whose files are there to be read. A profile grants a library only where its symbol
versions are as new as those that the bundle wants; the lists tell none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from packager.arch import Gpu
from packager.errors import usage
from packager.recipes import Host
from packager.resolve.hostcsv import HostFiles
from packager.resolve.machine import MACHINES

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
"""How OCI writes the machines that dpack has targets for (image-spec, "Platform": GOOS and GOARCH)."""


def platform_of(machine: str) -> str:
    """How OCI writes the platform of a machine: "linux/arm64" for aarch64."""
    return PLATFORMS.get(machine, f"linux/{machine}")


def parse_platform(text: str) -> str:
    """The platform that ``text`` names, without the variant that is arm64's only one (image-spec, "Platform
    variants"). Raises DpackError (exit 2) for one that no program dpack reads is made for.
    """
    platform = text.removesuffix("/v8") if text == "linux/arm64/v8" else text
    known = [platform_of(machine.name) for machine in MACHINES]
    if platform not in known:
        raise usage(
            f"unknown platform {text!r}",
            "no program that dpack can read is made for it",
            next=f"name one of {', '.join(known)}; the level of a CPU is --cpu",
        )
    return platform


@dataclass(frozen=True, slots=True)
class Grant:
    """That the destination has a library: by what, in words, and the recipe or the option that says so."""

    by: str
    rule: str


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a bundle is to run; every part may be unknown.

    ``name``         as messages call it: "jetson-orin".
    ``target``       the name of the target's recipe.
    ``platform``     "linux/arm64".
    ``gpus``         the devices whose code stays; empty for all.
    ``host``         the profile of the system, with the rows of the platform alone, and in an image only those
                     that the container runtime mounts.
    ``device``       the lists of the device's container runtime.
    ``base``         the digest of the base image's manifest, or "scratch"; ``base_root`` the directory with its
                     files.
    ``compression``  of image layers.
    """

    name: str = ""
    target: str = ""
    platform: str = ""
    gpus: tuple[Gpu, ...] = ()
    host: Host | None = None
    device: HostFiles | None = None
    base: str = ""
    base_root: str = ""
    compression: str = ""

    @property
    def words(self) -> str:
        """All that is known of it, in one line; empty where that is the platform alone."""
        device = ("its container runtime's lists",) if self.device else ()
        base = (f"base {self.base}",) if self.base else ()
        known = (*map(str, self.gpus), *((self.host.title,) if self.host else ()), *device, *base)
        what = f"{self.target}: " if self.target else ""
        return what + ", ".join((self.platform, *known)) if known else ""

    def in_base(self, file: str) -> bool:
        """Whether ``file`` of this machine is one of the base's own."""
        return bool(self.base_root and file) and Path(file).is_relative_to(self.base_root)

    def grants(self, soname: str, versions: Iterable[str] = (), file: str = "") -> Grant | None:
        """Who supplies the library there, None for nobody. ``file`` is the one that was found for it here."""
        if self.in_base(file):
            return Grant("the base image", "--base")
        supplied = self.host.supplies(soname) if self.host else None
        if self.host and supplied and not supplied.lacks(versions):
            return Grant(f"{self.host.title}, {supplied.package.title}", str(self.host.source))
        path = self.device.supplies(soname) if self.device else None
        return Grant(f"the device, {path}", "--host-csv") if path else None

    def offers(self, library: str, version: str) -> bool | None:
        """Whether the host profile's ``library`` has a symbol version; None where it says nothing of the library.

        As :class:`packager.resolve.versions.Provider` asks it.
        """
        supplied = self.host.supplies(library) if self.host else None
        return None if supplied is None else not supplied.lacks([version])

    def for_machine(self, machine: str, program: Path) -> Destination:
        """The same with the platform of the program's machine.

        Raises DpackError (exit 2) where the program is made for another machine, or the host is for another one.
        """
        made_for = platform_of(machine)
        if self.platform and self.platform != made_for:
            compiler = next((m for m, p in PLATFORMS.items() if p == self.platform), "")
            raise usage(
                f"cannot bundle {program} for {self.name or self.platform}",
                f"it is built for {made_for}, not for {self.platform}",
                next=f"build it with {compiler}-linux-gnu-g++"
                if compiler
                else f"build it for {self.platform}",
            )
        host = self.host.on(made_for) if self.host else None
        return replace(self, platform=made_for, host=host)

    def in_an_image(self) -> Destination:
        """The same for what runs in a container: of the host only what the container runtime mounts is there."""
        if self.host is None:
            return self
        mounted = tuple(package for package in self.host.packages if package.mounted)
        return replace(self, host=replace(self.host, packages=mounted))


ANYWHERE = Destination()
"""Nothing is known of where the bundle is to run."""
