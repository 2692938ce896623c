"""What stands in the way of a bundle: misses and conflicts, all of them together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from packager.account.words import base, few
from packager.errors import DpackError
from packager.plan import Plan
from packager.resolve.closure import Kind, Miss
from packager.resolve.search import Attempt, How


def missing(plan: Plan) -> dict[str, str]:
    """What is missing, each name once, with everything that asks for it."""
    askers: dict[str, list[Miss]] = {}
    for miss in plan.misses:
        askers.setdefault(miss.name, []).append(miss)
    return {name: reason_of(misses) for name, misses in askers.items()}


def misses_json(misses: Iterable[Miss], names: Mapping[str, str]) -> list[dict[str, object]]:
    """The misses as JSON; ``names`` has each object's path as the target sees it."""
    return [
        {
            "name": miss.name,
            "asked_by": names[miss.source],
            "kind": str(miss.kind),
            "searched": [str(attempt) for attempt in miss.attempts],
        }
        for miss in misses
    ]


def reason_of(misses: Sequence[Miss]) -> str:
    """Why one name is missing: "needed by mnist, not found"."""
    asked = "needed" if misses[0].kind is Kind.NEEDED else "opened"
    rule = f"  [{misses[0].evidence.rule}]" if misses[0].evidence.rule else ""
    names = list(dict.fromkeys(base(miss.source) for miss in misses))
    others = [name for name in misses[0].names if name != misses[0].name]
    nor = f", nor {' nor '.join(others)}" if others else ""
    return f"{asked} by {few(names)}, not found{nor}{rule}"


def incomplete(plan: Plan, *, fetching: bool) -> DpackError | None:
    """The error that names every conflict and miss together; None for a complete plan."""
    if plan.complete:
        return None
    tried = [line for conflict in plan.conflicts for line in (conflict.what, f"  {conflict.why}")]
    rows = missing(plan)
    for name, reason in rows.items():
        attempts = next(miss.attempts for miss in plan.misses if miss.name == name)
        tried += [f"{name}: {reason}; searched:", *(f"    {place}" for place in places(attempts))]
    strict = plan.mentions if plan.choice.strict else ()
    tried += [f"{m.name}: mentioned by {base(m.source)}, known to no recipe (--strict)" for m in strict]
    count = len(plan.conflicts) + len(rows) + len(strict)
    return DpackError(
        f"cannot bundle {plan.program.name}",
        "one thing stands in the way" if count == 1 else f"{count} things stand in the way",
        tried=tried,
        next="; or ".join(_ways_out(plan, fetching=fetching)),
    )


def places(attempts: Sequence[Attempt]) -> list[str]:
    """The directories that were searched, in order, each once; a file that was passed over is named."""
    lines: dict[str, str] = {}
    for attempt in attempts:
        if attempt.how is How.LENT:
            lines["--root"] = f"the directories of {attempt.how}"
            continue
        directory = attempt.path.rpartition("/")[0]
        seen = f": {base(attempt.path)} {attempt.outcome}" if attempt.found_something else ""
        of = f" of {base(attempt.of)}" if attempt.of else ""
        lines.setdefault(directory + seen, f"{directory or '.'} ({attempt.how}{of}){seen}")
    return list(lines.values()) or ["nowhere"]


def _ways_out(plan: Plan, *, fetching: bool) -> Iterator[str]:
    yield from dict.fromkeys(way for conflict in plan.conflicts for way in conflict.ways)
    if plan.misses:
        if not fetching and any(miss.name in plan.on_index for miss in plan.misses):
            yield "fetch NVIDIA's libraries from the package index: --fetch"
        yield "name the directory that holds what is missing: --library-path DIR"
        yield "name the target's file system: --root DIR"
        elsewhere = [miss.name for miss in plan.misses if miss.name not in plan.on_index]
        if elsewhere:
            yield f"leave it to the host: --exclude {elsewhere[0]}"
    elif plan.mentions and not plan.conflicts:
        yield "add each with --include NAME"
        yield "leave out --strict"
