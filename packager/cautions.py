"""What a user should look at although the bundle can be made: warnings about single decisions."""

from __future__ import annotations

from collections.abc import Container, Iterator

from packager.plan import Action, Decision
from packager.resolve.closure import Kind


def cautions(d: Decision, kept: Container[str]) -> Iterator[str]:
    """The warnings about one decision; ``kept`` holds the paths of all files that are kept."""
    if d.action is Action.KEEP:
        yield from _of_kept(d)
    elif d.action is Action.DROP and any(e.kind is Kind.NEEDED and e.source in kept for e in d.edges):
        yield f"{d.name} is left out, but needed: the program will not start where the host lacks it"


def _of_kept(d: Decision) -> Iterator[str]:
    if d.family is not None and d.component is None:
        yield f"{d.name} belongs to {d.family.title}, and no recipe knows it: kept ({d.family.source})"
    if any(e.kind is Kind.DLOPEN and "/" in e.name for e in d.edges):
        yield f"{d.name} is opened by its path: the loader looks for it there, and not in the bundle"
    if d.family is not None and d.family.provided_by == "host":
        yield (
            f"{d.name} belongs to the host ({d.family.title}): it works only where the host has "
            "the very same release"
        )
    for attempt in d.object.passed_over if d.object is not None else ():
        if attempt.stops_the_loader:
            yield f"{d.name}: the dynamic loader stops at {attempt}"
