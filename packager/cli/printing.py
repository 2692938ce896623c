"""What commands print beside text."""

from __future__ import annotations

import json

import click


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))
