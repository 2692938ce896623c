"""Which kept files are changed on their way into the bundle, and how. Pure: it decides, transform does.

The program itself is stripped and gets the rpath to lib/. A library that asks for others gets one only where its
own search path begins elsewhere than in its own directory: it would find other files than the bundle's, or, as
its DT_RUNPATH hides the program's rpath from it (ld.so(8)), none. Where a file finds libraries of a base image by
its own search path, those directories stay in the new one, behind the bundle's. A file whose licence forbids
changes is never touched.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace

from packager.destination import ANYWHERE, Destination
from packager.plan import Action, Change, Conflict, Decision
from packager.recipes import Recipes
from packager.resolve.closure import Kind, Object, Source
from packager.resolve.search import How

PROGRAM_RPATH = "$ORIGIN/../lib"
LIBRARY_RPATH = "$ORIGIN"


def changed(
    decisions: Sequence[Decision], recipes: Recipes, *, strip: bool, destination: Destination = ANYWHERE
) -> tuple[Decision, ...]:
    """``decisions`` with the change that each kept file needs; the program's decision stands first."""
    kept = [d for d in decisions if d.action is Action.KEEP]
    of_base = [d.object for d in decisions if d.object and destination.in_base(d.object.host)]

    def change(d: Decision) -> Change:
        own = _program(d, kept, strip=strip) if d is decisions[0] else _library(d, kept, recipes)
        return own if own.rpath is None else replace(own, rpath=":".join([own.rpath, *_theirs(d, of_base)]))

    return tuple(replace(d, change=change(d)) for d in decisions)


def _theirs(d: Decision, of_base: Sequence[Object]) -> list[str]:
    """The directories of the base in which the search path of ``d`` finds something, in its order."""
    elf = d.object.elf if d.object else None
    path = (elf.runpath or elf.rpath or "") if elf else ""
    order = [entry.rstrip("/") for entry in path.split(":")]
    found = {
        posixpath.dirname(o.path) for o in of_base if o.of == d.path and o.how in {How.RPATH, How.RUNPATH}
    }
    return sorted(found, key=lambda each: (order.index(each) if each in order else len(order), each))


def _program(d: Decision, kept: Sequence[Decision], *, strip: bool) -> Change:
    elf = d.object.elf if d.object else None
    finds = elf is not None and elf.dynamic and not elf.static and len(kept) > 1
    return Change(strip, PROGRAM_RPATH if finds else None)


def _library(d: Decision, kept: Sequence[Decision], recipes: Recipes) -> Change:
    allowed = d.family is None or recipes.licence(d.family).modify
    return Change(rpath=LIBRARY_RPATH) if allowed and _strays(d, kept) else Change()


def unreachable(decisions: Sequence[Decision]) -> Iterator[Conflict]:
    """Kept files that the loader will not find in lib/ although they stand there."""
    kept = [d for d in decisions if d.action is Action.KEEP]
    for d in kept:
        if d.edges and d.change.rpath is None and _blind(d, kept):
            yield Conflict(
                f"{d.name} would not find its libraries in the bundle",
                f"its runpath is {d.object.elf.runpath if d.object else ''}, and its licence forbids to change it",
                ("leave it to the host: --exclude " + d.name,),
            )
        for edge in d.edges:
            if (
                edge.kind is Kind.NEEDED
                and "/" in edge.name
                and edge.evidence.source is not Source.INTERPRETER
            ):
                yield Conflict(
                    f"{edge.source.rpartition('/')[2]} needs {edge.name} by its path",
                    "the loader looks for it there, and not in the bundle",
                    (
                        f"give {d.name} a soname (-Wl,-soname,{d.name}) and link again",
                        f"leave it to the host: --exclude {d.name}",
                    ),
                )
    yield from _same_name(kept)


def _same_name(kept: Sequence[Decision]) -> Iterator[Conflict]:
    by_name: dict[str, Decision] = {}
    named = [(each, name) for each in kept if each.edges for name in each.file_names]
    for d, name in named:
        other = by_name.setdefault(name, d)
        if other is not d:
            yield Conflict(
                f"two files are both {name}",
                f"{other.path} and {d.path}; lib/ of the bundle has room for one",
                (f"leave one out by its path: --exclude {d.path}",),
            )


def _strays(d: Decision, kept: Sequence[Decision]) -> bool:
    """True when ``d`` asks for another kept file, and its own search path begins elsewhere than beside it: on
    the target something else may lie there.
    """
    elf = d.object.elf if d.object else None
    path = None if elf is None else elf.runpath if elf.runpath is not None else elf.rpath
    if path is None or _beside_it(path.split(":")[0]):
        return False
    return any(edge.source == d.path for other in kept for edge in other.edges)


def _blind(d: Decision, kept: Sequence[Decision]) -> bool:
    """True when ``d`` would not find another kept file: its DT_RUNPATH, which hides the program's rpath from
    it, does not name its own directory at all.
    """
    runpath = d.object.elf.runpath if d.object else None
    return runpath is not None and not any(map(_beside_it, runpath.split(":"))) and _strays(d, kept)


def _beside_it(entry: str) -> bool:
    return posixpath.normpath(entry) in {"$ORIGIN", "${ORIGIN}"}
