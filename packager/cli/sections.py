"""Options in sections, so that the help of a command with many of them can be read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

PROGRAM_SECTION = "The program"
LIBRARIES_SECTION = "Where libraries come from"
DESTINATION_SECTION = "Where it is to run"
GPU_SECTION = "GPU code"
OUTPUT_SECTION = "What is written"


class SectionedOption(click.Option):
    """An option that knows its section of the help."""

    def __init__(self, *args: Any, section: str = "Options", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def option(section: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """``click.option`` in a section."""
    return click.option(*names, cls=SectionedOption, section=section, **attributes)


class SectionedCommand(click.Command):
    """A command whose help lists the options section by section, in the order in which these begin."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; options without one come last."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        rest = sections.pop("Options", [])
        for title, rows in [*sections.items(), ("Options", rest)]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
