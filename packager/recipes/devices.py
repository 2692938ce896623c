"""Targets and host profiles as people read them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packager.recipes.catalogue import Recipes
from packager.recipes.host import Host, HostPackage
from packager.recipes.layout import columns, plain, rows, wrapped
from packager.recipes.target import Target

_ANY = "any"


def targets_table(recipes: Recipes) -> str:
    """A line a target: names, architecture, platform, host profile, compression; oldest architecture first."""
    header = ("TARGET", "GPU CODE", "PLATFORM", "HOST", "LAYERS", "ALSO CALLED")
    ordered = sorted(recipes.targets, key=lambda target: (target.arch, target.name))
    return "\n".join(columns([header, *(_target_cells(target) for target in ordered)]))


def _target_cells(target: Target) -> tuple[str, ...]:
    return (
        target.name,
        f"{target.arch}{' only' if target.exact else ''}",
        target.platform,
        target.host or _ANY,
        target.compression,
        ", ".join(target.aliases),
    )


def hosts_table(recipes: Recipes) -> str:
    """A line a host profile: how new its C and C++ run-time are, and on which platforms."""
    header = ("HOST", "GLIBC", "GLIBCXX", "LIBRARIES", "PLATFORMS", "ALSO CALLED")
    return "\n".join(columns([header, *(_host_cells(host) for host in recipes.hosts)]))


def _host_cells(host: Host) -> tuple[str, ...]:
    versions = host.versions
    return (
        host.name,
        versions.get("GLIBC", "-"),
        versions.get("GLIBCXX", "-"),
        str(len(host.libraries)),
        ", ".join(host.platforms),
        ", ".join(host.aliases),
    )


def target_lines(recipes: Recipes, target: Target) -> Iterator[str]:
    """Everything about a target, and what its host has."""
    fit = (
        "machine code runs only where it was made for exactly this"
        if target.exact
        else "machine code for the same major number and a minor not above runs too"
    )
    host = recipes.host(target.host) if target.host else None
    yield f"{target.title} ({target.source})"
    yield from rows(
        [
            ("names", ", ".join(target.names)),
            ("GPU", f"{target.arch}: {fit}"),
            ("platform", target.platform),
            ("layers", f"{target.compression}, which its container engine reads"),
            ("host", f"{host.name}: {_floors(host)}" if host else "any: name the system with --host"),
            ("evidence", target.evidence),
        ]
    )


def host_lines(host: Host) -> Iterator[str]:
    """Everything about a host profile."""
    yield f"{host.title} ({host.source})"
    yield from wrapped(host.about, "  ")
    facts = [
        ("names", ", ".join((host.name, *host.aliases))),
        ("platforms", ", ".join(host.platforms)),
        ("has", _floors(host)),
        ("layers", f"{host.compression}, which its container engine reads" if host.compression else ""),
        ("read", host.read),
        ("evidence", host.evidence),
    ]
    yield from rows([(key, value) for key, value in facts if value])
    for package in host.packages:
        yield ""
        yield from _package(host, package)


def _floors(host: Host) -> str:
    return ", ".join(f"{series} {number}" for series, number in host.versions.items())


def _package(host: Host, package: HostPackage) -> Iterator[str]:
    only = "" if package.platforms == host.platforms else f" on {', '.join(package.platforms)}"
    mounted = ", mounted into every container" if package.mounted else ""
    yield f"{package.title}{only}{mounted}"
    yield from wrapped(", ".join(package.sonames), "  ")
    yield from wrapped(", ".join(package.versions), "  defines ") if package.versions else ()


def target_json(recipes: Recipes, target: Target) -> dict[str, Any]:
    """A target for programs; ``versions`` are those of its host."""
    host = recipes.host(target.host) if target.host else None
    table: dict[str, Any] = plain(target)
    return {"kind": "target"} | table | {"versions": host.versions if host else None}


def host_json(host: Host) -> dict[str, Any]:
    """A host profile for programs."""
    table: dict[str, Any] = plain(host)
    return {"kind": "host"} | table | {"versions": host.versions}
