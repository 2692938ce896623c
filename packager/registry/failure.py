"""What to say when a registry cannot be reached, or says no."""

from __future__ import annotations

import json
import re
from urllib.parse import urlsplit

from packager.errors import DpackError
from packager.registry.wire import Answer, Broken, Insecure
from packager.source.redact import redact
from packager.source.transport import reason_of

_LONGEST = 200
_ADVICE = {
    401: "log in to the registry with docker login or podman login; dpack reads what they write",
    403: "ask for the right to this repository, or log in as a user who has it",
    404: "check the reference: the repository, and the tag or the digest",
    413: "a proxy before the registry limits how large a request is: it must let 32 MiB through",
    429: "wait a while: the registry limits how often it is asked",
}


class RefusedError(DpackError):
    """The registry answered, and the answer was no. ``status`` is HTTP's."""

    status = 0


def unreachable(purpose: str, host: str, failure: Broken | Insecure) -> DpackError:
    """The error for a host that gave no answer; ``purpose`` completes "cannot"."""
    what = f"cannot {purpose}"
    if isinstance(failure, Insecure):
        return DpackError(
            what,
            f"{host} sends us on to http://{failure}, which is not encrypted",
            next=f"if that is meant to be so, give --plain-http {failure}",
        )
    reason = reason_of(failure.reason)
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return DpackError(
            what,
            f"the certificate of {host} is not trusted: {_after(reason, 'certificate verify failed: ')}",
            next="set REQUESTS_CA_BUNDLE to a file with the certificate of the authority that signed it",
        )
    if any(sign in reason for sign in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH")):
        return DpackError(
            what,
            f"{host} does not speak TLS",
            next=f"if it is meant to speak plain HTTP, give --plain-http {host}",
        )
    return DpackError(
        what,
        f"{host} could not be reached: {reason}",
        next="check the host's name, the network and the proxy (HTTPS_PROXY, NO_PROXY)",
    )


def refused(purpose: str, answer: Answer, *, next: str = "") -> RefusedError:  # noqa: A002 - DpackError's own word
    """The error for an answer that says no."""
    codes, said = _errors(answer.body)
    host = urlsplit(answer.url).netloc.rpartition("@")[2]
    status = f"{answer.status} {answer.reason}".rstrip()
    why = f"{host} answers {status}" + (f" ({said})" if said else "")
    error = RefusedError(f"cannot {purpose}", why, next=next or _advice(answer.status, codes))
    error.status = answer.status
    return error


def wrong(purpose: str, why: str, *, next: str = "") -> DpackError:  # noqa: A002 - DpackError's own word
    """The error for a registry that does something else than the specification says."""
    return DpackError(
        f"cannot {purpose}",
        why,
        next=next or "try again; if it stays so, ask the people who run the registry, or a proxy on the way",
    )


def _advice(status: int, codes: tuple[str, ...]) -> str:
    if status >= 500:
        return "try again later; what was sent already is not sent again"
    known = _ADVICE.get(403 if "DENIED" in codes else status)
    return known or "check the reference, and the registry's log where you can"


def _errors(body: bytes) -> tuple[tuple[str, ...], str]:
    """The codes and words of an error answer (distribution-spec, "Error Codes"); nothing for other bodies."""
    try:
        errors = [error for error in json.loads(body)["errors"] if isinstance(error, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return (), ""
    codes = tuple(str(error.get("code", "")) for error in errors)
    said = "; ".join(
        ": ".join(str(error[key]) for key in ("code", "message") if error.get(key)) for error in errors
    )
    return codes, redact(re.sub(r"[\x00-\x20\x7f-\x9f]+", " ", said))[:_LONGEST]


def _after(text: str, mark: str) -> str:
    """The part behind ``mark``, without OpenSSL's note of its own source line."""
    return re.sub(r" \(_ssl\.c:\d+\)$", "", text.partition(mark)[2] or text)
