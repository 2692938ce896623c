"""The commands that the documents and the help show are commands that dpack takes."""

import re
import shlex
from pathlib import Path

import click
import pytest

from packager.cli import dpack

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "recipes/README.md", "examples/README.md", "CHANGELOG.md")
LINE = re.compile(r"^(?:\$ )?(dpack [^#\n]*)", re.MULTILINE)


def commands():
    for name in DOCUMENTS:
        for block in re.findall(r"```\w*\n(.*?)```", (ROOT / name).read_text(), re.DOTALL):
            yield from ((name, line.strip()) for line in LINE.findall(block))
    context = click.Context(dpack)
    for name in dpack.list_commands(context):
        told = dpack.get_command(context, name).get_help(click.Context(dpack, info_name=name))
        for line in re.findall(r"^ +(dpack .*?)(?:  .*)?$", told, re.MULTILINE):
            yield f"dpack {name} --help", line


@pytest.mark.parametrize(("where", "line"), sorted(set(commands())))
def test_a_command_that_is_shown_is_one_that_dpack_takes(where, line):
    words = shlex.split(line.split(" > ")[0])[1:]
    context = click.Context(dpack, info_name="dpack")
    command, rest = dpack.get_command(context, words[0]), words[1:]
    assert command is not None, f"{where}: {line}"
    while isinstance(command, click.Group) and rest:
        command, rest = command.get_command(context, rest[0]), rest[1:]
    command.make_parser(click.Context(command, info_name=words[0])).parse_args(list(rest))
