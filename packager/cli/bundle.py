"""``dpack bundle``: the main job."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from packager.account import table
from packager.account.compare import Sizes, framework_table, size_table, sizes_of_manifest, sizes_of_plan
from packager.account.report import plan_json, plan_text
from packager.account.size import human
from packager.analysis import Analysis
from packager.cli.options import PROGRAM, analysis_of, fail_unless_complete, request_options
from packager.cli.output import Destined, chosen_output
from packager.cli.printing import print_json, silence
from packager.cli.progress import bytes_bar
from packager.cli.sections import OUTPUT_SECTION, SectionedCommand, option
from packager.place import check_output
from packager.plan import Plan
from packager.transform.worker import started


@click.command(cls=SectionedCommand)
@PROGRAM
@request_options
@option(
    OUTPUT_SECTION,
    "-o",
    "--output",
    metavar="NAME",
    help="Where to write. Default: APP.tar.zst in this directory; with --format APP.dir, APP.tar, APP-oci, "
    "APP.oci.tar and so on.",
)
@option(
    OUTPUT_SECTION,
    "--format",
    "form",
    type=click.Choice(["dir", "tar", "tar.gz", "tar.zst", "oci", "oci-archive", "layer"]),
    help="Default: by the suffix of NAME, else tar.zst. oci is an image in a directory (an image layout), "
    "oci-archive a tar of it, layer one layer with its digests beside it.",
)
@option(
    OUTPUT_SECTION,
    "--level",
    type=int,
    metavar="N",
    help="Compression level: tar.zst and zstd layers 1 to 19 (3), tar.gz and gzip layers 1 to 9 (6).",
)
@option(
    OUTPUT_SECTION,
    "--compression",
    type=click.Choice(["zstd", "gzip", "none"]),
    help="Of image layers. Default: what the target's container engine reads, else zstd.",
)
@option(
    OUTPUT_SECTION,
    "--layers",
    type=click.Choice(["split", "one"]),
    help="Vendor libraries, other libraries and the program in a layer each (split, the default), or all in one.",
)
@option(
    OUTPUT_SECTION,
    "--name",
    "image_name",
    metavar="NAME[:TAG]",
    help="The image's. Default: APP:latest, in lower case.",
)
@option(
    OUTPUT_SECTION,
    "-f",
    "--force",
    is_flag=True,
    help="Replace NAME when it exists: a file, or a directory that dpack wrote and nobody else.",
)
@option(
    OUTPUT_SECTION,
    "-n",
    "--dry-run",
    is_flag=True,
    help="Show the plan and the sizes, write nothing.",
)
@option(
    OUTPUT_SECTION,
    "--json",
    "as_json",
    is_flag=True,
    help="Print the manifest as JSON instead of text; with -n the plan, as dpack plan does.",
)
@option(
    OUTPUT_SECTION,
    "--markdown",
    is_flag=True,
    help="Print the size tables as Markdown, for a README or a pull request.",
)
def bundle(
    program: Path,
    output: str | None,
    form: str | None,
    level: int | None,
    compression: str | None,
    layers: str | None,
    image_name: str | None,
    force: bool,
    dry_run: bool,
    as_json: bool,
    markdown: bool,
    **options: Any,
) -> None:
    """Bundle a program with exactly the libraries that it needs, those opened with dlopen included.

    The bundle holds bin/APP, lib/ with the libraries, share/licenses/ and dpack.json, the manifest that
    accounts for every file kept and left out. It runs from any directory, with no environment variable set.
    The C library and the GPU driver are the host's. Vendor files stay byte for byte what the vendor shipped.

    As an image (oci, oci-archive) the bundle stands in /app, and the program is the entrypoint. It is built on
    --base: what that has is not copied again, and symbol versions that it lacks are told. Without one the image
    holds nothing else: the C library is in it too, and the GPU driver comes from the container toolkit of the
    host. Its layers are the vendor's libraries, other libraries and the program, so that an update of the program
    moves the last one alone. dpack.json is in it, and attached to it for registries. A layer without an image
    (--format layer) is for other tools to append; its digest and diff_id stand in NAME.json.

    \b
      dpack bundle ./mnist --model cnn                   write mnist.tar.zst
      dpack bundle ./mnist --model cnn --fetch           fetch missing NVIDIA libraries first
      dpack bundle ./mnist --model cnn -o out/ --force   a directory
      dpack bundle ./mnist --model cnn --json > size.json
      dpack bundle ./mnist --model cnn --target l4 --format oci-archive    an image: mnist.oci.tar
      dpack bundle ./mnist --model cnn -o mnist.oci.tar --base registry.example.com/debian:12

    `dpack push` takes an image to a registry. SOURCE_DATE_EPOCH sets the time of every file. The same input gives
    the same bytes.
    """
    if as_json and markdown:
        raise click.UsageError("--json and --markdown exclude each other.")
    output_options = Destined(output, form, level, compression, layers, image_name, force)
    output_options.check(os.environ, options["base"])
    if output_options.whole_image and not options["base"]:
        options["base"] = "scratch"
    options["layer"] = form == "layer"
    for path in output_options.paths(program):
        check_output(path, force=force)
    if dry_run:
        analysis = _planned(program, options, quiet=as_json or markdown)
        if as_json:
            print_json(plan_json(analysis.plan))
        else:
            _show_sizes(sizes_of_plan(analysis.plan), analysis, markdown=markdown)
        return
    with started() as worker:  # gets ready while this process plans
        analysis = _planned(program, options, quiet=as_json or markdown)
        write, target = chosen_output(output_options, analysis, os.environ)
        with bytes_bar(f"writing {target.name}", analysis.plan.packed_size) as advance:
            manifest = write(advance, worker)
    with _unheard():
        if as_json:
            print_json(manifest)
            return
        _show_sizes(sizes_of_manifest(manifest), analysis, markdown=markdown)
    if not markdown:
        _tell(manifest, target)


def _planned(program: Path, options: dict[str, Any], *, quiet: bool) -> Analysis:
    """Plan, and show the plan; DpackError where it is not complete."""
    analysis = analysis_of(program, **options)
    _show_plan(analysis.plan, quiet=quiet)
    fail_unless_complete(analysis)
    return analysis


def _tell(manifest: dict[str, Any], target: Path) -> None:
    """What was written; of an image its digests, too."""
    image = manifest.get("image", {})
    for layer in image.get("layers", ()):
        click.echo(f"layer  {layer['digest']}  {human(layer['bytes']):>8}  {layer['name']}", err=True)
    if "digest" in image:
        click.echo(f"image  {image['digest']}", err=True)
    beside = f" and {target.name}.json, its descriptor" if image and "digest" not in image else ""
    click.echo(f"\nwrote {target}{beside}", err=True)


def _show_plan(plan: Plan, *, quiet: bool) -> None:
    """The plan on stdout; where stdout is for something else, its warnings on stderr."""
    if not quiet:
        with _unheard():
            click.echo(plan_text(plan))
    for warning in plan.warnings if quiet else ():
        click.echo(f"warning: {warning}", err=True)


@contextmanager
def _unheard() -> Iterator[None]:
    """Go on where the reader of stdout went away (dpack bundle … | head): the bundle is what counts."""
    try:
        yield
    except BrokenPipeError:
        silence()


def _show_sizes(sizes: Sizes, analysis: Analysis, *, markdown: bool) -> None:
    render = table.markdown if markdown else table.text
    if not markdown:
        click.echo()
    click.echo(render(size_table(sizes)))
    click.echo(render(framework_table(sizes, analysis.recipes.frameworks)), nl=False)
