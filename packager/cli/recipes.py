"""``dpack recipes``: what dpack knows about libraries, models, frameworks, targets and host profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from packager.cli.printing import print_json

_Command = TypeVar("_Command", bound=Callable[..., Any])

_DIRECTORY = click.Path(path_type=Path, file_okay=False)


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from packager.recipes import load

    known = load()
    groups = (known.models, known.families, known.frameworks, known.targets, known.hosts)
    return [each.name for group in groups for each in group if each.name.startswith(incomplete)]


def _shared(command: _Command) -> _Command:
    add = click.option(
        "--recipes",
        "directories",
        multiple=True,
        type=_DIRECTORY,
        metavar="DIR",
        help="Add recipes from DIR; one of the same name replaces dpack's.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    return add(as_json(command))


@click.group()
def recipes() -> None:
    """Show what dpack knows about libraries and models, or check recipes of your own.

    \b
      dpack recipes list
      dpack recipes show cudnn9
      dpack recipes check ./my-recipes
    """


@recipes.command("list")
@_shared
def list_(directories: tuple[Path, ...], as_json: bool) -> None:
    """List the models, the library families, the frameworks, the targets and the host profiles.

    \b
      dpack recipes list
    """
    from packager.recipes import load
    from packager.recipes.describe import overview, overview_json

    known = load(directories)
    if as_json:
        print_json(overview_json(known))
    else:
        click.echo(overview(known))


@recipes.command()
@click.argument("name", shell_complete=_names)
@_shared
def show(name: str, directories: tuple[Path, ...], as_json: bool) -> None:
    """Show one recipe: a family, a model, a framework, a target, a host profile, a component or the one that a
    library belongs to.

    \b
      dpack recipes show cnn
      dpack recipes show cudnn9:adv
      dpack recipes show jetson-orin
      dpack recipes show libcudnn_adv.so.9
    """
    from packager.recipes import load
    from packager.recipes.describe import details, details_json, find

    known = load(directories)
    found = find(known, name)
    if as_json:
        print_json([details_json(known, each) for each in found])
    else:
        click.echo("\n\n".join(details(known, each) for each in found))


@recipes.command()
@click.argument("directory", type=_DIRECTORY, required=False, metavar="[DIR]")
def check(directory: Path | None) -> None:
    """Check the recipes of DIR together with those that dpack ships, or those alone.

    Every problem is shown with its file and key; the exit code is 2 where there is one.

    \b
      dpack recipes check ./my-recipes
    """
    from packager.recipes import load

    known = load([directory] if directory else [])
    parts = sum(len(family.components) for family in known.families)
    click.echo(
        f"no problem: {len(known.families)} families with {parts} components, {len(known.models)} models, "
        f"{len(known.frameworks)} frameworks, {len(known.targets)} targets, {len(known.hosts)} host profiles"
    )
