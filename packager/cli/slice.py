"""``dpack slice``: one file, with the GPU code that the given GPUs run."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packager.cli.options import print_json

if TYPE_CHECKING:
    from packager.arch import Gpu
    from packager.cuda.code import GpuCode
    from packager.cuda.cut import Cut
    from packager.cuda.select import Ptx


@click.command()
@click.argument("file", type=click.Path(path_type=Path, readable=False), metavar="FILE")
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
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="OUT", help="Where to write.")
@click.option("-f", "--force", is_flag=True, help="Replace OUT when it exists.")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would go, write nothing.")
@click.option(
    "--vendor", is_flag=True, help="Slice a file whose licence does not let you pass a changed one on."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def slice(  # noqa: A001 - commands are found by their names
    file: Path,
    names: tuple[str, ...],
    exact: bool,
    ptx: Ptx,
    minors: bool | None,
    output: Path | None,
    force: bool,
    dry_run: bool,
    vendor: bool,
    as_json: bool,
) -> None:
    """Cut from a program or shared object the GPU code that the given GPUs cannot run.

    The file gets smaller, not sparse; what stays is the same to the bit, at the same address, and the ordinary
    loader loads it. What no proof allows to go stays, and is named. NVIDIA's own files need --vendor.

    \b
      dpack slice libmine.so --gpu sm_86 -o small/libmine.so
      dpack slice libmine.so --gpu sm_80 --gpu sm_90 -n
      dpack slice libcublas.so.12 --gpu sm_86 --vendor -o small/libcublas.so.12
    """
    from packager.account.slicing import slice_json, slice_text
    from packager.arch import Gpu
    from packager.cuda.cut import plan_cut
    from packager.cuda.scan import read_gpu_code
    from packager.cuda.select import Policy, keep
    from packager.emit import check_output
    from packager.gpu import PRIOR_MINORS

    if output is None and not dry_run:
        raise click.UsageError("Name the file to write with -o, or look first with -n.")
    gpus = tuple(Gpu(each.arch, each.exact or exact) for each in map(Gpu.of, names))
    if output is not None:
        _check_apart(file, output)
        check_output(output, force=force)
    code = read_gpu_code(file)
    _check_runs(code, gpus)
    _check_licence(file.name, vendor=vendor or dry_run)
    prior = any(fnmatchcase(file.name, glob) for glob in PRIOR_MINORS) if minors is None else minors
    cut = plan_cut(code, keep(code, gpus, Policy(prior_minors=prior, ptx=ptx)))
    if output is not None and not dry_run:
        _write(file, output, cut, force=force)
    if as_json:
        print_json(slice_json(code, cut, gpus))
    else:
        click.echo(slice_text(code, cut, gpus), nl=False)


def _check_apart(file: Path, output: Path) -> None:
    from packager.errors import usage

    if output.exists() and file.exists() and output.samefile(file):
        raise usage(f"cannot write {output}", "it is the file to slice", next="choose another name with -o")


def _check_runs(code: GpuCode, gpus: tuple[Gpu, ...]) -> None:
    from packager.cuda.select import runnable
    from packager.errors import DpackError

    lacking = [str(gpu) for gpu in gpus if not runnable(code, gpu)]
    if lacking:
        raise DpackError(
            f"cannot slice {code.path} for {' and '.join(lacking)}",
            "it has no code that runs there",
            tried=[f"it has {', '.join(map(str, code.arches)) or 'no machine code'}"],
            next="choose one of these with --gpu; `dpack gpu FILE` shows all that there is",
        )


def _check_licence(name: str, *, vendor: bool) -> None:
    """Tell what the licence says of a changed file, and raise DpackError unless the user goes on all the same."""
    from packager import recipes
    from packager.account.slicing import vendor_notice
    from packager.errors import DpackError

    known = recipes.load()
    family = known.family_of(name)
    if family is None or known.licence(family).modify:
        return
    notice = vendor_notice(name, known.licence(family))
    if not vendor:
        raise DpackError(
            f"cannot slice {name}", notice, next="where you may: --vendor; -n shows what it would save"
        )
    click.echo(notice, err=True)


def _write(file: Path, output: Path, cut: Cut, *, force: bool) -> None:
    from packager.cuda.cut import write
    from packager.emit.place import cannot_write, placed

    try:
        with placed(output, force=force) as path:
            write(file, path, cut)
            with path.open("rb") as written:
                os.fsync(written.fileno())
    except OSError as error:
        raise cannot_write(output, error, cut.size) from error
