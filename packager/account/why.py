"""The story of one library, for ``dpack why``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from packager.account.chain import chain
from packager.account.missing import places, reason_of
from packager.account.size import human
from packager.account.words import base
from packager.analysis import Analysis
from packager.errors import DpackError
from packager.plan import Action, Decision, Plan
from packager.resolve.closure import Edge, Mention
from packager.resolve.search import How


def why_text(analysis: Analysis, name: str) -> str:
    """The whole story of the libraries that ``name`` means; DpackError (exit 1) when it means none."""
    plan = analysis.plan
    chosen = [d for d in plan.decisions if _means(name, d)]
    lost = [m for m in plan.misses if _fits(name, m.name)]
    mentioned = [m for m in _unanswered(analysis) if _fits(name, base(m.name))]
    if not chosen and not lost and not mentioned:
        raise _unknown(plan, name)
    stories = [_story(analysis, d) for d in chosen]
    stories += [
        [f"{m.name} is missing: {reason_of([m])}", *(f"  {place}" for place in places(m.attempts))]
        for m in lost
    ]
    stories += [_mentioned(m) for m in mentioned]
    return "\n\n".join("\n".join(story) for story in stories)


def _unanswered(analysis: Analysis) -> list[Mention]:
    """The mentions of what is neither loaded nor missed."""
    known = [d.name for d in analysis.plan.decisions] + [m.name for m in analysis.plan.misses]
    stems = {_plain(each) for each in known}
    return [m for m in analysis.closure.mentions if _plain(base(m.name)) not in stems]


def _mentioned(m: Mention) -> list[str]:
    known = f"  [{m.rule}]" if m.rule else ", which no recipe knows"
    return [
        f"{m.name} is a possible miss: {base(m.source)} mentions it{known}",
        "  a name in a library's strings does not tell whether it is opened",
        f"  --include {m.name} adds it",
    ]


def _unknown(plan: Plan, name: str) -> DpackError:
    what = f"{name} is not in the closure of {plan.program.name}"
    count = len({miss.name for miss in plan.misses})
    if count:
        few = "one library was" if count == 1 else f"{count} libraries were"
        return DpackError(
            what,
            f"nothing that was found needs, opens or mentions it; {few} not found, so what they load is unknown",
            next="find them first: --fetch or --library-path DIR",
        )
    from difflib import get_close_matches  # noqa: PLC0415 - only where the user mistyped

    names = {_plain(d.name): d.name for d in plan.decisions if d is not plan.program}
    near = [names[each] for each in get_close_matches(_plain(name), names, 3, 0.5)]
    return DpackError(
        what,
        "nothing that is loaded needs, opens or mentions it",
        next=f"did you mean {' or '.join(near)}?" if near else "see dpack tree for everything that is loaded",
    )


def _means(name: str, d: Decision) -> bool:
    return any(_fits(name, known) for known in (d.name, d.path, *d.also_asked_as) if known)


def _plain(name: str) -> str:
    return name.partition(".so")[0].removeprefix("lib")


def _fits(name: str, known: str) -> bool:
    return fnmatchcase(known, name) or name in {
        _plain(known),
        known.partition(".so")[0],
    }


def _story(analysis: Analysis, d: Decision) -> list[str]:
    verb = {Action.KEEP: "is kept", Action.DROP: "is dropped", Action.HOST: "is left to the host"}[d.action]
    lines = [f"{d.name} {verb}: {d.reason}"]
    if d.rule:
        lines.append(f"  rule       {d.rule}")
    if d.object is not None:
        lines.append(f"  file       {d.object.place} ({human(d.size)}), {_found(d)}")
        lines += [f"  passed over  {attempt}" for attempt in d.object.passed_over]
    if d.component is not None:
        lines.append(f"  what it is {d.component.about}")
        lines.append(f"  serves     {', '.join(d.component.serves)}")
        if d.component.without:
            lines.append(f"  without it {d.component.without}")
        if d.component.evidence:
            lines.append(f"  evidence   {d.component.evidence}")
    lines.append("  chain")
    begins = (
        "it is where everything begins" if d is analysis.plan.program else "nothing that is loaded opens it"
    )
    lines += [f"    {step}" for step in chain(analysis.plan, d)] or [f"    {begins}"]
    others = [edge for edge in d.edges[1:] if edge.source != (d.edges[0].source if d.edges else "")]
    if others:
        lines += ["  also asked for by", *(f"    {line}" for line in _askers(others))]
    return lines


def _found(d: Decision) -> str:
    if d.object is None:
        return ""
    how, of = d.object.how, d.object.of
    if how is How.BESIDE:
        return f"found beside {of}"
    return f"found by {how} of {of}" if of and how is not How.PROGRAM else f"found by {how}"


def _askers(edges: Sequence[Edge]) -> list[str]:
    return list(dict.fromkeys(f"{base(edge.source)} ({edge.kind}, {edge.evidence.source})" for edge in edges))
