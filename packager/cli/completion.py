"""``dpack completion``: the script that makes a shell complete commands, options and models."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
      eval "$(dpack completion bash)"           now; or in ~/.bashrc
      dpack completion fish > ~/.config/fish/completions/dpack.fish
    """
    from click.shell_completion import get_completion_class

    from packager.cli import dpack

    maker = get_completion_class(shell)
    if maker is None:
        raise click.UsageError(f"there is no completion for {shell}")
    click.echo(maker(dpack, {}, "dpack", "_DPACK_COMPLETE").source())
