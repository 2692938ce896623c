"""The command line: ``dpack COMMAND``. A command parses, calls one function and prints one result.

Commands are imported when they are called, so that ``dpack --help`` does not pay for any of them.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import sys
from typing import NoReturn

import click

from packager import __version__
from packager.cli import interrupt
from packager.errors import EXIT_NO, DpackError

_COMMANDS = {
    "bundle": "Bundle a program with exactly the libraries it needs.",
    "plan": "Show what bundle would keep and drop, and why.",
    "why": "Tell the whole story of one library.",
    "tree": "Show what a program loads, and how each file is found.",
    "push": "Push an image to a registry.",
    "fetch": "Fetch NVIDIA's libraries from the package index.",
    "targets": "List the devices that dpack knows, and the systems they run.",
    "gpu": "Show the GPU code in files, by architecture.",
    "slice": "Cut from files the GPU code that a GPU cannot run.",
    "recipes": "Show what dpack knows about libraries and models.",
    "completion": "Print the completion script for your shell.",
}


class _Lazy(click.Group):
    """A group that knows the names and the first sentences of its commands, and imports one to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"packager.cli.{cmd_name}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="dpack")
def dpack() -> None:
    """Package a GPU program with exactly the shared objects that it needs.

    dpack resolves what a program loads, the libraries that cuDNN and others open while they run included,
    leaves out what your type of model never uses, and accounts for every byte. The program is never run.

    \b
      dpack bundle ./mnist --model cnn          write mnist.tar.zst
      dpack plan ./mnist --model cnn            show what it would hold, and why
      dpack why ./mnist libcudnn_adv.so.9 --model cnn

    Exit codes: 0 done, 1 the answer is no (something is missing, a download failed), 2 wrong usage.
    """


def main() -> None:
    """The ``dpack`` program: runs a command and turns every DpackError into a message and an exit code."""
    interrupt.install()
    gc.set_threshold(
        100_000
    )  # tables of values without cycles: to look for some after every 700 takes 5% of a slice
    try:
        code = dpack.main(standalone_mode=False, prog_name="dpack")
    except DpackError as error:
        _complain(error)
        sys.exit(error.exit)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _end_interrupted()
    except OSError as error:
        _end_failed(error)
    gc.freeze()  # nobody needs to look for cycles in what ends now
    sys.exit(code if isinstance(code, int) else 0)


def _end_interrupted() -> NoReturn:
    with contextlib.suppress(OSError):  # the terminal may be gone
        click.echo("dpack: interrupted", err=True)
    sys.exit(interrupt.exit_code())


def _end_failed(error: OSError) -> NoReturn:
    """What the system refused, where no command knows more about it. click has ended the command where the reader
    of its output went away (dpack plan … | head).
    """
    from packager.cli.printing import silence

    if interrupt.came():
        _end_interrupted()
    reason = error.strerror or str(error)
    if error.filename is not None:
        then = "check the path, and what you may do there"
        _complain(DpackError(f"cannot use {error.filename}", reason, next=then))
    elif error.errno in _FULL:
        silence()  # Python would complain about what waits in the buffer
        _complain(DpackError("cannot write the output", reason, next="make room where the output goes"))
    else:
        _complain(DpackError("cannot go on", reason))
    sys.exit(EXIT_NO)


_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a file that is written. Others' files are named, in a filename or by the command."""


def _complain(error: DpackError) -> None:
    first, *rest = error.lines()
    click.echo(f"dpack: {first}", err=True)
    for line in rest:
        click.echo(line, err=True)
