"""The plan for people: the same text for ``dpack plan`` and ``dpack bundle``, and the story of one library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from packager.account.chain import chain
from packager.account.requirements import requirements
from packager.account.size import human
from packager.errors import DpackError
from packager.plan import Action, Decision, Plan
from packager.request import Analysis
from packager.resolve.closure import Edge, Kind, Miss
from packager.resolve.search import How

_CPP_RUNTIME = "C++ runtime"

_TITLES = {Action.KEEP: "kept", Action.DROP: "dropped", Action.HOST: "left to the host"}


def plan_text(plan: Plan) -> str:
    """Every decision with its size and reason, then what is missing, the warnings and the totals."""
    named = f", {plan.choice.named}" if plan.choice.models else ", no model named"
    machine = plan.program.object.elf.machine.name if plan.program.object else ""
    lines = [f"Plan for {plan.program.name} ({machine}{named})"]
    width = max((len(d.name) for d in plan.decisions), default=0)
    for action in Action:
        decisions = plan.of(action)
        if decisions:
            lines += ["", f"{_TITLES[action]}:", *(_row(d, width) for d in decisions)]
    if plan.misses:
        lines += [
            "",
            "missing:",
            *(f"  {m.name.ljust(width)}  {'':>8}  {_miss_reason(m)}" for m in plan.misses),
        ]
    lines += ["", *_footer(plan)]
    return "\n".join(lines)


def _row(d: Decision, width: int) -> str:
    size = human(d.size) if d.size else "-"
    rule = f"  [{d.rule}]" if d.rule else ""
    words = f" ({', '.join(d.change.words)})" if d.change else ""
    return f"  {d.name.ljust(width)}  {size:>8}  {d.reason}{words}{rule}"


def _miss_reason(miss: Miss) -> str:
    asked = "needed" if miss.kind is Kind.NEEDED else "opened"
    rule = f"  [{miss.evidence.rule}]" if miss.evidence.rule else ""
    return f"{asked} by {_base(miss.source)}, not found{rule}"


def host_text(plan: Plan) -> str:
    """One sentence on what the target must have: "glibc 2.34 or newer (for mnist); the NVIDIA driver (…)"."""
    needs = requirements(plan)
    parts = [
        f"{title} {floor.version} or newer (for {_few(floor.wanted_by)})"
        for title, floor in (("glibc", needs.glibc), ("libstdc++ with GLIBCXX", needs.glibcxx))
        if floor is not None and not floor.bundled
    ]
    if needs.driver:
        parts.append(f"the NVIDIA driver ({_few(needs.driver)})")
    return "; ".join(parts) or "nothing but a Linux kernel"


def _newer_runtime(plan: Plan) -> Iterator[str]:
    """The price of bundling this machine's C++ runtime: it may want a newer glibc than all the rest."""
    floor = requirements(plan).glibc
    runtime = {d.name for d in plan.of(Action.KEEP) if d.group == _CPP_RUNTIME}
    if floor is not None and set(floor.wanted_by) <= runtime:
        wanted = floor.wanted_by[0]
        yield (
            f"note: only {wanted}, taken from here, wants glibc {floor.version}; for a host with an older glibc "
            f"and a C++ runtime of its own: --exclude '{wanted.partition('.so')[0]}*'"
        )


def _few(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more


def _footer(plan: Plan) -> Iterator[str]:
    yield from (f"warning: {text}" for text in plan.warnings)
    yield from (f"note: {text}" for text in plan.notes)
    for mention in plan.mentions:
        yield (
            f"possible miss: {_base(mention.source)} mentions {mention.name}, which no recipe knows; "
            f"--include {mention.name} adds it"
        )
    for saving in plan.savings:
        yield (f"--model {saving.model} would leave out {human(saving.size)}: {', '.join(saving.names)}")
    yield f"the host must provide: {host_text(plan)}"
    yield from _newer_runtime(plan)
    parts = []
    for action, verb in ((Action.KEEP, "keeps"), (Action.DROP, "drops")):
        count = len(plan.of(action))
        parts.append(f"{verb} {count} file{'' if count == 1 else 's'}, {human(plan.size(action))}")
    yield f"{'; '.join(parts)}; leaves {len(plan.of(Action.HOST))} to the host"


def _base(path: str) -> str:
    return path.rpartition("/")[2]


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan as JSON: decisions, misses, conflicts, warnings and totals; sizes in bytes."""
    return {
        "program": plan.program.path,
        "models": [model.name for model in plan.choice.models],
        "decisions": [
            {
                "action": str(d.action),
                "name": d.name,
                "path": d.path or None,
                "bytes": d.size,
                "group": d.group,
                "component": d.component.id if d.component else None,
                "reason": d.reason,
                "rule": d.rule or None,
                "changes": list(d.change.words),
                "chain": list(chain(plan, d)),
            }
            for d in plan.decisions
        ],
        "missing": [
            {
                "name": m.name,
                "asked_by": m.source,
                "kind": str(m.kind),
                "searched": [str(a) for a in m.attempts],
            }
            for m in plan.misses
        ],
        "conflicts": [{"what": c.what, "why": c.why, "ways_out": list(c.ways)} for c in plan.conflicts],
        "possible_misses": [{"name": m.name, "mentioned_by": m.source} for m in plan.mentions],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "savings": [{"model": s.model, "names": list(s.names), "bytes": s.size} for s in plan.savings],
        "totals": {f"{action}_bytes": plan.size(action) for action in (Action.KEEP, Action.DROP)},
    }


def incomplete(plan: Plan, *, fetching: bool) -> DpackError | None:
    """The error that names every conflict and miss together; None for a complete plan."""
    if plan.complete:
        return None
    tried = [line for conflict in plan.conflicts for line in (conflict.what, f"  {conflict.why}")]
    for miss in plan.misses:
        tried.append(f"{miss.name}: {_miss_reason(miss)}; searched:")
        tried += [f"    {attempt}" for attempt in miss.attempts] or ["    nowhere"]
    if plan.choice.strict:
        tried += [
            f"{m.name}: mentioned by {_base(m.source)}, known to no recipe (--strict)" for m in plan.mentions
        ]
    count = len(plan.conflicts) + len(plan.misses) + (len(plan.mentions) if plan.choice.strict else 0)
    things = "one thing stands" if count == 1 else f"{count} things stand"
    return DpackError(
        f"cannot bundle {plan.program.name}",
        f"{things} in the way",
        tried=tried,
        next=_next(plan, fetching=fetching),
    )


def _next(plan: Plan, *, fetching: bool) -> str:
    ways = [way for conflict in plan.conflicts for way in conflict.ways]
    if plan.misses:
        fetch = [] if fetching else ["fetch NVIDIA's libraries from the package index: --fetch"]
        ways += [*fetch, "or name the directory that holds what is missing: --library-path DIR"]
        ways += ["or leave it out: --exclude NAME"]
    elif plan.mentions and not plan.conflicts:
        ways += ["add each with --include NAME, or leave out --strict"]
    return "; ".join(ways)


def why_text(analysis: Analysis, name: str) -> str:
    """The whole story of the libraries that ``name`` means; DpackError (exit 1) when it means none."""
    plan = analysis.plan
    chosen = [d for d in plan.decisions if _means(name, d)]
    missing = [m for m in plan.misses if _fits(name, m.name)]
    if not chosen and not missing:
        from difflib import get_close_matches  # noqa: PLC0415 - only where the user mistyped

        near = get_close_matches(name, [d.name for d in plan.decisions], 3, 0.5)
        raise DpackError(
            f"{name} is not in the closure of {plan.program.name}",
            "nothing that is loaded needs, opens or mentions it",
            next=f"did you mean {' or '.join(near)}?"
            if near
            else "see dpack tree for everything that is loaded",
        )
    stories = [_story(analysis, d) for d in chosen]
    stories += [[f"{m.name} is missing: {_miss_reason(m)}", *(f"  {a}" for a in m.attempts)] for m in missing]
    return "\n\n".join("\n".join(story) for story in stories)


def _means(name: str, d: Decision) -> bool:
    return any(_fits(name, known) for known in (d.name, d.path, *d.also_asked_as) if known)


def _fits(name: str, known: str) -> bool:
    return fnmatchcase(known, name) or name in {
        known.partition(".so")[0].removeprefix("lib"),
        known.partition(".so")[0],
    }


def _story(analysis: Analysis, d: Decision) -> list[str]:
    verb = {Action.KEEP: "is kept", Action.DROP: "is dropped", Action.HOST: "is left to the host"}[d.action]
    lines = [f"{d.name} {verb}: {d.reason}"]
    if d.rule:
        lines.append(f"  rule       {d.rule}")
    if d.object is not None:
        lines.append(f"  file       {d.object.path} ({human(d.size)}), found by {_found(d)}")
        lines += [f"  passed over  {attempt}" for attempt in d.object.passed_over]
    if d.component is not None:
        lines.append(f"  what it is {d.component.about}")
        lines.append(f"  serves     {', '.join(d.component.serves)}")
        if d.component.without:
            lines.append(f"  without it {d.component.without}")
        if d.component.evidence:
            lines.append(f"  evidence   {d.component.evidence}")
    lines.append("  chain")
    lines += [f"    {step}" for step in chain(analysis.plan, d)] or ["    it is where everything begins"]
    others = [edge for edge in d.edges[1:] if edge.source != (d.edges[0].source if d.edges else "")]
    if others:
        lines += ["  also asked for by", *(f"    {line}" for line in _askers(others))]
    return lines


def _found(d: Decision) -> str:
    if d.object is None:
        return ""
    return (
        f"{d.object.how} of {d.object.of}"
        if d.object.of and d.object.how is not How.PROGRAM
        else str(d.object.how)
    )


def _askers(edges: Sequence[Edge]) -> list[str]:
    return list(
        dict.fromkeys(f"{_base(edge.source)} ({edge.kind}, {edge.evidence.source})" for edge in edges)
    )
