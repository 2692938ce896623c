"""``dpack tree``: the closure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from packager.cli.options import PROGRAM, analysis_of, fail_unless_complete, request_options
from packager.cli.printing import print_json
from packager.cli.sections import SectionedCommand


@click.command(cls=SectionedCommand)
@PROGRAM
@request_options
@click.option("--json", "as_json", is_flag=True, help="Print objects, edges and misses as JSON.")
def tree(program: Path, as_json: bool, **options: Any) -> None:
    """Show everything that a program loads, as a tree: how each file was found, and why it is loaded.

    An object that was shown above stands again without what is below it. Names that an object only mentions,
    and that no recipe knows, are listed at the end.

    \b
      dpack tree ./mnist
    """
    from packager.account.tree import tree_json, tree_text

    analysis = analysis_of(program, **options)
    if as_json:
        print_json(tree_json(analysis.closure))
    else:
        click.echo(tree_text(analysis.closure, analysis.recipes))
    fail_unless_complete(analysis)
