"""HTTP to a registry: TLS unless a host is named as plain, retries with growing pauses, redirects without secrets.

Proxies and certificates come from the environment, as requests reads it. ~/.netrc is not used.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias
from urllib.parse import urljoin, urlsplit

from packager import __version__
from packager.source.parallel import check

if TYPE_CHECKING:
    import requests

# Answers that a server gives while it is overloaded or restarted; worth asking again.
PASSING = frozenset({429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
# Bytes of an answer that are read into memory where the caller does not say otherwise: errors are short.
_SHORT = 1 << 16
# Seconds to connect, and between two bytes. A registry may take long to store a large blob.
_TIMEOUT = (15, 300)
# Bytes that http.client reads of a body and sends at a time; its own 16 KiB cost a third of the speed.
_SENT_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Patience:
    """How often to try, and how long to wait between two tries.

    ``attempts``  tries in a row that bring nothing new, the first included.
    ``pause``     seconds after the first; each pause is twice as long as the one before, up to ``longest``.
    ``asked``     the most seconds to wait because the server asks for it (Retry-After).
    """

    attempts: int = 7
    pause: float = 0.25
    longest: float = 8.0
    asked: float = 60.0


PATIENCE = Patience()
"""About a quarter of a minute: long enough for a registry that is restarted."""


class Body(Protocol):
    """A request's body of a known size, read from its first byte to its last."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes, none at the end."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[bytes]: ...


BodySource: TypeAlias = "bytes | Callable[[], Body]"
"""A body, or what makes it anew for each try."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    ``limit``     the most bytes of the answer's body that are read.
    ``attempts``  how often to try, where that is not for the wire's patience to say.
    """

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: BodySource = field(default=b"", repr=False)
    authorization: str | None = field(default=None, repr=False)
    limit: int = _SHORT
    attempts: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says: ``headers`` is looked up in any case, ``url`` is where the answer came from."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes
    url: str


class Broken(Exception):  # noqa: N818 - the name of a state
    """The server could not be reached, or the connection broke. ``reason`` is requests' own exception,
    ``headers`` are those of an answer that asks to try again.
    """

    def __init__(self, reason: Exception, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.headers = headers


class Insecure(Exception):  # noqa: N818 - the name of a state
    """A server sends us on to an address that is not encrypted."""


class Wire:
    """One thread's connections. ``stop`` calls its work off."""

    def __init__(
        self,
        session: requests.Session,
        plain_http: frozenset[str],
        patience: Patience,
        stop: threading.Event,
    ) -> None:
        self._session = session
        self._plain_http = plain_http
        self.patience = patience
        self.stop = stop

    def origin(self, host: str) -> str:
        """Where a registry's addresses begin, such as "https://registry.example.com:5000"."""
        return f"{'http' if is_named(host, self._plain_http) else 'https'}://{host}"

    def ask(self, ask: Ask) -> Answer:
        """The answer, whatever its status. Raises Broken where there is none after all the tries."""
        most = ask.attempts or self.patience.attempts
        failures = 0
        while True:
            headers: Mapping[str, str] | None = None
            failures += 1
            try:
                with self._follow(ask) as response:
                    answer = _answer(response, ask.limit)
            except Broken as broken:
                if failures >= most or _lasting(broken.reason):
                    raise
            else:
                if failures >= most or answer.status not in PASSING:
                    return answer
                headers = answer.headers
            self.pause(failures, headers)

    @contextmanager
    def stream(self, ask: Ask) -> Iterator[requests.Response]:
        """One try, with the body left to be read; reading it raises requests' own exceptions."""
        with self._follow(ask) as response:
            yield response

    def pause(self, failures: int, headers: Mapping[str, str] | None = None) -> None:
        """Wait before another try, longer each time, or as long as the server asks; ends when called off."""
        seconds = min(self.patience.pause * 2 ** (failures - 1), self.patience.longest)
        if headers and (asked := _retry_after(headers)) is not None:
            seconds = min(max(seconds, asked), self.patience.asked)
        self.stop.wait(seconds)
        check(self.stop)

    def allowed(self, url: str) -> bool:
        """Whether the address may be used: with TLS, or a host that the user has named."""
        parts = urlsplit(url)
        return parts.scheme == "https" or (
            parts.scheme == "http" and is_named(parts.netloc.rpartition("@")[2], self._plain_http)
        )

    @contextmanager
    def _follow(self, ask: Ask) -> Iterator[requests.Response]:
        """The response after at most a few redirects. The authorisation goes to the first origin alone."""
        url = ask.url
        for _ in range(_MOST_REDIRECTS + 1):
            if not self.allowed(url):
                raise Insecure(urlsplit(url).netloc.rpartition("@")[2])
            authorization = ask.authorization if origin_of(url) == origin_of(ask.url) else None
            with self._once(ask, url, authorization) as response:
                where = urljoin(url, response.headers.get("Location", ""))
                if not _redirects(response.status_code, ask, where):
                    yield response
                    return
                url = where
        import requests  # noqa: PLC0415 - start-up time

        raise Broken(requests.TooManyRedirects(f"more than {_MOST_REDIRECTS} redirects"))

    def _once(self, ask: Ask, url: str, authorization: str | None) -> requests.Response:
        import requests  # noqa: PLC0415 - start-up time

        def authorise(request: requests.PreparedRequest) -> requests.PreparedRequest:
            # A callable in any case: without one, requests would send what ~/.netrc has.
            if authorization is not None:
                request.headers["Authorization"] = authorization
            return request

        check(self.stop)
        try:
            return self._session.request(
                ask.method,
                url,
                headers=dict(ask.headers),
                data=ask.body() if callable(ask.body) else ask.body or None,
                auth=authorise,
                stream=True,
                allow_redirects=False,
                timeout=_TIMEOUT,
            )
        except (requests.RequestException, OSError) as error:
            raise Broken(error) from None


@contextmanager
def open_wire(plain_http: frozenset[str], patience: Patience, stop: threading.Event) -> Iterator[Wire]:
    """A wire with a session of its own, since a session belongs to one thread."""
    import requests  # noqa: PLC0415 - start-up time

    # urllib3 logs a broken answer with a traceback; what it means to the user is ours to say.
    logging.getLogger("urllib3").addHandler(logging.NullHandler())
    with requests.Session() as session:
        session.headers["User-Agent"] = f"dpack/{__version__} requests/{requests.__version__}"
        # A compressed transfer would make byte ranges and digests mean something else.
        session.headers["Accept-Encoding"] = "identity"
        for adapter in session.adapters.values():
            adapter.init_poolmanager(connections=4, maxsize=4, blocksize=_SENT_AT_ONCE)  # type: ignore[attr-defined]
        yield Wire(session, plain_http, patience, stop)


def is_named(host: str, names: frozenset[str]) -> bool:
    """Whether a host is among the names, with its port or, as pip takes trusted hosts, on any port."""
    bare = host if host.endswith("]") else host.rpartition(":")[0] or host
    return host in names or bare in names


def _answer(response: requests.Response, limit: int) -> Answer:
    import requests  # noqa: PLC0415 - start-up time

    body = bytearray()
    try:
        for chunk in response.iter_content(_SHORT):
            body += chunk[: limit - len(body)]
            if len(body) >= limit:
                break
    except requests.RequestException as error:
        raise Broken(error) from None
    return Answer(response.status_code, response.reason or "", response.headers, bytes(body), response.url)


def _redirects(status: int, ask: Ask, where: str) -> bool:
    """Whether to follow. A body, which may hold a secret, goes to no other host."""
    if ask.method in {"GET", "HEAD"}:
        return status in _REDIRECTS
    return status in {307, 308} and origin_of(where) == origin_of(ask.url)


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address, the port also where it is the scheme's own (RFC 6454)."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or {"https": 443, "http": 80}.get(parts.scheme)


def _lasting(reason: Exception) -> bool:
    """Whether another try would fail in the same way."""
    import requests  # noqa: PLC0415 - start-up time

    lasting = (requests.exceptions.SSLError, requests.exceptions.ProxyError, requests.exceptions.InvalidURL)
    # What is no RequestException comes before the network: a bundle of certificates that is not there.
    return isinstance(reason, lasting) or not isinstance(reason, requests.RequestException)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to wait (RFC 9110, section 10.2.3): a number or a date."""
    text = headers.get("Retry-After", "").strip()
    if text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None
