"""The steps that lead from the program to one library, each with what it rests on."""

from __future__ import annotations

from collections import deque

from packager.plan import Action, Decision, Plan
from packager.resolve.closure import Edge, Kind, Source


def chain(plan: Plan, decision: Decision) -> tuple[str, ...]:
    """The steps from the program to ``decision``, such as "libcudnn.so.9 opens libcudnn_graph.so.9 (RULE)".

    For a kept file they follow the edge that decided, for any other the shortest way there. Empty for the
    program itself, and for what no edge leads to.
    """
    by_path = {d.path: d for d in plan.decisions if d.path}
    queue: deque[tuple[Decision, tuple[str, ...]]] = deque([(decision, ())])
    seen = {decision.path}
    while queue:
        at, steps = queue.popleft()
        if at is plan.program:
            return steps
        for edge in at.edges[:1] if at.action is Action.KEEP else at.edges:
            asker = by_path.get(edge.source)
            if asker is not None and asker.path not in seen:
                seen.add(asker.path)
                queue.append((asker, (_step(asker, edge, at), *steps)))
    return ()


def _step(asker: Decision, edge: Edge, target: Decision) -> str:
    verb = "needs" if edge.kind is Kind.NEEDED else "opens"
    asked = edge.name.rpartition("/")[2]
    found = "" if asked == target.name else f", which is {target.name}"
    return f"{asker.name} {verb} {asked}{found}{_rests_on(edge)}"


def _rests_on(edge: Edge) -> str:
    evidence = edge.evidence
    if evidence.source is Source.DYNAMIC:
        return ""
    if evidence.source is Source.RECIPE:
        return f" ({evidence.rule})"
    if evidence.source is Source.USER:
        return f" (--include {evidence.rule})"
    return f" ({evidence.source}: {evidence.rule})" if evidence.rule else f" ({evidence.source})"
