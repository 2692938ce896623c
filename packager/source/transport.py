"""HTTP as pip's configuration wants it: proxies, certificates, trusted hosts, timeouts, retries."""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from packager import __version__
from packager.errors import DpackError
from packager.source.parallel import check
from packager.source.pipconf import PipConfig
from packager.source.redact import redact

if TYPE_CHECKING:
    import requests

# Answers that a server gives while it is overloaded or restarted; worth asking again.
_PASSING = (429, 500, 502, 503, 504, 520, 527)
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_BACKOFF = 0.25
_LONGEST_PAUSE = 8.0


@dataclass(frozen=True, slots=True)
class Connection:
    """One thread's way to the network. ``stop`` calls its work off."""

    pip: PipConfig
    session: requests.Session
    stop: threading.Event

    def get(
        self, url: str, headers: Mapping[str, str] | None = None, *, stream: bool = False
    ) -> requests.Response:
        """The answer to one GET, any status. Connections are retried; requests' exceptions come through."""
        check(self.stop)
        host = urlsplit(url)
        verify: bool | str = self.pip.cert or True
        return self.session.get(
            url,
            headers=dict(headers or {}),
            stream=stream,
            timeout=self.pip.timeout,
            verify=False if _trusted(host, self.pip) else verify,
        )

    def pause(self, failures: int) -> None:
        """Wait before attempt number ``failures`` + 1, longer each time; ends at once when called off."""
        self.stop.wait(min(_BACKOFF * 2 ** (failures - 1), _LONGEST_PAUSE))
        check(self.stop)


@contextmanager
def connect(pip: PipConfig, stop: threading.Event) -> Iterator[Connection]:
    """A connection with a session of its own, since a session belongs to one thread."""
    import requests  # noqa: PLC0415 - start-up time
    import urllib3  # noqa: PLC0415 - start-up time
    from requests.adapters import HTTPAdapter  # noqa: PLC0415 - start-up time

    session = requests.Session()
    session.headers["User-Agent"] = f"dpack/{__version__} requests/{requests.__version__}"
    retry = urllib3.Retry(
        total=pip.retries, status_forcelist=_PASSING, backoff_factor=_BACKOFF, raise_on_status=False
    )
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retry))
    if pip.proxy:
        # As pip does: a configured proxy is used alone, whatever the environment's proxies say.
        session.trust_env = False
        session.proxies = {"http": pip.proxy, "https": pip.proxy}
    if pip.client_cert:
        session.cert = pip.client_cert
    if pip.trusted_hosts:
        # The user has said that these hosts need no certificate; urllib3 would warn at each request.
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    with session:
        yield Connection(pip, session, stop)


def secure(url: str, pip: PipConfig) -> bool:
    """Whether pip would use the address: plain HTTP only from this machine and from trusted hosts."""
    parts = urlsplit(url)
    return parts.scheme in {"https", "file"} or _loopback(parts.hostname or "") or _trusted(parts, pip)


def as_url(location: str) -> str:
    """A location from pip's configuration as a URL; a plain path becomes a file: URL."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location):
        return location
    return Path(location).expanduser().absolute().as_uri()


def local_path(url: str) -> Path | None:
    """The path of a file: URL, None for any other."""
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def continues(response: requests.Response, size: int) -> bool:
    """Whether an answer is the rest of a body of which ``size`` bytes are here."""
    match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
    return response.status_code == 206 and match is not None and int(match[1]) == size


def unreachable(wanted: str, url: str, error: Exception) -> DpackError:
    """What to say when a server did not answer, or broke off too often."""
    return DpackError(
        f"cannot fetch {wanted}",
        f"{host_of(url)} could not be reached: {reason_of(error)}",
        next=(
            "check the network and the proxy; set PIP_INDEX_URL or --index-url to an index in reach, "
            "or use --offline to take what is in the cache"
        ),
    )


def refused(wanted: str, url: str, response: requests.Response) -> DpackError:
    """What to say when a server answered, and the answer was no."""
    hint = {
        401: "put the credentials into pip's index-url or into ~/.netrc",
        403: "check the credentials in pip's index-url or in ~/.netrc",
        407: "put the proxy's credentials into pip's proxy setting",
    }
    return DpackError(
        f"cannot fetch {wanted}",
        f"{host_of(url)} answers {response.status_code} {response.reason or ''}".rstrip(),
        tried=(redact(url),),
        next=hint.get(response.status_code, "try again later, or set PIP_INDEX_URL to another index"),
    )


def host_of(url: str) -> str:
    """The host of an address, for messages: without credentials, with the port where there is one."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or redact(url)


def reason_of(error: Exception) -> str:
    """The innermost reason of a requests exception, in one line."""
    inner: object = error
    while isinstance(inner, Exception):
        cause = getattr(inner, "reason", None) or next(
            (arg for arg in reversed(inner.args) if isinstance(arg, Exception)), None
        )
        if not isinstance(cause, Exception):
            break
        inner = cause
    text = redact(str(inner)) or type(inner).__name__
    return re.sub(r"^[\w.<>]*Connection\w*\([^)]*\): ", "", text)


def _trusted(parts: SplitResult, pip: PipConfig) -> bool:
    host = parts.hostname or ""
    return host in pip.trusted_hosts or f"{host}:{parts.port}" in pip.trusted_hosts


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
