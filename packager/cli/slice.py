"""``dpack slice``: files with the GPU code that the given GPUs run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from packager.cli.printing import print_json

if TYPE_CHECKING:
    from packager.cuda.select import Ptx
    from packager.recipes import Licence


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
    type=click.Path(path_type=Path),
    metavar="OUT",
    help="Where to write: a file, or a directory, which several files need and which is made when it is missing.",
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
    output: Path | None,
    force: bool,
    dry_run: bool,
    vendor: bool,
    as_json: bool,
) -> None:
    """Cut from programs and shared objects the GPU code that the given GPUs cannot run.

    A file gets smaller, not sparse; what stays is the same to the bit, at the same address, and the ordinary
    loader loads it. What no proof allows to go stays, and is named. NVIDIA's own files need --vendor. Nothing is
    written when one of the files cannot be sliced.

    \b
      dpack slice libmine.so --gpu sm_86 -o small/libmine.so
      dpack slice libmine.so --gpu sm_80 --gpu sm_90 -n
      dpack slice lib/*.so* --gpu sm_86 -o small/
      dpack slice libcublas.so.12 --gpu sm_86 --vendor -o small/libcublas.so.12
    """
    from packager.account.slicing import slices_document, slices_text
    from packager.arch import Gpu
    from packager.cuda.question import policy_of
    from packager.emit.place import placed
    from packager.slicing import Job, slices

    if output is None and not dry_run:
        raise click.UsageError("Name the file to write with -o, or look first with -n.")
    gpus = tuple(Gpu(each.arch, each.exact or exact) for each in map(Gpu.of, names))
    outputs = _outputs(files, output, force=force) if output is not None else []
    if not (vendor or dry_run):
        _refuse_vendor(files)
    with ExitStack() as stack:
        if not dry_run and output is not None and outputs[0] != output:
            stack.enter_context(_directory(output))
        jobs = [Job(file, gpus, policy_of(file.name, ptx, minors)) for file in files]
        if not dry_run:
            jobs = [
                replace(job, target=stack.enter_context(placed(each, force=force)), output=each)
                for job, each in zip(jobs, outputs, strict=True)
            ]
        planned = slices(jobs)
    for _, notice in _notices([Path(each.path).name for each in planned if each.removed]):
        click.echo(notice, err=True)
    if as_json:
        print_json(slices_document(planned, gpus))
    else:
        click.echo(slices_text(planned, gpus), nl=False)


def _outputs(files: tuple[Path, ...], output: Path, *, force: bool) -> list[Path]:
    """Where each file goes. DpackError (exit 2) where one cannot be written there, before any work is done."""
    from packager.emit import check_output
    from packager.errors import usage

    if len(files) == 1 and not output.is_dir():
        outputs = [output]
    else:
        outputs = [output / file.name for file in files]
        same = {each.name for each in outputs if [other.name for other in outputs].count(each.name) > 1}
        if same:
            what = f"cannot write {output / min(same)}"
            raise usage(what, "two of the files have that name", next="slice them one by one")
        if output.exists() and not output.is_dir():
            raise usage(
                f"cannot write into {output}", "it is a file", next="name a directory for several files"
            )
        if not output.exists():
            check_output(output, force=False)
    for file, each in zip(files, outputs, strict=True):
        if each.exists() and file.exists() and each.samefile(file):
            raise usage(f"cannot write {each}", "it is the file to slice", next="choose another name with -o")
        if each == output or output.is_dir():
            check_output(each, force=force)
    return outputs


@contextmanager
def _directory(path: Path) -> Iterator[None]:
    """A directory that is there, or is made and goes away again when the body raises."""
    made = not path.exists()
    path.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # not empty: somebody else writes there
                path.rmdir()
        raise


def _refuse_vendor(files: Sequence[Path]) -> None:
    """DpackError where the licence of a file does not let you pass on a changed one."""
    from packager.errors import DpackError

    for names, notice in _notices([file.name for file in files]):
        what = f"cannot slice {', '.join(names)}"
        raise DpackError(what, notice, next="where you may: --vendor; -n shows what it would save")


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
