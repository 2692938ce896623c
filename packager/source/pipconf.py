"""The user's pip configuration, so that dpack looks for wheels where pip would.

pip itself is asked (``pip config list``), so its files, their order and its environment variables are
pip's own logic. Where pip is not installed its ``PIP_*`` environment variables still count.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from packager.errors import DpackError
from packager.source.redact import redact

# A later section overrides an earlier one. The options of `pip install` and `pip download` count
# because dpack does a part of their work.
_SECTIONS = ("global", "install", "download", ":env:")

DEFAULT_TIMEOUT = 15.0
"""Seconds without a byte before a connection counts as broken; pip's own default."""

DEFAULT_RETRIES = 5
"""Connections tried again; pip's own default."""


@dataclass(frozen=True, slots=True)
class PipConfig:
    """What pip's configuration says about where and how to fetch.

    ``index_url`` is None where the user names no index: the index client's own default counts then.
    ``find_links`` are directories, files or URLs. ``cert`` and ``client_cert`` are paths of PEM files.
    """

    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    proxy: str | None = None
    cert: str | None = None
    client_cert: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    retries: int = DEFAULT_RETRIES


def read(index_url: str | None = None) -> PipConfig:
    """The configuration as it stands; a given ``index_url`` wins over pip's index-url and no-index."""
    values = _asked() if importlib.util.find_spec("pip") else environment(os.environ)
    return PipConfig(
        index_url=index_url or values.get("index-url") or values.get("pypi-url"),
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        no_index=index_url is None and _flag(values.get("no-index", "")),
        proxy=values.get("proxy"),
        cert=values.get("cert"),
        client_cert=values.get("client-cert"),
        trusted_hosts=tuple(values.get("trusted-host", "").split()),
        timeout=_number(values, "timeout", DEFAULT_TIMEOUT),
        retries=int(_number(values, "retries", DEFAULT_RETRIES)),
    )


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """The options in pip's environment variables; PIP_INDEX_URL is ``index-url``, empty ones do not count."""
    return {
        _option(key.removeprefix("PIP_")): value
        for key, value in variables.items()
        if key.startswith("PIP_") and value
    }


def listed(output: str) -> dict[str, str]:
    """The options in what ``pip config list`` prints: lines of ``section.option='value'``."""
    sections: dict[str, dict[str, str]] = {}
    for line in output.splitlines():
        key, equals, literal = line.partition("=")
        section, dot, option = key.partition(".")
        if equals and dot:
            value = _literal(literal)
            if value:
                sections.setdefault(section, {})[_option(option)] = value
    merged: dict[str, str] = {}
    for section in _SECTIONS:
        merged.update(sections.get(section, {}))
    return merged


def _asked() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if result.returncode:
        lines = redact(result.stderr).strip().splitlines()
        raise DpackError(
            "cannot read pip's configuration",
            lines[-1] if lines else f"pip exited with {result.returncode}",
            next=f"mend it until `{sys.executable} -m pip config list` works",
        )
    return listed(result.stdout)


def _option(key: str) -> str:
    return key.lower().replace("_", "-").removeprefix("default-")


def _literal(text: str) -> str:
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        value = text
    return str(value).strip()


def _flag(value: str) -> bool:
    return value.lower() in {"1", "true", "yes", "y", "on", "t"}


def _number(values: Mapping[str, str], option: str, default: float) -> float:
    text = values.get(option)
    try:
        return float(text) if text else default
    except ValueError:
        raise DpackError(
            "cannot use pip's configuration",
            f"{option} is {text!r}, which is not a number",
            next=f"correct {option} in pip's configuration or PIP_{option.upper()}",
        ) from None
