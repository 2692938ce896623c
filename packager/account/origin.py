"""Where a file came from: a wheel, a Debian package, or nothing that says so.

Formats: the RECORD and METADATA files of an installed distribution (PyPA's "Recording installed projects" and
"Core metadata"), and dpkg's data base in /var/lib/dpkg (deb-control(5), dpkg(1)).
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from packager.recipes import normalised

_DPKG = "var/lib/dpkg"
_DIST_INFO = ".dist-info"


class OriginKind(StrEnum):
    """What kind of thing a file came out of."""

    WHEEL = "wheel"
    DEBIAN = "debian"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one file came from, in words that do not depend on this machine.

    ``name``, ``version``  of the distribution or package; the file's own name and "" for a plain file.
    ``path``   inside the distribution, or as the package installs it; the base name of a plain file.
    ``about``  the directory on this machine where the licence stands; not for the manifest.
    """

    kind: OriginKind
    name: str
    version: str
    path: str
    about: Path

    def __str__(self) -> str:
        return f"{self.name} {self.version}".rstrip()


def origins(hosts: Iterable[str], root: str = "/") -> dict[str, Origin]:
    """The origin of each of the files ``hosts``: paths on this machine, symbolic links resolved.

    dpkg's lists are read once for all of them, and only when a file comes from no wheel. A record that cannot
    be read claims nothing.
    """
    wanted = tuple(dict.fromkeys(hosts))
    found = dict(_from_wheels(wanted))
    found.update(_from_debian([host for host in wanted if host not in found], root))
    return {host: found.get(host) or _plain(host) for host in wanted}


def _plain(host: str) -> Origin:
    path = Path(host)
    return Origin(OriginKind.FILE, path.name, "", path.name, path.parent)


def _from_wheels(hosts: Iterable[str]) -> Iterator[tuple[str, Origin]]:
    below: dict[Path, dict[str, str]] = {}
    for host in hosts:
        path = Path(host)
        for parent in path.parents:
            below.setdefault(parent, {})[path.relative_to(parent).as_posix()] = host
    taken: set[str] = set()
    for site in sorted(below, key=lambda directory: (-len(directory.parts), directory)):
        for record in _records(site):
            claimed = sorted(_claimed(record, below[site].keys()))
            fresh = [inside for inside in claimed if below[site][inside] not in taken]
            if not fresh:
                continue
            name, version = _identity(record.parent)
            for inside in fresh:
                taken.add(below[site][inside])
                yield below[site][inside], Origin(OriginKind.WHEEL, name, version, inside, record.parent)


def _records(site: Path) -> list[Path]:
    try:
        found = sorted(path for path in site.iterdir() if path.name.endswith(_DIST_INFO))
    except OSError:
        return []
    return [path / "RECORD" for path in found]


def _claimed(record: Path, wanted: Iterable[str]) -> set[str]:
    """Those of ``wanted`` that the RECORD lists: CSV rows of path, hash and size."""
    left = set(wanted)
    try:
        with record.open(encoding="utf-8", errors="surrogateescape", newline="") as rows:
            return {row[0] for row in csv.reader(rows) if row and row[0] in left}
    except (OSError, csv.Error):
        return set()


def _identity(dist_info: Path) -> tuple[str, str]:
    """Name (normalised as in PEP 503) and version: from METADATA, or else from the directory's name."""
    stem_name, _, stem_version = dist_info.name.removesuffix(_DIST_INFO).partition("-")
    try:
        head = (dist_info / "METADATA").read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        head = ""
    name = _field(head, "Name") or stem_name
    return normalised(name), _field(head, "Version") or stem_version


def _field(paragraph: str, name: str) -> str:
    found = re.search(rf"^{name}:[ \t]*(.*?)[ \t\r]*$", paragraph, re.MULTILINE | re.IGNORECASE)
    return found[1] if found else ""


def _from_debian(hosts: Iterable[str], root: str) -> Iterator[tuple[str, Origin]]:
    spellings = _spellings(hosts, root)
    if not spellings:
        return
    owners: dict[str, tuple[str, str]] = {}
    for listing in sorted(Path(root, _DPKG, "info").glob("*.list")):
        for line in spellings.keys() & _lines(listing):
            owners.setdefault(spellings[line], (listing.stem, os.fsdecode(line)))
    versions = _versions(Path(root, _DPKG, "status"), {package for package, _ in owners.values()})
    for host, (owner, path) in owners.items():
        package = owner.partition(":")[0]
        about = Path(root, "usr/share/doc", package)
        yield host, Origin(OriginKind.DEBIAN, package, versions.get(owner, ""), path, about)


def _spellings(hosts: Iterable[str], root: str) -> dict[bytes, str]:
    """The paths that a package may list, with the file each means: where /lib is a link to /usr/lib, either."""
    prefix = root.rstrip("/")
    own = {host.removeprefix(prefix): host for host in hosts if host.startswith(prefix + "/")}
    merged = {path.removeprefix("/usr"): host for path, host in own.items() if path.startswith("/usr/")}
    return {os.fsencode(path): host for path, host in (merged | own).items()}


def _lines(listing: Path) -> set[bytes]:
    try:
        return set(listing.read_bytes().split(b"\n"))
    except OSError:
        return set()


def _versions(status: Path, owners: set[str]) -> dict[str, str]:
    """The version of each owner, named as its list is: "zlib1g:amd64", or "tzdata" without architecture."""
    try:
        paragraphs = status.read_text(encoding="utf-8", errors="replace").split("\n\n") if owners else []
    except OSError:
        return {}
    found = {}
    for paragraph in paragraphs:
        package = _field(paragraph, "Package")
        for owner in (package, f"{package}:{_field(paragraph, 'Architecture')}"):
            if owner in owners:
                found[owner] = _field(paragraph, "Version")
    return found
