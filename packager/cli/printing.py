"""What commands print beside text."""

from __future__ import annotations

import json
import os
import sys

import click


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def silence() -> None:
    """Let stdout lead nowhere from now on, what waits in its buffer included: nobody can read it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
