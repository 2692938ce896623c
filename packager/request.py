"""What the user asks for, as values: every option of the commands that look at a program."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SCRATCH = "scratch"
"""The base with nothing in it: the C library and the loader go into the image, too."""


@dataclass(frozen=True, slots=True)
class Supply:
    """Whether and how missing libraries are fetched. ``pins`` are requirement strings that choose versions."""

    pins: tuple[str, ...] = ()
    offline: bool = False
    index_url: str | None = None


@dataclass(frozen=True, slots=True)
class Aim:
    """Where the bundle is to run, in the words of the user; empty where nothing is said.

    ``target``, ``host``  names of recipes; ``platform`` as "linux/arm64"; ``gpus`` as "sm_86" or "8.6".
    ``host_csv``          a copy of the lists of a Jetson's container runtime.
    ``base``              an image to build on, or "scratch"; ``plain_http`` the registries without TLS.
    ``image``             True for what runs in a container; for a layer whose base is not named, --host says what
                          that has, and it is then False.
    """

    target: str = ""
    platform: str = ""
    gpus: tuple[str, ...] = ()
    host: str = ""
    host_csv: Path | None = None
    base: str = ""
    plain_http: tuple[str, ...] = ()
    image: bool = False

    @property
    def names_a_device(self) -> bool:
        """Whether anything is asked of the recipes of targets and hosts."""
        return bool(self.target or self.host or self.gpus)


@dataclass(frozen=True, slots=True)
class Slicing:
    """Which GPU code is cut out of files: ``which`` files ("auto": those whose licence allows it; "vendor":
    NVIDIA's too; "no"), and what becomes of their PTX.
    """

    which: Literal["auto", "vendor", "no"] = "auto"
    ptx: Literal["auto", "keep", "drop"] = "auto"


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for. Paths are this machine's; ``supply`` is None where nothing is to be fetched."""

    program: Path
    models: tuple[str, ...] = ()
    root: Path = Path("/")
    library_path: tuple[Path, ...] = ()
    cpu: str = ""
    recipes: tuple[Path, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    strict: bool = False
    strip: bool = True
    supply: Supply | None = None
    cudnn: Literal["full", "jit"] = "full"
    aim: Aim = Aim()
    slicing: Slicing = Slicing()
