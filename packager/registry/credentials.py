"""Credentials as docker and podman keep them; they are looked up when a registry asks, and never printed.

Sources of the formats: docker's cli/config (config.json) and containers-auth.json(5).
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packager.errors import DpackError
from packager.registry.program import ask_program

# The name under which docker keeps the credentials of its own registry, whichever of its hosts is used.
_DOCKER_KEY = "https://index.docker.io/v1/"
_TOKEN_USER = "<token>"  # noqa: S105 - docker's mark that the secret is an identity token


@dataclass(frozen=True, slots=True)
class Credential:
    """A user's credentials for a registry. ``source`` is the file or program that had them, for messages."""

    source: str
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        """User and password as a Basic authorisation (RFC 7617)."""
        return base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def find_credential(host: str, repository: str) -> Credential | None:
    """The credentials for a repository, of the first file that has any; None where no file has.

    Raises DpackError where a file cannot be read, or a credential program fails.
    """
    for path in _files():
        found = _in_file(path, host, repository)
        if found is not None:
            return found
    return None


def _files() -> Iterator[Path]:
    """Where docker and podman write credentials; a file that a variable names comes before the usual places."""
    if named := os.environ.get("REGISTRY_AUTH_FILE"):
        yield Path(named)
    yield Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    if runtime := os.environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers", "auth.json")
    yield Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "containers" / "auth.json"


def _in_file(path: Path, host: str, repository: str) -> Credential | None:
    """As docker: a program named for the host, else the file's own entry, else the program for all hosts."""
    config = _read(path)
    if config is None:
        return None
    programs = _object(config, "credHelpers", path)
    for key in _keys(host, repository):
        if program := programs.get(key):
            return _from_program(str(program), key, path)
    entries = {_bare(key): value for key, value in _object(config, "auths", path).items()}
    for key in _keys(host, repository):
        entry = entries.get(_bare(key))
        if isinstance(entry, dict) and (found := _from_entry(entry, path)):
            return found
    if store := config.get("credsStore"):
        return _from_program(str(store), _keys(host, "")[-1], path)
    return None


def _read(path: Path) -> Mapping[str, Any] | None:
    try:
        config = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from None
    except ValueError:
        # The decoder's message may quote the text, and with it a secret.
        raise _unusable(path, "it is not JSON") from None
    if not isinstance(config, dict):
        raise _unusable(path, "it is not a JSON object")
    return config


def _object(config: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    value = config.get(key) or {}
    if not isinstance(value, dict):
        raise _unusable(path, f"{key} is not a JSON object")
    return value


def _keys(host: str, repository: str) -> list[str]:
    """The names an entry may have, the most exact first: podman's may name a part of the repository."""
    parts = repository.split("/") if repository else []
    names = ["/".join([host, *parts[:count]]) for count in range(len(parts), -1, -1)]
    domain = _bare(_DOCKER_KEY).partition(".")[2]
    return [*names, _DOCKER_KEY] if host == domain or host.endswith(f".{domain}") else names


def _bare(key: str) -> str:
    """A key as a name: old versions of docker wrote https://HOST/v1/."""
    name = key.removeprefix("https://").removeprefix("http://")
    return name.partition("/")[0] if name != key or name.endswith(("/v1/", "/v2/")) else name.rstrip("/")


def _from_entry(entry: Mapping[str, Any], path: Path) -> Credential | None:
    username, password = str(entry.get("username") or ""), str(entry.get("password") or "")
    if encoded := entry.get("auth"):
        try:
            text = base64.b64decode(str(encoded), validate=True).decode()
        except (binascii.Error, ValueError):
            raise _unusable(path, "an auth entry is not base64") from None
        username, _, password = text.partition(":")
        password = password.rstrip("\0")
    token = str(entry.get("identitytoken") or "")
    return Credential(str(path), username, password, token) if username or token else None


def _from_program(name: str, key: str, path: Path) -> Credential | None:
    answer = ask_program(name, key, path)
    if answer is None:
        return None
    username, secret = answer
    source = f"docker-credential-{name}"
    if username == _TOKEN_USER:
        return Credential(source, identity_token=secret)
    return Credential(source, username, secret)


def _unusable(path: Path, why: str) -> DpackError:
    return DpackError(f"cannot read the credentials in {path}", why, next="log in anew with docker login")
