"""Credential programs: docker-credential-NAME, which keeps secrets in a keychain or asks a cloud for them.

The protocol is docker-credential-helpers': ``get`` as the argument, the server on stdin, JSON or a message on
stdout.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from packager.errors import DpackError

# Seconds. A keychain may have to ask its user for a password.
_PATIENCE = 60
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NOT_FOUND = "credentials not found in native keychain"
_NEXT = "run the program by hand to see what it says, or log in anew with docker login"


def ask_program(name: str, server: str, config: Path, seconds: float = _PATIENCE) -> tuple[str, str] | None:
    """User and secret that docker-credential-``name`` has for ``server``; None where it has none.

    ``config`` is the file that names the program. Raises DpackError where it cannot be run, fails, does not end
    within ``seconds``, or answers something else. What it prints is never shown: it may be a secret.
    """
    program = f"docker-credential-{name}"
    if not _NAME.fullmatch(name):
        raise DpackError(
            f"cannot get credentials for {server}",
            f"{config} names the program {name!r}, and that is no name",
            next=f"correct credHelpers or credsStore in {config}",
        )
    try:
        done = subprocess.run(
            [program, "get"], input=server, capture_output=True, text=True, timeout=seconds, check=False
        )
    except FileNotFoundError:
        raise DpackError(
            f"cannot get credentials for {server}",
            f"{config} names {program}, which is not on the PATH",
            next=f"install {program}, or remove its line from {config} and log in anew",
        ) from None
    except OSError as error:
        raise _failed(server, f"{program} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise _failed(server, f"{program} did not answer within {seconds:g} seconds") from None
    except UnicodeDecodeError:
        raise _failed(server, f"{program} answers something that is not text") from None
    if done.returncode:
        if done.stdout.strip() == _NOT_FOUND:
            return None
        raise _failed(server, f"{program} exits with {done.returncode}")
    return _answer(done.stdout, program, server)


def _answer(text: str, program: str, server: str) -> tuple[str, str] | None:
    try:
        fields = json.loads(text)
        username, secret = fields["Username"], fields["Secret"]
    except (ValueError, KeyError, TypeError):
        raise _failed(server, f"{program} does not answer with Username and Secret in JSON") from None
    if not isinstance(username, str) or not isinstance(secret, str):
        raise _failed(server, f"{program} does not answer with Username and Secret as texts")
    return (username, secret) if username or secret else None


def _failed(server: str, why: str) -> DpackError:
    return DpackError(f"cannot get credentials for {server}", why, next=_NEXT)
