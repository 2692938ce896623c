"""``dpack slice``: files with the GPU code that the given GPUs run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packager.cli.printing import print_json

if TYPE_CHECKING:
    from packager.cuda.select import Ptx
    from packager.recipes import Licence
    from packager.slicing import Output


@click.command()
@click.argument(
    "files", type=click.Path(path_type=Path, readable=False), metavar="FILE...", nargs=-1, required=True
)
@click.option(
    "--gpu",
    "names",
    multiple=True,
    required=True,
    metavar="SM",
    help="Keep what this GPU runs, as in sm_86 or 8.6. Repeatable.",
)
@click.option(
    "--exact", is_flag=True, help="Keep machine code of exactly these architectures, as Tegra needs."
)
@click.option(
    "--ptx",
    type=click.Choice(["auto", "keep", "drop"]),
    default="auto",
    help="PTX: keep it where no machine code runs (auto), all that these GPUs can compile, or none.",
)
@click.option(
    "--all-minors/--best",
    "minors",
    default=None,
    help="Keep the code of all lower minor architectures too, or the best alone. Default: --best, but for "
    "libcublas*, whose documentation asks for them.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="OUT",
    help="Where to write: a file, or a directory, which several files need. It is made when it is missing; for one "
    "file it must be there or end in /.",
)
@click.option("-f", "--force", is_flag=True, help="Replace files that exist.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would go, write nothing.")
@click.option(
    "--vendor", is_flag=True, help="Slice a file whose licence does not let you pass a changed one on."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures of every file as JSON.")
def slice(  # noqa: A001 - commands are found by their names
    files: tuple[Path, ...],
    names: tuple[str, ...],
    exact: bool,
    ptx: Ptx,
    minors: bool | None,
    output: str | None,
    force: bool,
    dry_run: bool,
    vendor: bool,
    as_json: bool,
) -> None:
    """Cut from programs and shared objects the GPU code that the given GPUs cannot run.

    A file gets smaller, not sparse; what stays is the same to the bit, at the same address, and the ordinary
    loader loads it. What no proof allows to go stays, and is named. NVIDIA's own files need --vendor. Links among
    the files stay links. Nothing is written when one of the files cannot be sliced.

    \b
      dpack slice libmine.so --gpu sm_86 -o small/libmine.so
      dpack slice libmine.so --gpu sm_80 --gpu sm_90 -n
      dpack slice lib/*.so* --gpu sm_86 -o small/
      dpack slice libcublas.so.12 --gpu sm_86 --vendor -o small/libcublas.so.12
    """
    from packager.account.slicing import slices_document, slices_text
    from packager.arch import Gpu
    from packager.cuda.question import policy_of
    from packager.slicing import check_files, slice_files

    if output is None and not dry_run:
        raise click.UsageError("Name the file to write with -o, or look first with -n.")
    gpus = tuple(Gpu(each.arch, each.exact or exact) for each in map(Gpu.of, names))
    check_files(files)
    if not (vendor or dry_run):
        _refuse_vendor(files)
    done = slice_files(
        files,
        gpus,
        lambda name: policy_of(name, ptx, minors),
        None if dry_run or output is None else _output(output, several=len(files) > 1, force=force),
    )
    for _, notice in _notices([Path(each.path).name for each in done.files if each.removed]):
        click.echo(notice, err=True)
    if as_json:
        print_json(slices_document(done, gpus))
    else:
        click.echo(slices_text(done, gpus), nl=False)


def _output(name: str, *, several: bool, force: bool) -> Output:
    """A directory where it is written as one, is one, or must be one."""
    from packager.place import check_output
    from packager.slicing import Output

    path = Path(name)
    if name == "-":
        check_output(path, force=force)  # which says that it goes to no stream
    return Output(path, several or name.endswith("/") or os.path.isdir(path), force)  # noqa: PTH112 - which knows names that are too long


def _refuse_vendor(files: Sequence[Path]) -> None:
    """DpackError, for all of them at once, where licences do not let you pass on a changed file."""
    from packager.errors import DpackError

    if notices := list(_notices([file.name for file in files])):
        named = [name for names, _ in notices for name in names]
        raise DpackError(
            f"cannot slice {named[0]}" if len(named) == 1 else f"cannot slice {len(named)} of these files",
            "the licence lets you pass on no changed one",
            tried=[notice for _, notice in notices],
            next="leave them out, or, where you may, --vendor; -n shows what it would save",
        )


def _notices(names: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """What licences say of changed files of these names, a paragraph each, with the names."""
    from packager import recipes
    from packager.account.slicing import vendor_notice

    known = recipes.load(devices=False)
    forbidding: dict[Licence, list[str]] = {}
    for name in names:
        family = known.family_of(name)
        if family is not None and not known.licence(family).modify:
            forbidding.setdefault(known.licence(family), []).append(name)
    return ((each, vendor_notice(each, licence)) for licence, each in forbidding.items())
