"""``dpack plan``: what bundle would do."""

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
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(program: Path, as_json: bool, **options: Any) -> None:
    """Show what `dpack bundle` would keep, drop and leave to the host: each file, its size and the reason.

    Exits with 1 when something is missing or contradicts the request.

    \b
      dpack plan ./mnist --model cnn
      dpack plan ./mnist --model cnn --fetch          get what is missing first
      dpack plan ./app -R /srv/sysroots/orin          for another machine's file system
    """
    from packager.account.report import plan_json, plan_text

    analysis = analysis_of(program, **options)
    if as_json:
        print_json(plan_json(analysis.plan))
    else:
        click.echo(plan_text(analysis.plan))
    fail_unless_complete(analysis)
