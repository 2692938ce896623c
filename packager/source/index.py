"""The wheels of one project on the user's indexes (PEP 503 and PEP 691) and in find-links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from packager.errors import DpackError
from packager.source.redact import redact, with_credentials
from packager.source.transport import Connection, as_url, local_path, refused, secure, unreachable
from packager.source.wheelname import WheelName, parse

if TYPE_CHECKING:
    import requests
    from pypi_simple import DistributionPackage, ProjectPage

_GONE = (404, 410)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A wheel that an index offers.

    ``sha256`` (hex) and ``size`` (bytes) are None where the page does not state them. ``url`` may hold
    credentials: redact it before it is printed.
    """

    wheel: WheelName
    url: str
    sha256: str | None
    size: int | None
    yanked: bool


@dataclass(frozen=True, slots=True)
class Offers:
    """What was found for a project, and where was looked: one line for each place."""

    candidates: tuple[Candidate, ...]
    places: tuple[str, ...]
    exists: bool
    """Whether any place knows the project, even one that has no wheel of it."""


def offers(name: str, wanted: str, connection: Connection) -> Offers:
    """Every wheel of the project ``name``; ``wanted`` is the requirement, for messages.

    An index that does not know the project is passed over. DpackError where an index cannot be reached
    or does not answer with an index page.
    """
    found: list[Candidate] = []
    places: list[str] = []
    exists = False
    for url, is_index in _places(connection):
        if not secure(url, connection.pip):
            places.append(f"{redact(url)}: passed over, plain HTTP and not in pip's trusted-host")
            continue
        page_url = f"{url.rstrip('/')}/{name}/" if is_index else url
        wheels = _wheels(name, wanted, page_url, connection)
        places.append(f"{redact(page_url)}: {_count(wheels)}")
        exists = exists or (wheels is not None if is_index else bool(wheels))
        found += wheels or ()
    return Offers(tuple(found), tuple(places), exists)


def _places(connection: Connection) -> Iterator[tuple[str, bool]]:
    """Addresses to look at, and whether each is an index (True) or one page of links (False)."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT  # noqa: PLC0415 - start-up time

    pip = connection.pip
    if not pip.no_index:
        for location in (pip.index_url or PYPI_SIMPLE_ENDPOINT, *pip.extra_index_urls):
            yield as_url(location), True
    for location in pip.find_links:
        yield as_url(location), False


def _count(wheels: tuple[Candidate, ...] | None) -> str:
    if wheels is None:
        return "no such project"
    return f"{len(wheels)} wheel{'' if len(wheels) == 1 else 's'}"


def _wheels(name: str, wanted: str, url: str, connection: Connection) -> tuple[Candidate, ...] | None:
    """The wheels on one page, or in one directory; None where the page does not exist."""
    path = local_path(url)
    if path and path.is_dir() and not (path / "index.html").is_file():
        return tuple(_local_wheels(name, path))
    page = _local_page(name, path) if path else _remote_page(name, wanted, url, connection)
    if page is None:
        return None
    candidates = (_candidate(package, url) for package in page.packages)
    return tuple(c for c in candidates if c is not None and c.wheel.name == name)


def _local_wheels(name: str, directory: Path) -> Iterator[Candidate]:
    for path in sorted(directory.glob("*.whl")):
        wheel = parse(path.name)
        if wheel and wheel.name == name:
            yield Candidate(wheel, path.as_uri(), sha256=None, size=path.stat().st_size, yanked=False)


def _local_page(name: str, path: Path) -> ProjectPage | None:
    from pypi_simple import ProjectPage  # noqa: PLC0415 - start-up time

    file = path / "index.html" if path.is_dir() else path
    try:
        html = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return ProjectPage.from_html(name, html, base_url=file.as_uri())


def _remote_page(name: str, wanted: str, url: str, connection: Connection) -> ProjectPage | None:
    import requests  # noqa: PLC0415 - start-up time
    from pypi_simple import ACCEPT_ANY  # noqa: PLC0415 - start-up time

    try:
        response = connection.get(url, {"Accept": ACCEPT_ANY})
    except requests.RequestException as error:
        raise unreachable(wanted, url, error) from None
    if response.status_code in _GONE:
        return None
    if not response.ok:
        raise refused(wanted, url, response)
    return _parsed(name, wanted, response)


def _parsed(name: str, wanted: str, response: requests.Response) -> ProjectPage:
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError  # noqa: PLC0415 - start-up time

    try:
        return ProjectPage.from_response(response, name)
    except (ValueError, UnsupportedRepoVersionError) as error:
        raise DpackError(
            f"cannot fetch {wanted}",
            f"{redact(response.url)} is not a page of a package index",
            tried=(redact(str(error)).splitlines()[0],),
            next="check index-url in pip's configuration, or PIP_INDEX_URL",
        ) from None


def _candidate(package: DistributionPackage, page_url: str) -> Candidate | None:
    """A wheel from a page. A page made by a web server may shorten its link texts, so the address counts."""
    last = unquote(urlsplit(package.url).path).rpartition("/")[2]
    wheel = parse(last) or parse(package.filename)
    if wheel is None:
        return None
    return Candidate(
        wheel=wheel,
        url=with_credentials(package.url, page_url),
        sha256=package.digests.get("sha256", "").lower() or None,
        size=package.size,
        yanked=package.is_yanked,
    )
