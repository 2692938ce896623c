"""``dpack gpu``: the GPU code in a file."""

from __future__ import annotations

from pathlib import Path

import click

from packager.cli.printing import print_json


@click.command()
@click.argument(
    "files", type=click.Path(path_type=Path, readable=False), metavar="FILE...", nargs=-1, required=True
)
@click.option(
    "--kernels", is_flag=True, help="List the kernels by name too; reads and decompresses all of it."
)
@click.option("--json", "as_json", is_flag=True, help="Print every piece of GPU code as JSON.")
def gpu(files: tuple[Path, ...], kernels: bool, as_json: bool) -> None:
    """Show the GPU code in programs and shared objects: for which GPUs it is, where it lies, and how big it is.

    Every fatbin container in every section is read, and cubins outside containers too. Sizes are those in the
    file; what is compressed shows its full size beside.

    \b
      dpack gpu libcublasLt.so.12
      dpack gpu ./mnist --kernels
    """
    from packager.account.gpu import gpu_document, gpu_text
    from packager.cuda.kernels import kernels_of
    from packager.cuda.scan import read_gpu_code

    found = []
    for path in files:
        code = read_gpu_code(path)
        offsets = [piece.offset for piece in code.pieces]
        names = dict(zip(offsets, kernels_of(path, code.pieces), strict=True)) if kernels else None
        found.append((code, names))
    if as_json:
        print_json(gpu_document(found))
    else:
        click.echo("\n".join(gpu_text(code, names) for code, names in found), nl=False)
