"""Where `dpack bundle` writes, in which form, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.analysis import Analysis
from packager.emit import Format, epoch_of, format_of, level_of
from packager.errors import usage
from packager.request import SCRATCH
from packager.worker import Worker

IMAGES = {"oci": "-oci", "oci-archive": ".oci.tar", "layer": ".layer"}
"""The forms that are an image or a part of one, and what their default names end with."""

_SHAPES = {"--layers": "layers", "--name": "name"}
_ALL_OF_IMAGES = {"--compression": "compression", **_SHAPES}
"""Options for images alone; a single layer has no name, and is one."""

Write = Callable[[Callable[[int], None], Worker], dict[str, Any]]
"""Writes, telling its progress in bytes, with a worker that changes files; returns the manifest."""


@dataclass(frozen=True, slots=True)
class Destined:
    """What the options say of the output; None where they say nothing.

    ``form`` is that of an image too where the name ends as dpack's own archives of images do.
    """

    output: str | None
    form: str | None
    level: int | None
    compression: str | None
    layers: str | None
    name: str | None
    force: bool

    def __post_init__(self) -> None:
        """Take the form from the name."""
        if self.form is None and (self.output or "").lower().endswith(IMAGES["oci-archive"]):
            object.__setattr__(self, "form", "oci-archive")

    @property
    def image(self) -> bool:
        """True for an image or a layer."""
        return self.form in IMAGES

    @property
    def whole_image(self) -> bool:
        """True for an image with a config of its own."""
        return self.image and self.form != "layer"

    def path(self, program: Path) -> Path:
        """Where it is written."""
        suffix = IMAGES.get(self.form or "", f".{self.form or 'tar.zst'}")
        return Path(self.output or f"{program.name}{suffix}")

    def paths(self, program: Path) -> tuple[Path, ...]:
        """Everything that is written: a layer has its descriptor beside it."""
        path = self.path(program)
        return (path, path.with_name(f"{path.name}.json")) if self.form == "layer" else (path,)

    def check(self, environ: Mapping[str, str], base: str) -> None:
        """Refuse what cannot be, before any work is done: DpackError (exit 2)."""
        epoch_of(environ)
        if self.image:
            level_of(_ARCHIVES[self.compression or "zstd"], self.level)
        else:
            level_of(format_of(self.output or "bundle", self.form), self.level)
        others = {} if self.whole_image else _SHAPES if self.image else _ALL_OF_IMAGES
        if odd := next((option for option, name in others.items() if getattr(self, name) is not None), None):
            raise usage(
                f"cannot use {odd} here",
                "it is for whole images" if self.image else "it is for images",
                next=f"add --format oci-archive, or leave out {odd}",
            )
        if self.name is not None:
            from packager.registry.reference import check_name

            check_name(self.name)
        if base == SCRATCH and not self.image:
            raise usage(
                "cannot use --base scratch here",
                "a program with a C library of its own runs where that is the root file system: in an image",
                next="add --format oci-archive, or leave out --base: the C library is then the host's",
            )


_ARCHIVES = {"zstd": Format.TAR_ZST, "gzip": Format.TAR_GZ, "none": Format.TAR}


def chosen_output(chosen: Destined, analysis: Analysis, environ: Mapping[str, str]) -> tuple[Write, Path]:
    """The function that writes the bundle or image of ``analysis``, and where it writes."""
    path, epoch = chosen.path(analysis.request.program), epoch_of(environ)
    if not chosen.image:
        from packager.bundle import Output
        from packager.bundle import bundle as write_bundle

        form = format_of(chosen.output or path.name, chosen.form)
        target = Output(path, form, force=chosen.force, epoch=epoch, level=chosen.level)
        return lambda advance, worker: write_bundle(analysis, target, advance, worker).manifest, path
    from packager.image import ImageOutput
    from packager.image import image as write_image
    from packager.oci.layer import Compression

    output = ImageOutput(
        path,
        chosen.form or "oci",
        Compression(chosen.compression or analysis.ground.destination.compression or "zstd"),
        name=chosen.name or "",
        split=chosen.layers != "one",
        force=chosen.force,
        epoch=epoch,
        level=chosen.level,
    )
    return lambda advance, worker: write_image(analysis, output, advance, worker).manifest, path
