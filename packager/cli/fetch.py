"""``dpack fetch``: wheels from the package index into the cache."""

from __future__ import annotations

import platform
from pathlib import Path

import click

from packager.cli.printing import print_json
from packager.cli.progress import Bars
from packager.errors import usage
from packager.resolve.machine import machine_named
from packager.source import Distribution, library_directories, sdk
from packager.source import fetch as fetch_wheels


@click.command()
@click.argument("requirements", nargs=-1, required=True, metavar="REQUIREMENT...")
@click.option("--machine", metavar="NAME", help="Machine to fetch for: x86_64 (amd64) or aarch64 (arm64).")
@click.option(
    "--sdk",
    "sdk_directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Also make DIR with include/ and lib/ of all of them, for a compiler.",
)
@click.option("--offline", is_flag=True, help="Use the package cache alone.")
@click.option(
    "--index-url", metavar="URL", help="The package index, instead of the one pip is configured for."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was fetched as JSON.")
def fetch(
    requirements: tuple[str, ...],
    machine: str | None,
    sdk_directory: Path | None,
    offline: bool,
    index_url: str | None,
    as_json: bool,
) -> None:
    """Fetch wheels with shared libraries into dpack's cache, and print where they are.

    REQUIREMENT is what pip takes: a name, or a name with versions. pip's configuration (index, proxy,
    certificates) is honoured; every file is checked against the index's sha256. A download that was
    interrupted goes on where it stopped. The cache is DPACK_CACHE, or your user cache directory.

    \b
      dpack fetch nvidia-cudnn-cu12==9.10.2.21 'nvidia-cublas-cu12<12.10'
      dpack fetch --machine aarch64 nvidia-cudnn-cu13
      dpack fetch --sdk cuda nvidia-cudnn-cu13 nvidia-cuda-runtime
    """
    wanted = machine_named(machine or platform.machine())
    if wanted is None:
        raise usage(f"unknown machine {machine}", next="name x86_64 or aarch64")
    with Bars() as bars:
        fetched = fetch_wheels(
            requirements, machine=wanted.name, offline=offline, index_url=index_url, progress=bars
        )
    if sdk_directory is not None:
        sdk(fetched, sdk_directory)
    if as_json:
        print_json([_row(each) for each in fetched])
        return
    for each in fetched:
        click.echo(f"{each.name} {each.version}  {each.root}")
    if sdk_directory is not None:
        click.echo(f"headers and libraries  {sdk_directory}")


def _row(each: Distribution) -> dict[str, object]:
    return {
        "name": each.name,
        "version": each.version,
        "tag": each.tag,
        "sha256": each.sha256,
        "root": str(each.root),
        "libraries": [str(path) for path in library_directories(each)],
    }
