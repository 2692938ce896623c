"""Where a bundle is to run: its platform and GPUs, and what the system there supplies by itself.

What a system supplies is known from a host profile (recipes/hosts), from the lists of a Jetson's container
runtime, or from a base image, whose files are there to be read. A profile or a list grants a library only
where its symbol versions are as new as those that the bundle wants.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from packager.arch import Gpu
from packager.errors import usage
from packager.recipes import Host
from packager.resolve.hostcsv import HostFiles

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
"""How OCI writes the machines that dpack has targets for (image-spec, "Platform": GOOS and GOARCH)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """That the destination has a library: by what, in words, and the file that says so ("" for a base)."""

    by: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a bundle is to run; every part may be unknown.

    ``name``         as messages call it: "jetson-orin".
    ``platform``     "linux/arm64".
    ``gpus``         the devices whose code stays; empty for all.
    ``host``         the profile of the system, with the rows of the platform alone, and in an image only those
                     that the container runtime mounts.
    ``device``       the lists of the device's container runtime.
    ``base``         the base image as the user named it, and in ``base_root`` the directory with its files.
    ``compression``  of image layers.
    """

    name: str = ""
    platform: str = ""
    gpus: tuple[Gpu, ...] = ()
    host: Host | None = None
    device: HostFiles | None = None
    base: str = ""
    base_root: str = ""
    compression: str = ""

    def grants(self, soname: str, versions: Iterable[str] = (), file: str = "") -> Grant | None:
        """Who supplies the library there, None for nobody. ``file`` is the one that was found for it here."""
        if self.base_root and file and Path(file).is_relative_to(self.base_root):
            return Grant(f"the base {self.base}")
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
        made_for = PLATFORMS.get(machine, f"linux/{machine}")
        if self.platform and self.platform != made_for:
            compiler = next((m for m, p in PLATFORMS.items() if p == self.platform), "the target's")
            raise usage(
                f"cannot bundle {program} for {self.name or self.platform}",
                f"it is built for {made_for}, and {self.name or 'the bundle'} is {self.platform}",
                next=f"build it with {compiler}-linux-gnu-g++, or choose another target",
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
