"""Decide: from a closure to a plan. Pure: it opens nothing and prints nothing.

An object is kept when the program reaches it over an edge that the loader follows by itself (DT_NEEDED), or that
a recipe, a ``.note.dlopen`` or the user vouches for. It is dropped only where every edge to it comes from a
recipe that names the features it serves and the models have none of them, or from something that is itself
dropped. What the recipes say the host provides is left to the host. Without a model nothing is dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePath

from packager.cautions import cautions
from packager.changes import changed, unreachable
from packager.destination import Grant
from packager.plan import Action, Choice, Conflict, Decision, Plan, Saving
from packager.recipes import EVERY_FEATURE, Component, Recipes
from packager.resolve.closure import Closure, Edge, Evidence, Kind, Miss, Need, Object, Source


def make_plan(closure: Closure, recipes: Recipes, choice: Choice) -> Plan:
    """Decide on every object of ``closure``. Raises nothing: misses and conflicts stand in the plan."""
    plan = _decide(closure, recipes, choice)
    if choice.models:
        return plan
    return replace(plan, savings=tuple(_savings(closure, recipes, plan)))


def _savings(closure: Closure, recipes: Recipes, whole: Plan) -> Iterator[Saving]:
    gone = {d.path for d in whole.of(Action.DROP)}
    for model in recipes.models:
        plan = _decide(closure, recipes, replace(whole.choice, models=(model,)))
        dropped = [d for d in plan.of(Action.DROP) if d.path not in gone]
        if dropped and len(plan.conflicts) <= len(whole.conflicts):
            yield Saving(model.name, tuple(d.name for d in dropped), sum(d.size for d in dropped))


def _decide(closure: Closure, recipes: Recipes, choice: Choice) -> Plan:
    planner = _Planner(closure, recipes, choice)
    planner.reach()
    decided = [planner.decision(o) for o in closure.objects if planner.concerns(o)]
    decisions = changed(decided, recipes, strip=choice.strip, destination=choice.destination)
    unseen = tuple(planner.unseen_hosts())
    kept = frozenset(d.path for d in decisions if d.action is Action.KEEP)
    open_mentions = tuple(m for m in closure.mentions if not m.rule and m.source in kept)
    return Plan(
        choice=choice,
        decisions=decisions + unseen,
        misses=tuple(planner.misses(Need.REQUIRED)),
        absent=tuple(planner.misses(Need.RECOMMENDED)),
        on_index=frozenset(m.name for m in closure.misses if recipes.packages_for(m.name)),
        conflicts=(
            *planner.import_conflicts(decisions),
            *_mixed_versions(decisions),
            *unreachable(decisions),
        ),
        mentions=open_mentions,
        warnings=tuple(planner.warnings(decisions)),
        notes=tuple(planner.notes(decisions)),
    )


@dataclass(slots=True)
class _Planner:
    closure: Closure
    recipes: Recipes
    choice: Choice
    kept: dict[str, tuple[str, str, Edge | None]] = field(default_factory=dict)
    left_to_host: dict[str, tuple[str, str, Edge]] = field(default_factory=dict)
    wanted: dict[str, set[str]] = field(default_factory=dict)

    def reach(self) -> None:
        """Mark what is kept and what is the host's.

        What a destination has is the host's only where it is new enough for all that is kept, and what is kept
        depends on that: so first everything counts as kept, and then what was, until that is the same.
        """
        kept = {o.path for o in self.closure.objects}
        while kept != self.kept.keys():
            kept = set(self.kept) or kept
            self.wanted.clear()
            for need in (need for o in self.closure.objects if o.path in kept for need in o.elf.versions):
                self.wanted.setdefault(need.file, set()).update(need.versions)
            self._mark()

    def _mark(self) -> None:
        """The same for the versions that are wanted now, breadth-first from the program."""
        program = self.closure.program
        self.left_to_host.clear()
        self.kept.clear()
        self.kept[program.path] = ("the program itself", "", None)
        queue = deque([program])
        while queue:
            for edge in self.closure.edges_from(queue.popleft().path):
                target = self.closure.find(edge.target)
                if target is None or target.path in self.kept:
                    continue
                if self._host(target):
                    self._leave_to_host(target, edge)
                elif (why := self._keeps(edge, target)) is not None:
                    self.kept[target.path] = (*why, edge)
                    queue.append(target)

    def _leave_to_host(self, target: Object, edge: Edge) -> None:
        """What the host provides, it provides with all that it needs."""
        self.left_to_host.setdefault(target.path, (*self._provider(target.name, target), edge))
        for further in self.closure.edges_from(target.path):
            deeper = self.closure.find(further.target)
            if deeper and deeper.path not in self.left_to_host and self._host(deeper):
                self._leave_to_host(deeper, further)

    def _host(self, o: Object) -> bool:
        return self._provided(o.name, o) and not self._matches(o, self.choice.include)

    def _provided(self, name: str, o: Object | None = None) -> bool:
        family = self.recipes.family_of(name)
        return (family is not None and family.provided_by == "host") or self._grant(name, o) is not None

    def _grant(self, name: str, o: Object | None) -> Grant | None:
        wanted = self.wanted.get(name, ())
        return self.choice.destination.grants(name, wanted, o.host if o else "")

    def _provider(self, name: str, o: Object | None) -> tuple[str, str]:
        """Who provides a library that is the host's, in words, and by which rule."""
        if grant := self._grant(name, o):
            return f"provided by {grant.by}", grant.rule
        family = self.recipes.family_of(name)
        return (
            ("provided by the host", "")
            if family is None
            else (f"provided by the host ({family.title})", str(family.source))
        )

    def _matches(self, o: Object, patterns: Sequence[str]) -> str:
        names = (o.name, o.path, o.real)
        return next((p for p in patterns if any(fnmatchcase(name, p) for name in names)), "")

    def _keeps(self, edge: Edge, target: Object) -> tuple[str, str] | None:
        """Why ``edge`` keeps ``target`` (reason, rule); None when it does not."""
        asker = self.closure.find(edge.source)
        by = asker.name if asker else edge.source
        if pattern := self._matches(target, self.choice.include):
            return f"asked for with --include {pattern}", ""
        if self._matches(target, self.choice.exclude):
            return None
        if edge.kind is Kind.NEEDED:
            return f"needed by {by}", ""
        if edge.evidence.source is Source.USER:
            return f"asked for with --include {edge.evidence.rule}", ""
        if edge.evidence.source is Source.NOTE:
            vouched = edge.evidence.need is not Need.OPTIONAL
            return (f"{edge.evidence.need} by the .note.dlopen of {by}", "") if vouched else None
        return self._keeps_opened(edge, by, self.recipes.component(target.name))

    def _keeps_opened(self, edge: Edge, by: str, component: Component | None) -> tuple[str, str] | None:
        if component is None:
            return f"opened by {by}; no recipe says what it is for", edge.evidence.rule
        served = self._served(edge.evidence.serves)
        return None if served is None else (f"opened by {by}{served}", edge.evidence.rule)

    def _served(self, serves: Sequence[str]) -> str | None:
        """The words ", for convolution (model cnn)"; None when the models have none of the features."""
        features = self.choice.features
        if features is None or EVERY_FEATURE in serves:
            return ""
        common = [feature for feature in serves if feature in features]
        return f", for {', '.join(common)} ({self.choice.named})" if common else None

    def concerns(self, o: Object) -> bool:
        """False for what only the host's side of something dropped would load."""
        return o.path in self.kept or o.path in self.left_to_host or not self._host(o)

    def decision(self, o: Object) -> Decision:
        """The decision on one object of the closure."""
        edges = self.closure.edges_to(o.path)
        if o.path in self.kept:
            reason, rule, edge = self.kept[o.path]
            return self._decision(Action.KEEP, o, reason, rule, _first(edge, edges))
        if o.path in self.left_to_host:
            reason, rule, edge = self.left_to_host[o.path]
            return self._decision(Action.HOST, o, reason, rule, _first(edge, edges))
        reason, rule = self._dropped(o, edges)
        return self._decision(Action.DROP, o, reason, rule, edges)

    def _decision(
        self, action: Action, o: Object, reason: str, rule: str, edges: tuple[Edge, ...]
    ) -> Decision:
        component, family = self.recipes.component(o.name), self.recipes.family_of(o.name)
        return Decision(action, o.name, reason, rule, o.elf.size, o, component, family, edges)

    def _dropped(self, o: Object, edges: tuple[Edge, ...]) -> tuple[str, str]:
        if pattern := self._matches(o, self.choice.exclude):
            return f"left out with --exclude {pattern}", ""
        component = self.recipes.component(o.name)
        direct = next((e for e in edges if e.kind is Kind.DLOPEN and e.source in self.kept), None)
        if direct and direct.evidence.source is Source.NOTE:
            return "only suggested by a .note.dlopen; --include adds it", ""
        if direct and component:
            text = f"serves {', '.join(direct.evidence.serves)}; the {self.choice.named} "
            return text + ("has none of them" if len(self.choice.models) == 1 else "have none of them"), (
                direct.evidence.rule
            )
        askers = sorted(
            {a.name for e in edges if (a := self.closure.find(e.source)) and a.path not in self.kept}
        )
        return f"asked for only by {', '.join(askers)}, which is left out", ""

    def unseen_hosts(self) -> Iterator[Decision]:
        """What the host must provide and this machine does not show: misses and mentions of what is the host's."""
        seen = {c.id for o in self.closure.objects if (c := self.recipes.component(o.name))}
        asked = [(m.name, m.source, m.evidence.need) for m in self.closure.misses]
        asked += [(m.name, m.source, self._need(m.name)) for m in self.closure.mentions]
        for name, source, need in asked:
            family, component = self.recipes.family_of(name), self.recipes.component(name)
            if not self._provided(name) or need is Need.OPTIONAL or source not in self.kept:
                continue
            if (known := component.id if component else name) in seen:
                continue
            seen.add(known)
            reason, rule = self._provider(name, None)
            edges = tuple(e for e in self.closure.edges if e.name == name)
            reason = f"{reason}; not seen here"
            yield Decision(Action.HOST, name, reason, rule, 0, None, component, family, edges)

    def _need(self, name: str) -> Need:
        component = self.recipes.component(name)
        return Need.OPTIONAL if component is None else Need(component.need)

    def misses(self, need: Need) -> Iterator[Miss]:
        """The misses that count: asked for by something kept, not the host's, served by no other name."""
        for miss in self.closure.misses:
            if miss.source in self.kept and miss.evidence.need is need and self._counts(miss):
                yield miss

    def _counts(self, miss: Miss) -> bool:
        if self._provided(miss.name) or _matches_any(miss.name, self.choice.exclude):
            return False
        return miss.evidence.source is not Source.RECIPE or self._served(miss.evidence.serves) is not None

    def import_conflicts(self, decisions: Sequence[Decision]) -> Iterator[Conflict]:
        """API symbols that the program itself imports, of components that the models leave out."""
        program = self.closure.program
        kept = {d.component.id for d in decisions if d.component and d.action is not Action.DROP}
        dropped = {d.component.id: d.name for d in decisions if d.component and d.action is Action.DROP}
        for use in self.closure.uses:
            left_out = use.component.id not in kept and self._served(use.component.serves) is None
            if use.source == program.path and left_out:
                models = [m.name for m in self.recipes.models if set(m.features) & {*use.component.serves}]
                named = " ".join(f"--model {m.name}" for m in self.choice.models)
                library = dropped.get(use.component.id, use.component.files[0])
                yield Conflict(
                    f"{program.name} imports {use.symbol}, which {library} implements",
                    f"the {self.choice.named} leaves out {use.component.id} ({use.component.about})",
                    (
                        f"name the model that it is too: {named} --model {models[0] if models else '…'}",
                        f"keep the library all the same: --include {library}",
                    ),
                )

    def notes(self, decisions: Sequence[Decision]) -> Iterator[str]:
        """The same imports in a library are no conflict: a framework imports what it may never call."""
        dropped = {d.component.id for d in decisions if d.component and d.action is Action.DROP}
        for use in self.closure.uses:
            o = self.closure.find(use.source)
            if o is not None and o is not self.closure.program and use.component.id in dropped:
                yield f"{o.name} imports {use.symbol} of {use.component.id}, which is left out"

    def warnings(self, decisions: Sequence[Decision]) -> Iterator[str]:
        """What the user should look at although the bundle can be made."""
        for d in decisions:
            yield from cautions(d, self.kept)
        for miss in self.misses(Need.RECOMMENDED):
            file, _, name = miss.evidence.rule.partition(": ")
            by_rule = self.recipes.component_by_id(f"{PurePath(file).stem}:{name}")
            component = self.recipes.component(miss.name) or by_rule
            without = f": {component.without}" if component and component.without else ""
            yield f"{miss.name} is recommended and was not found{without}"
        yield from self._unmatched()

    def _unmatched(self) -> Iterator[str]:
        for pattern in self.choice.exclude:
            if self._matches(self.closure.program, (pattern,)):
                yield f"--exclude {pattern} matches the program itself, which stays"
        for option, patterns in (("--include", self.choice.include), ("--exclude", self.choice.exclude)):
            for pattern in patterns:
                asked = any(
                    _matches_any(edge.name, (pattern,)) or edge.evidence == Evidence(Source.USER, pattern)
                    for edge in self.closure.edges
                )
                if not asked and not any(self._matches(o, (pattern,)) for o in self.closure.objects):
                    yield f"{option} {pattern} matches nothing"


def _first(edge: Edge | None, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """``edges`` with the deciding one in front."""
    return edges if edge is None else (edge, *(e for e in edges if e is not edge))


def _matches_any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _is_loader(d: Decision) -> bool:
    return any(edge.evidence.source is Source.INTERPRETER for edge in d.edges)


def _mixed_versions(decisions: Sequence[Decision]) -> Iterator[Conflict]:
    """Families whose parts must come from one release, found in two directories."""
    families = {d.family.name: d.family for d in decisions if d.family and d.family.one_version}
    for family in families.values():
        # The loader stands where the program says, which need not be beside its libraries (/lib and /usr/lib64).
        parts = [
            d
            for d in decisions
            if d.family is family and d.object and d.action is Action.KEEP and not _is_loader(d)
        ]
        places: dict[str, list[str]] = {}
        for d in parts:
            places.setdefault(d.object.real.rpartition("/")[0] if d.object else "", []).append(d.name)
        if len({d.path.rpartition("/")[0] for d in parts}) == 1:
            continue  # links to one release, gathered in one directory
        if len(places) > 1:
            listed = "; ".join(f"{', '.join(names)} from {place}" for place, names in places.items())
            yield Conflict(
                f"the parts of {family.title} come from {len(places)} directories",
                f"they load only together with those of their own release ({listed})",
                (
                    "put the directory of the one release first: --library-path DIR",
                    "remove the other release from the search (its rpath, ld.so.conf)",
                ),
            )
