"""Small tables, as aligned plain text and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows of text. The first column is aligned to the left, the others to the right.

    ``footnotes`` stand below, numbered from 1; cells refer to them as "[1]".
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    footnotes: tuple[str, ...] = ()


def text(table: Table) -> str:
    """The table in columns two spaces apart, without trailing spaces; ends with a newline."""
    lines = (table.columns, *table.rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.columns))]
    aligned = [
        "  ".join(c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        for line in lines
    ]
    notes = ["", *(f"[{i}] {note}" for i, note in enumerate(table.footnotes, 1))] if table.footnotes else []
    return "".join(line.rstrip() + "\n" for line in (*aligned, *notes))


def markdown(table: Table) -> str:
    """The table as Markdown (GitHub's extension), its footnotes as lines below; ends with a newline."""
    rule = ("---", *("---:" for _ in table.columns[1:]))
    rows = [_markdown_row(row) for row in (table.columns, rule, *table.rows)]
    notes = ["", *(f"- [{i}] {note}" for i, note in enumerate(table.footnotes, 1))] if table.footnotes else []
    return "".join(line + "\n" for line in (*rows, *notes))


def _markdown_row(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
