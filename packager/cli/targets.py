"""``dpack targets``: the devices that a bundle can be made for, and what their systems supply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from packager.cli.printing import print_json

if TYPE_CHECKING:
    from packager.recipes import Host, Recipes, Target


def target_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of targets, for the shell's completion."""
    from packager.recipes import load

    names = (name for target in load().targets for name in target.names)
    return sorted(name for name in names if name.startswith(incomplete))


def host_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of host profiles, for the shell's completion."""
    from packager.recipes import load

    names = (name for host in load().hosts for name in (host.name, *host.aliases))
    return sorted(name for name in names if name.startswith(incomplete))


def _names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    return target_names(context, parameter, incomplete) + host_names(context, parameter, incomplete)


@click.command()
@click.argument("name", required=False, shell_complete=_names, metavar="[NAME]")
@click.option("--hosts", "only_hosts", is_flag=True, help="List the host profiles instead of the targets.")
@click.option(
    "--recipes",
    "directories",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Add recipes from DIR; one of the same name replaces dpack's.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def targets(name: str | None, only_hosts: bool, directories: tuple[Path, ...], as_json: bool) -> None:
    """List the devices that dpack knows, or show the target or the host profile NAME in full.

    A target is a device: its platform, which GPU code runs on it, and the system it comes with. A host profile
    says which libraries a system has, and how new they are.

    \b
      dpack targets                 every device
      dpack targets jetson-orin     one device, and the system it comes with
      dpack targets --hosts         every system
      dpack targets jetpack5        what one system has
    """
    from packager.recipes import load
    from packager.recipes.devices import host_json, hosts_table, target_json, targets_table

    known = load(directories)
    if name is not None:
        _show(known, _find(known, name, only_hosts), as_json)
    elif as_json and only_hosts:
        print_json([host_json(host) for host in known.hosts])
    elif as_json:
        print_json([target_json(known, target) for target in known.targets])
    else:
        click.echo(hosts_table(known) if only_hosts else targets_table(known))


def _find(known: Recipes, name: str, only_hosts: bool) -> Target | Host:
    is_host = any(name in (host.name, *host.aliases) for host in known.hosts)
    is_target = any(name in target.names for target in known.targets)
    return known.host(name) if only_hosts or (is_host and not is_target) else known.target(name)


def _show(known: Recipes, found: Target | Host, as_json: bool) -> None:
    from packager.recipes.describe import details, details_json

    if as_json:
        print_json(details_json(known, found))
    else:
        click.echo(details(known, found))
