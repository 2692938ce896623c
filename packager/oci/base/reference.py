"""From what the user writes after ``--base`` to an image and its sysroot.

The transports are written as skopeo writes them (containers-transports(5)): ``oci:DIR[:NAME]``,
``oci-archive:FILE[:NAME]``, ``docker-archive:FILE[:NAME:TAG]``, ``docker://REFERENCE``. A path that exists needs
none of them, and what is no path is a reference on a registry. ``scratch`` is the image with nothing in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from packager.errors import usage
from packager.oci.base.image import Image as LocalImage
from packager.oci.base.image import environment_of, platform_of
from packager.oci.base.read import open_image
from packager.oci.base.unpack import sysroot_of
from packager.oci.descriptor import Base as Image
from packager.oci.descriptor import Platform
from packager.resolve.machine import Machine
from packager.resolve.provided import Provided, provided_by
from packager.resolve.sysroot import Sysroot

SCRATCH = "scratch"
"""The base without a file."""

Pull = Callable[[str, Platform | None], Image]
"""Gets the image that a registry's reference names, for a platform."""

_FORM = "write oci:DIR, oci-archive:FILE, docker-archive:FILE, HOST/REPOSITORY:TAG or scratch"


@dataclass(frozen=True, slots=True)
class Base:
    """An image to build on: as the user named it, the image, and the directory with its sysroot.

    ``image`` and ``root`` are None for scratch; ``from_registry`` tells a reference from a path.
    """

    reference: str
    image: Image | None
    root: Path | None
    from_registry: bool = False

    @property
    def platform(self) -> Platform | None:
        """What its config says it is for."""
        return platform_of(self.image.config, f"the config of {self.reference}") if self.image else None

    @property
    def library_path(self) -> tuple[str, ...]:
        """The directories of the LD_LIBRARY_PATH that its containers start with, as they see them."""
        if self.image is None:
            return ()
        path = environment_of(self.image.config, f"the config of {self.reference}").get("LD_LIBRARY_PATH", "")
        return tuple(part.rstrip("/") for part in path.split(":") if part.startswith("/") and part != "/")

    def has(self, host: str) -> bool:
        """Whether the file ``host`` of this machine (``Object.host``) is one of the base's own."""
        return self.root is not None and Path(host).is_relative_to(self.root)

    def sysroot(self, outside: tuple[Path | str, ...] = ()) -> Sysroot:
        """Its file system with further directories beside it; ValueError for scratch, which has none."""
        if self.root is None:
            raise ValueError("scratch has no file system to search")
        return Sysroot.at(self.root, outside)

    def provided(self, machine: Machine) -> Provided:
        """Its C library and symbol versions; ValueError for scratch."""
        return provided_by(self.sysroot(), machine, self.library_path)


def open_base(text: str, platform: Platform | None, *, cache: Path, pull: Pull | None = None) -> Base:
    """The base that ``text`` names, for ``platform``, unpacked into ``cache`` where it was not yet.

    ``pull`` gets images from registries; without it they are refused. Raises DpackError where there is no such
    image, it is for another platform, or it is damaged.
    """
    if text == SCRATCH:
        return Base(text, None, None)
    image = _image(text, platform, pull)
    stated = platform_of(image.config, f"the config of {text}")
    if platform is not None and not platform.matches(stated):
        raise usage(
            f"cannot build on {text}",
            f"it is for {stated}, and the program is for {platform}",
            next="name a base for that platform",
        )
    return Base(text, image, sysroot_of(image, cache).resolve(), not isinstance(image, LocalImage))


def _image(text: str, platform: Platform | None, pull: Pull | None) -> Image:
    transport, colon, rest = text.partition(":")
    if colon and transport in {"oci", "oci-archive", "docker-archive"}:
        path, ref = _split(rest)
        return open_image(path, platform, ref, docker=transport == "docker-archive")
    if Path(text).exists():
        return open_image(Path(text), platform)
    remote = text.removeprefix("docker://")
    if pull is None or text.startswith(("/", "./", "../")):
        raise usage(f"cannot find the base {text}", "no such file or directory", next=_FORM)
    if "/" not in remote:
        raise usage(
            f"cannot find the base {text}",
            "no such file or directory, and a reference on a registry begins with its host",
            next=_FORM,
        )
    return pull(remote, platform)


def _split(text: str) -> tuple[Path, str]:
    """PATH[:NAME]; a NAME may hold colons, and a path that exists may, too."""
    if Path(text).exists():
        return Path(text), ""
    path, _, ref = text.partition(":")
    return Path(path), ref
