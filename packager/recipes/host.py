"""Host profiles: which libraries a system supplies, and how new they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Literal, get_args

from packager.errors import usage
from packager.recipes.reader import check_schema, close, stem
from packager.recipes.table import Table

Platform = Literal["linux/amd64", "linux/arm64"]
Compression = Literal["zstd", "gzip"]

SERIES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC")
"""The symbol versions of the C and C++ run-time, which decide whether a program starts."""

_NUMBERED = re.compile(r"(.+)_(\d+(?:\.\d+)*)", re.ASCII)


def split_version(version: str) -> tuple[str, tuple[int, ...]]:
    """A symbol version as series and number: ``GLIBC_2.36`` is ("GLIBC", (2, 36)).

    A name without a number, such as ``GLIBC_ABI_DT_RELR``, is a series of its own with an empty number.
    """
    hit = _NUMBERED.fullmatch(version)
    return (version, ()) if hit is None else (hit[1], tuple(int(part) for part in hit[2].split(".")))


@dataclass(frozen=True, slots=True)
class HostPackage:
    """Libraries of a system that come, and age, together: a Debian package, or the row of a policy.

    ``versions``   symbol versions that they define: the highest of each numbered series, which stands for those
                   below it, and every name that is no number.
    ``platforms``  those that the row holds for.
    ``mounted``    True for what the container runtime brings into every container, as NVIDIA's does with the
                   driver; the rest is there only for what runs outside a container.
    """

    name: str
    version: str
    sonames: tuple[str, ...]
    versions: tuple[str, ...]
    platforms: tuple[Platform, ...]
    mounted: bool

    @property
    def title(self) -> str:
        """Name and version: ``libc6 2.36-9+deb12u14``."""
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Supplied:
    """A library that a host has, and the package that it has it from."""

    soname: str
    package: HostPackage

    def lacks(self, versions: Iterable[str]) -> tuple[str, ...]:
        """Those of the wanted symbol versions that this library does not define, oldest first.

        A version is there where the profile names it, or a higher one of the same series: a library keeps the
        old versions when it adds new ones (the policy of glibc and of libstdc++).
        """
        highest = dict(split_version(version) for version in self.package.versions)
        wanted = sorted((split_version(version), version) for version in set(versions))
        return tuple(
            version
            for (series, number), version in wanted
            if series not in highest or number > highest[series]
        )


@dataclass(frozen=True, slots=True)
class Host:
    """What a device or a base system has before anything is copied to it.

    ``compression``  what its container engine reads, where the system fixes the engine; empty where it does not.
    ``read``         the day on which the packages or the documents were read (YYYY-MM-DD).
    ``evidence``     which of both, and which ones.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    about: str
    platforms: tuple[Platform, ...]
    compression: Compression | Literal[""]
    read: str
    evidence: str
    packages: tuple[HostPackage, ...]
    source: Path

    def on(self, platform: str) -> Host:
        """The profile with the rows of one platform alone; DpackError (exit 2) where the system has no such."""
        if platform not in self.platforms:
            raise usage(
                f"cannot use the host profile {self.name} for {platform}",
                f"it is known for {' and '.join(self.platforms)}",
                next=f"choose another host; `dpack targets {self.name}` shows what this one has",
            )
        rows = tuple(package for package in self.packages if platform in package.platforms)
        kept = tuple(each for each in self.platforms if each == platform)
        return replace(self, platforms=kept, packages=rows)

    def supplies(self, soname: str) -> Supplied | None:
        """The library with this soname, None where the system need not have it; ask of one platform's rows."""
        found = next((package for package in self.packages if soname in package.sonames), None)
        return None if found is None else Supplied(soname, found)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Every soname that the system has, sorted."""
        return tuple(sorted({soname for package in self.packages for soname in package.sonames}))

    @property
    def versions(self) -> dict[str, str]:
        """How new the run-time is: ``{"GLIBC": "2.36", "GLIBCXX": "3.4.30", …}``, as far as the profile has it.

        Where platforms differ, the lower number: what holds on all of them.
        """
        floors = (self._floors(platform) for platform in self.platforms)
        lowest: dict[str, tuple[int, ...]] = {}
        for floor in floors:
            for series, number in floor.items():
                lowest[series] = min(lowest.get(series, number), number)
        return {series: ".".join(map(str, lowest[series])) for series in SERIES if series in lowest}

    def _floors(self, platform: str) -> dict[str, tuple[int, ...]]:
        floors: dict[str, tuple[int, ...]] = {}
        for package in self.packages:
            if platform in package.platforms:
                for series, number in map(split_version, package.versions):
                    floors[series] = max(floors.get(series, ()), number)
        return floors


def read_host(top: Table, source: Path) -> Host:
    """``hosts/NAME.toml``."""
    check_schema(top)
    table = top.table("host") or Table({}, top.file, [], "host")
    platforms = read_platforms(table, None)
    host = Host(
        name=stem(table, source),
        aliases=table.texts("aliases", ()),
        title=table.text("title"),
        about=table.text("about"),
        platforms=platforms,
        compression=table.choice("compression", Compression) if table.has("compression") else "",
        read=_day(table, "read"),
        evidence=table.text("evidence"),
        packages=tuple(_package(each, platforms) for each in top.tables("package", required=True)),
        source=source,
    )
    top.problems.extend(_repeated(host))
    close(table, top)
    return host


def _package(table: Table, platforms: tuple[Platform, ...]) -> HostPackage:
    package = HostPackage(
        name=table.text("name"),
        version=table.text("version"),
        sonames=table.texts("sonames"),
        versions=table.texts("versions", ()),
        platforms=read_platforms(table, platforms),
        mounted=table.flag("mounted", default=False),
    )
    if not set(package.platforms) <= set(platforms):
        table.complain("platforms", f"must be among those of the host, {', '.join(platforms)}")
    table.close()
    return package


def read_platforms(table: Table, default: tuple[Platform, ...] | None) -> tuple[Platform, ...]:
    """The array ``platforms`` of a table; complains about a platform that dpack does not know."""
    known: tuple[Platform, ...] = get_args(Platform)
    given = table.texts("platforms", default)
    for at, name in enumerate(given):
        if name not in known:
            table.complain(f"platforms[{at}]", f'must be "{known[0]}" or "{known[1]}", not "{name}"')
    return tuple(name for name in known if name in given)


def _day(table: Table, key: str) -> str:
    text = table.text(key)
    try:
        date.fromisoformat(text)
    except ValueError:
        if text:
            table.complain(key, f'must be a day such as "2026-11-21", not "{text}"')
    return text


def _repeated(host: Host) -> Iterator[str]:
    """Sonames that two rows of one platform claim: which of the two is the host's would be a guess."""
    owners: dict[tuple[str, str], str] = {}
    for at, package in enumerate(host.packages):
        for platform in package.platforms:
            for soname in package.sonames:
                owner = owners.setdefault((platform, soname), package.name)
                if owner is not package.name:
                    yield (
                        f"{host.source}: package[{at}].sonames: {soname} is in {owner} already, for {platform}"
                    )
