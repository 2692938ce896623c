"""The plan for people and as JSON: the same text for ``dpack plan`` and ``dpack bundle``."""

from __future__ import annotations

from collections.abc import Iterator

from packager.account.chain import chain
from packager.account.missing import misses_json, missing
from packager.account.requirements import requirements
from packager.account.size import human
from packager.account.words import base, few
from packager.destination import Destination
from packager.plan import Action, Decision, Plan
from packager.request import SCRATCH
from packager.resolve.closure import Source

_CPP_RUNTIME = "C++ runtime"


def plan_text(plan: Plan) -> str:
    """Every decision with its size and reason, then what is missing, the warnings and the totals."""
    named = f", {plan.choice.named}" if plan.choice.models else ", no model named"
    machine = plan.program.object.elf.machine.name if plan.program.object else ""
    lines = [f"Plan for {plan.program.name} ({machine}{named})"]
    lines += [f"to run on {plan.choice.destination.words}"] if plan.choice.destination.words else []
    width = max((len(d.name) for d in plan.decisions), default=0)
    for action in Action:
        decisions = plan.of(action)
        if decisions:
            title = {Action.KEEP: "kept", Action.DROP: "dropped"}.get(action, f"left to {_system(plan)}")
            lines += ["", f"{title}:", *(_row(d, width) for d in decisions)]
    if plan.misses:
        rows = missing(plan).items()
        lines += ["", "missing:", *(f"  {name.ljust(width)}  {'':>8}  {reason}" for name, reason in rows)]
    lines += ["", *_footer(plan)]
    return "\n".join(lines)


def _system(plan: Plan) -> str:
    """What is below the bundle where it runs."""
    return "the base image and the host" if _on_image(plan) else "the host"


def _on_image(plan: Plan) -> bool:
    return plan.choice.destination.base not in {"", SCRATCH}


def _row(d: Decision, width: int) -> str:
    """One decision; of a program that is stripped the size is that before, which nobody knows better yet."""
    size = human(d.packed_size) if d.packed_size else "-"
    rule = f"  [{d.rule}]" if d.rule else ""
    more = [f"also as {name}" for name in d.file_names[1:]] if d.action is Action.KEEP else []
    whole = [f"of {human(d.size)}"] if d.change.slice else []
    changes = ["to be stripped" if word == "stripped" else word for word in d.change.words]
    words = f" ({', '.join([*changes, *whole, *more])})" if d.change or more else ""
    return f"  {d.name.ljust(width)}  {size:>8}  {d.reason}{words}{rule}"


def host_text(plan: Plan) -> str:
    """One sentence on what the target must have: "glibc 2.34 or newer (for mnist); the NVIDIA driver (…)". What a
    base image has was looked at there, and is left out.
    """
    needs, base_image = requirements(plan), _on_image(plan)
    parts = [
        f"{title} {floor.version} or newer (for {few(floor.wanted_by)})"
        for title, floor in (("glibc", needs.glibc), ("libstdc++ with GLIBCXX", needs.glibcxx))
        if floor is not None and not floor.bundled and not base_image
    ]
    if needs.driver:
        parts.append(f"the NVIDIA driver ({few(needs.driver)})")
    if needs.loader and not parts and not base_image and not _own_loader(plan):
        parts.append(f"the loader {needs.loader}")
    return "; ".join(parts) or "nothing but a Linux kernel"


def _own_loader(plan: Plan) -> bool:
    """Whether the plan keeps the dynamic loader itself."""
    started = (e.evidence.source is Source.INTERPRETER for d in plan.of(Action.KEEP) for e in d.edges)
    return any(started)


def _newer_runtime(plan: Plan) -> Iterator[str]:
    """The price of bundling this machine's C++ runtime: it may want a newer glibc than all the rest."""
    floor = requirements(plan).glibc
    runtime = {d.name for d in plan.of(Action.KEEP) if d.group == _CPP_RUNTIME}
    system = plan.choice.destination.host or plan.choice.destination.base
    if floor is not None and not system and set(floor.wanted_by) <= runtime:
        wanted = floor.wanted_by[0]
        yield (
            f"note: only {wanted}, taken from here, wants glibc {floor.version}; for a host with an older glibc "
            f"and a C++ runtime of its own: --exclude '{wanted.partition('.so')[0]}*'"
        )


def _footer(plan: Plan) -> Iterator[str]:
    yield from (f"warning: {text}" for text in plan.warnings)
    yield from (f"note: {text}" for text in plan.notes)
    for mention in plan.mentions:
        yield (
            f"possible miss: {base(mention.source)} mentions {mention.name}, which no recipe knows; "
            f"--include {mention.name} adds it"
        )
    for saving in plan.savings:
        yield (f"--model {saving.model} would leave out {human(saving.size)}: {', '.join(saving.names)}")
    yield f"the host must provide: {host_text(plan)}"
    yield from _newer_runtime(plan)
    parts = []
    sizes = ((Action.KEEP, "keeps", plan.packed_size), (Action.DROP, "drops", plan.size(Action.DROP)))
    for action, verb, size in sizes:
        count = plan.count(action)
        parts.append(f"{verb} {count} file{'' if count == 1 else 's'}, {human(size)}")
    yield f"{'; '.join(parts)}; leaves {len(plan.of(Action.HOST))} to {_system(plan)}"


def destination_json(destination: Destination) -> dict[str, object]:
    """Where the bundle is to run, null where the request does not say; the same whatever a path is called here."""
    return {
        "target": destination.target or None,
        "platform": destination.platform or None,
        "gpus": [str(gpu) for gpu in destination.gpus],
        "host": destination.host.name if destination.host else None,
        "base": destination.base or None,
    }


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan as JSON: decisions, misses, conflicts, warnings and totals; sizes in bytes."""
    places = {d.path: d.object.place for d in plan.decisions if d.object}
    return {
        "program": plan.program.path,
        "models": [model.name for model in plan.choice.models],
        "destination": destination_json(plan.choice.destination),
        "decisions": [
            {
                "action": str(d.action),
                "name": d.name,
                "path": d.object.place if d.object else None,
                "bytes": d.size,
                "bytes_in_bundle": d.packed_size,
                "bytes_uncut": d.uncut,
                "group": d.group,
                "component": d.component.id if d.component else None,
                "reason": d.reason,
                "rule": d.rule or None,
                "changes": list(d.change.words),
                "chain": list(chain(plan, d)),
            }
            for d in plan.decisions
        ],
        "missing": misses_json(plan.misses, places),
        "conflicts": [{"what": c.what, "why": c.why, "ways_out": list(c.ways)} for c in plan.conflicts],
        "possible_misses": [{"name": m.name, "mentioned_by": places[m.source]} for m in plan.mentions],
        "warnings": list(plan.warnings),
        "notes": list(plan.notes),
        "savings": [{"model": s.model, "names": list(s.names), "bytes": s.size} for s in plan.savings],
        "totals": {f"{action}_bytes": plan.size(action) for action in (Action.KEEP, Action.DROP)},
    }
