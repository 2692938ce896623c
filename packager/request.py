"""From a request to a plan: read the recipes, resolve, fetch what is missing when asked to, decide.

The one function that every command that looks at a program calls, so that ``plan``, ``why``, ``tree`` and
``bundle`` cannot disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packager import recipes as recipe_files
from packager.decide import make_plan
from packager.errors import DpackError, usage
from packager.plan import Choice, Plan
from packager.recipes import Recipes
from packager.resolve.closure import Closure
from packager.resolve.elf import read_elf
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve
from packager.source import Distribution, NoProgress, Progress, default_cache, fetch, library_directories
from packager.source.needs import requirements


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
    choice = Choice(models, request.include, request.exclude, request.strict)
    loader = _loader(request)
    program = loader.sysroot.inside(request.program)
    fetched: tuple[Distribution, ...] = ()
    while True:
        closure = resolve(program, loader, known, request.include)
        plan = make_plan(closure, known, choice)
        wanted = _wanted(request, plan, closure, known, fetched)
        if not wanted or request.supply is None:
            return Analysis(request, known, loader, closure, plan, fetched)
        fetched += fetch(
            wanted,
            machine=loader.machine.name,
            offline=request.supply.offline,
            index_url=request.supply.index_url,
            progress=progress or NoProgress(),
        )
        store = tuple(str(path) for each in fetched for path in library_directories(each))
        # What was read of each file stays valid; where a name was not found before, it is asked for again.
        loader = replace(loader, store=store)


def _loader(request: Request) -> Loader:
    for path in request.library_path:
        if not path.is_dir():
            raise usage(f"cannot search {path}", "no such directory", next="check --library-path")
    read = read_elf(request.program)
    outside = (request.program.absolute().parent, *request.library_path, default_cache())
    sysroot = Sysroot.at(request.root, outside)
    if request.cpu and request.cpu not in read.machine.hwcaps:
        levels = ", ".join(read.machine.hwcaps) or "none"
        raise usage(f"unknown --cpu {request.cpu}", f"{read.machine.name} has the levels: {levels}")
    if not read.machine.known:
        raise DpackError(
            f"cannot plan for {request.program}",
            f"it is made for {read.machine.name}, whose loader's rules dpack does not know",
            exit=2,
        )
    paths = [sysroot.inside(path) for path in request.library_path]
    return Loader.of(read, sysroot, paths, request.cpu)


def _wanted(
    request: Request, plan: Plan, closure: Closure, known: Recipes, fetched: Sequence[Distribution]
) -> tuple[str, ...]:
    """Requirements for what is missing and not fetched already."""
    if request.supply is None:
        return ()
    missing = tuple(name for miss in (*plan.misses, *plan.absent) for name in miss.names)
    have = {each.name for each in fetched}
    present = tuple(o.name for o in closure.objects)
    return requirements(missing, present, known, request.supply.pins, have)
