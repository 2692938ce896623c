"""The closure as a tree, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packager.account.missing import misses_json
from packager.account.words import base
from packager.recipes import Recipes
from packager.resolve.closure import Closure, Edge, Kind, Object, Source


def tree_text(closure: Closure, recipes: Recipes) -> str:
    """One line an edge: the name, the file, how it was found and why it is asked for.

    What the host provides is not followed further; an object that was shown is not shown again below.
    """
    lines = [f"{closure.program.name}  {closure.program.path}"]
    lines += _below(closure, recipes, closure.program, "", {closure.program.path})
    odd = [f"  {o.name}: {attempt}" for o in closure.objects for attempt in o.passed_over]
    if odd:
        lines += ["", "passed over in the search:", *odd]
    unknown = [m for m in closure.mentions if not m.rule]
    if unknown:
        lines += ["", "possible misses (names that an object holds as strings, and no recipe knows):"]
        lines += [f"  {m.name}  in {base(m.source)}" for m in unknown]
    return "\n".join(lines)


def _below(closure: Closure, recipes: Recipes, o: Object, indent: str, shown: set[str]) -> Iterator[str]:
    edges = closure.edges_from(o.path)
    new = [e for e in edges if e.target not in shown or e.kind is Kind.DLOPEN]
    again = [e.name for e in edges if e not in new]
    for number, edge in enumerate(new, 1):
        last = number == len(new) and not again
        target = closure.find(edge.target)
        family = recipes.family_of(edge.name)
        of_host = family is not None and family.provided_by == "host"
        yield f"{indent}{'└── ' if last else '├── '}{_line(edge, target, shown, of_host=of_host)}"
        if target is None or target.path in shown:
            continue
        shown.add(target.path)
        if not of_host:
            yield from _below(closure, recipes, target, indent + ("    " if last else "│   "), shown)
    if again:
        yield f"{indent}└── needs {', '.join(again)}  [see above]"


def _line(edge: Edge, target: Object | None, shown: set[str], *, of_host: bool) -> str:
    why = "needed" if edge.kind is Kind.NEEDED else f"dlopen, {_evidence(edge)}"
    if target is None:
        where = "the host's, not seen here" if of_host else "not found"
        return f"{edge.name}  {where}  [{why}]"
    if target.path in shown:
        return f"{edge.name}  [{why}; see above]"
    how = f"{target.how} of {base(target.of)}" if target.of else str(target.how)
    return f"{edge.name}  {target.place}  [{how}; {why}]"


def _evidence(edge: Edge) -> str:
    source = edge.evidence.source
    return (
        f"recipe {edge.evidence.rule}"
        if source is Source.RECIPE
        else f"{source} {edge.evidence.rule}".rstrip()
    )


def tree_json(closure: Closure) -> dict[str, object]:
    """Objects, edges, misses and mentions; paths as the target sees them, sizes in bytes."""
    places = {o.path: o.place for o in closure.objects}
    return {
        "program": closure.program.path,
        "objects": [
            {
                "name": o.name,
                "path": o.place,
                "real": o.real,
                "bytes": o.elf.size,
                "found_by": str(o.how),
                "path_of": o.of or None,
                "passed_over": [str(attempt) for attempt in o.passed_over],
            }
            for o in closure.objects
        ],
        "edges": [_edge_json(edge, places) for edge in closure.edges],
        "misses": misses_json(closure.misses, places),
        "mentions": [
            {"name": m.name, "in": places[m.source], "rule": m.rule or None} for m in closure.mentions
        ],
    }


def _edge_json(edge: Edge, places: Mapping[str, str]) -> dict[str, object]:
    return {
        "from": places[edge.source],
        "name": edge.name,
        "to": places[edge.target] if edge.target else None,
        "kind": str(edge.kind),
        "evidence": str(edge.evidence.source),
        "rule": edge.evidence.rule or None,
        "need": str(edge.evidence.need),
    }
