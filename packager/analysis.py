"""From a request to a plan: read the recipes, resolve, fetch what is missing when asked to, decide.

The one function that every command that looks at a program calls, so that ``plan``, ``why``, ``tree`` and
``bundle`` cannot disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packager import recipes as recipe_files
from packager.decide import make_plan
from packager.errors import DpackError
from packager.fit import fitted
from packager.ground import Ground, ground_of
from packager.plan import Action, Choice, Plan
from packager.recipes import Recipes
from packager.request import Request, Supply
from packager.resolve.closure import Closure
from packager.resolve.imports import imported
from packager.resolve.search import Loader
from packager.resolve.walk import resolve

if TYPE_CHECKING:
    from packager.source import Distribution, Progress


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a request comes to: the plan, and the closure and the ground that it rests on."""

    request: Request
    ground: Ground
    closure: Closure
    plan: Plan
    fetched: tuple[Distribution, ...] = ()

    @property
    def recipes(self) -> Recipes:
        """The recipes in force."""
        return self.ground.recipes

    @property
    def loader(self) -> Loader:
        """The loader by whose rules the closure was found."""
        return self.ground.loader


def analyse(request: Request, progress: Progress | None = None) -> Analysis:
    """Resolve and plan. Raises DpackError for a wrong request; misses and conflicts stand in the plan."""
    known = full = recipe_files.load(request.recipes, devices=request.aim.names_a_device)
    if request.cudnn == "jit":
        from packager import jit  # noqa: PLC0415 - few plans ask for it

        known = jit.narrowed(known)
    ground = ground_of(request, known, progress)
    choice = _choice(request, ground)
    fetched: tuple[Distribution, ...] = ()
    while True:
        closure = resolve(ground.program, ground.loader, ground.recipes, request.include)
        if request.cudnn == "jit" and jit.lacks_compiler(closure, ground.recipes):
            ground = replace(ground, recipes=jit.with_compiler(ground.recipes, full))
            continue
        plan = make_plan(closure, ground.recipes, choice)
        analysis = Analysis(request, ground, closure, plan, fetched)
        if request.cudnn == "jit":
            analysis = replace(analysis, plan=_with_proof(analysis))
        lacking = [name for miss in (*plan.misses, *plan.absent) for name in miss.names]
        if wider := ground.gathering(lacking, fetched):
            ground = wider
            continue
        more = _fetch_missing(analysis, progress) if request.supply is not None else ()
        if not more:
            return replace(analysis, plan=fitted(_with_unused_pins(analysis), ground, request.slicing))
        fetched += more
        ground = ground.with_store(fetched)


def _choice(request: Request, ground: Ground) -> Choice:
    models = tuple(dict.fromkeys(ground.recipes.model(name) for name in request.models))
    return Choice(models, request.include, request.exclude, request.strict, request.strip, ground.destination)


def _with_proof(analysis: Analysis) -> Plan:
    """The plan, with what could not be checked. Raises DpackError where cuDNN's JIT distribution will not do."""
    from packager import jit  # noqa: PLC0415 - as above

    plan, closure, program = analysis.plan, analysis.closure, analysis.request.program
    kept = {d.path for d in plan.of(Action.KEEP)}
    found = imported([o for o in closure.objects if o.path in kept], "cudnn")
    imports = [jit.Import(*each) for each in found]
    proof = jit.proof(closure, kept, imports, analysis.recipes, analysis.ground.destination.gpus)
    if not proof.possible:
        raise DpackError(
            f"cannot plan {program} with --cudnn jit",
            "cuDNN's JIT distribution has the graph API alone, for GPUs of compute capability 8.0 and above",
            tried=proof.reasons,
            next="leave --cudnn jit out: the full distribution serves every program",
        )
    left_out = jit.left_out(closure, analysis.recipes, analysis.loader)
    return replace(
        plan,
        decisions=(*plan.decisions, *left_out),
        warnings=(*plan.warnings, *jit.told(closure, analysis.recipes)),
        notes=(*plan.notes, *proof.notes),
    )


def _fetch_missing(analysis: Analysis, progress: Progress | None) -> tuple[Distribution, ...]:
    """Fetch the distributions that hold what the plan lacks; those that were not fetched before."""
    # The package index costs a tenth of a second to import, which a plan of files that are there need not pay.
    from packager.source import NoProgress, fetch  # noqa: PLC0415
    from packager.source.needs import requirements  # noqa: PLC0415

    plan, supply = analysis.plan, analysis.request.supply or Supply()
    pins = supply.pins
    if analysis.request.cudnn == "jit":
        from packager import jit  # noqa: PLC0415

        pins = jit.choose(pins, analysis.recipes)
    have = {each.name for each in analysis.fetched}
    wanted = requirements(
        missing=tuple(name for miss in (*plan.misses, *plan.absent) for name in miss.names),
        present=tuple(o.name for o in analysis.closure.objects),
        recipes=analysis.recipes,
        pins=pins,
        have=have,
    )
    if not wanted:
        return ()
    found = fetch(
        wanted,
        machine=analysis.loader.machine.name,
        offline=supply.offline,
        index_url=supply.index_url,
        progress=progress or NoProgress(),
    )
    return tuple(each for each in found if each.name not in have)


def _with_unused_pins(analysis: Analysis) -> Plan:
    """The plan, with a warning for each --require that nothing missing asked for."""
    pins = analysis.request.supply.pins if analysis.request.supply else ()
    if not pins:
        return analysis.plan
    from packager.source.needs import unused  # noqa: PLC0415 - as above

    odd = unused(pins, {each.name for each in analysis.fetched})
    told = tuple(f"--require {pin} was not needed: nothing missing is in it" for pin in odd)
    return replace(analysis.plan, warnings=(*analysis.plan.warnings, *told))
