"""From a request to a plan: read the recipes, resolve, fetch what is missing when asked to, decide.

The one function that every command that looks at a program calls, so that ``plan``, ``why``, ``tree`` and
``bundle`` cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from packager import recipes as recipe_files
from packager.decide import make_plan
from packager.errors import EXIT_USAGE, DpackError, usage
from packager.plan import Choice, Plan
from packager.recipes import Recipes
from packager.resolve.closure import Closure
from packager.resolve.elf import read_elf
from packager.resolve.machine import MACHINES
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve

if TYPE_CHECKING:
    from packager.source import Distribution, Progress


@dataclass(frozen=True, slots=True)
class Supply:
    """Whether and how missing libraries are fetched. ``pins`` are requirement strings that choose versions."""

    pins: tuple[str, ...] = ()
    offline: bool = False
    index_url: str | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asks for. Paths are this machine's; ``supply`` is None where nothing is to be fetched."""

    program: Path
    models: tuple[str, ...] = ()
    root: Path = Path("/")
    library_path: tuple[Path, ...] = ()
    cpu: str = ""
    recipes: tuple[Path, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    strict: bool = False
    strip: bool = True
    supply: Supply | None = None


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a request comes to: the plan, and the closure and recipes that it rests on."""

    request: Request
    recipes: Recipes
    loader: Loader
    closure: Closure
    plan: Plan
    fetched: tuple[Distribution, ...] = ()


def analyse(request: Request, progress: Progress | None = None) -> Analysis:
    """Resolve and plan. Raises DpackError for a wrong request; misses and conflicts stand in the plan."""
    known = recipe_files.load(request.recipes)
    models = tuple(dict.fromkeys(known.model(name) for name in request.models))
    choice = Choice(models, request.include, request.exclude, request.strict, request.strip)
    loader = _loader(request)
    program = loader.sysroot.inside(request.program)
    fetched: tuple[Distribution, ...] = ()
    while True:
        closure = resolve(program, loader, known, request.include)
        plan = make_plan(closure, known, choice)
        analysis = Analysis(request, known, loader, closure, plan, fetched)
        more = _fetch_missing(analysis, progress) if request.supply is not None else ()
        if not more:
            return replace(analysis, plan=_with_unused_pins(analysis))
        fetched += more
        loader = _with_store(loader, fetched)


def _loader(request: Request) -> Loader:
    for path in request.library_path:
        if not path.is_dir():
            raise usage(f"cannot search {path}", "no such directory", next="check --library-path")
    _check_program(request)
    read = read_elf(request.program)
    sysroot = Sysroot.at(request.root, (request.program.absolute().parent, *request.library_path))
    if request.cpu and request.cpu not in read.machine.hwcaps:
        levels = ", ".join(read.machine.hwcaps) or "none"
        raise usage(
            f"unknown --cpu {request.cpu}",
            f"{read.machine.name} has no such glibc-hwcaps level",
            next=f"name one of its levels: {levels}",
        )
    if not read.machine.known:
        raise DpackError(
            f"cannot plan for {request.program}",
            f"it is made for {read.machine.name}, whose loader's rules dpack does not know",
            next=f"dpack knows {', '.join(machine.name for machine in MACHINES)}",
            exit=EXIT_USAGE,
        )
    paths = [sysroot.inside(path) for path in request.library_path]
    return Loader.of(read, sysroot, paths, request.cpu)


def _check_program(request: Request) -> None:
    """Say so when the program is named by its path on the target."""
    inside = Path(request.root) / str(request.program).lstrip("/")
    if request.root != Path("/") and not request.program.exists() and inside.exists():
        raise usage(
            f"cannot read {request.program}",
            f"no such file on this machine; there is one in the root {request.root}",
            next=f"name it by its path on this machine: {inside}",
        )


def _fetch_missing(analysis: Analysis, progress: Progress | None) -> tuple[Distribution, ...]:
    """Fetch the distributions that hold what the plan lacks and that were not fetched before."""
    # The package index costs a tenth of a second to import, which a plan of files that are there need not pay.
    from packager.source import NoProgress, fetch  # noqa: PLC0415
    from packager.source.needs import requirements  # noqa: PLC0415

    plan, supply = analysis.plan, analysis.request.supply or Supply()
    wanted = requirements(
        missing=tuple(name for miss in (*plan.misses, *plan.absent) for name in miss.names),
        present=tuple(o.name for o in analysis.closure.objects),
        recipes=analysis.recipes,
        pins=supply.pins,
        have={each.name for each in analysis.fetched},
    )
    if not wanted:
        return ()
    return fetch(
        wanted,
        machine=analysis.loader.machine.name,
        offline=supply.offline,
        index_url=supply.index_url,
        progress=progress or NoProgress(),
    )


def _with_unused_pins(analysis: Analysis) -> Plan:
    """The plan, with a warning for each --require that nothing missing asked for."""
    pins = analysis.request.supply.pins if analysis.request.supply else ()
    if not pins:
        return analysis.plan
    from packager.source.needs import unused  # noqa: PLC0415 - as above

    odd = unused(pins, {each.name for each in analysis.fetched})
    told = tuple(f"--require {pin} was not needed: nothing missing is in it" for pin in odd)
    return replace(analysis.plan, warnings=(*analysis.plan.warnings, *told))


def _with_store(loader: Loader, fetched: Sequence[Distribution]) -> Loader:
    """The loader, with the libraries of ``fetched`` in reach. What it has read of other files stays valid."""
    from packager.source import library_directories  # noqa: PLC0415 - as above

    store = tuple(str(path) for each in fetched for path in library_directories(each))
    sysroot = loader.sysroot.seeing(store)
    return replace(loader, sysroot=sysroot, store=store)
