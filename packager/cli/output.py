"""Where `dpack bundle` writes, in which form, and the function that writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packager.analysis import Analysis
from packager.emit import Format, epoch_of, format_of, level_of
from packager.errors import usage

IMAGES = {"oci": "-oci", "oci-archive": ".oci.tar", "layer": ".layer"}
"""The forms that are an image or a part of one, and what their default names end with."""

Write = Callable[[Callable[[int], None]], dict[str, Any]]
"""Writes, telling its progress in bytes, and returns the manifest."""


@dataclass(frozen=True, slots=True)
class Destined:
    """What the options say of the output."""

    output: str | None
    form: str | None
    level: int | None
    compression: str | None
    layers: str
    name: str
    force: bool

    @property
    def image(self) -> bool:
        """True for an image or a layer."""
        return self.form in IMAGES

    def path(self, program: Path) -> Path:
        """Where it is written."""
        suffix = IMAGES.get(self.form or "", f".{self.form or 'tar.zst'}")
        return Path(self.output or f"{program.name}{suffix}")

    def check(self, environ: Mapping[str, str]) -> None:
        """Refuse what cannot be, before any work is done: DpackError (exit 2)."""
        epoch_of(environ)
        if self.image:
            if self.level is not None and self.compression:
                level_of(_ARCHIVES[self.compression], self.level)
            return
        level_of(format_of(self.output or "bundle", self.form), self.level)
        given = {"--compression": self.compression, "--name": self.name}
        if odd := next((option for option, value in given.items() if value), None):
            raise usage(
                f"cannot use {odd} here", "it is for images", next="add --format oci-archive, or leave it out"
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
        return lambda advance: write_bundle(analysis, target, advance).manifest, path
    from packager.image import ImageOutput
    from packager.image import image as write_image
    from packager.oci.layer import Compression

    output = ImageOutput(
        path,
        chosen.form or "oci",
        Compression(chosen.compression or analysis.ground.destination.compression or "zstd"),
        name=chosen.name,
        split=chosen.layers == "split",
        force=chosen.force,
        epoch=epoch,
        level=chosen.level,
    )
    return lambda advance: write_image(analysis, output, advance).manifest, path
