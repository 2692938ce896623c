"""``dpack why``: the story of one library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.options import PROGRAM, analysis_of, request_options
from packager.cli.sections import SectionedCommand


@click.command(cls=SectionedCommand)
@PROGRAM
@click.argument("name", metavar="NAME")
@request_options
def why(program: Path, name: str, **options: Any) -> None:
    """Tell why a library is kept, dropped, left to the host or missing: the whole chain from the program.

    NAME is a soname, a glob or the plain name: libcudnn_adv.so.9, 'libcudnn_*', cudnn_adv.

    \b
      dpack why ./mnist libcudnn_adv.so.9 --model cnn
    """
    from packager.account.why import why_text

    click.echo(why_text(analysis_of(program, **options), name))
