"""cuDNN's JIT distribution: may it serve a program, and what changes when it does.

The distribution holds three libraries: the shim, the graph library and the engines that write their kernels while
the program runs. cuDNN's own words for what they can do (guide to its frontend, version 9.20, "cuDNN JIT"): the
graph API alone, GPUs of compute capability 8.0 and above, none of the precompiled kernels. So a program may go out
with it when each cuDNN function that it and its libraries import is the graph library's.

Which graphs a program builds does not stand in its imports: one that only a precompiled engine runs fails with
"no engine" while it runs, and no proof from here sees that.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from packager.arch import Arch, Gpu
from packager.plan import Action, Decision
from packager.recipes import Component, Recipes, normalised
from packager.resolve.closure import Closure, Kind, Object
from packager.resolve.dlopen import rule_of
from packager.resolve.search import Found, How, Loader

FAMILY = "cudnn9"
LIBRARIES = ("libcudnn.so.9", "libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9")
"""The libraries of the distribution: the sub-libraries that the guide requires, and what is in
nvidia-cudnn-jit-cu12 and -cu13 9.27.0.42, x86_64 and aarch64."""

LEAST = Arch(8, 0)
"""The least compute capability, by the guide; for 7.5, cuDNN 9.27 finds no engine for a convolution's gradient."""

COMPILER = "nvrtc:nvrtc"
GRAPH = "cudnn9:graph"
_COMPILER_INSIDE = (
    "cuDNN 9.10 compiles nothing without it; the graph libraries of 9.27 and 9.28 hold a compiler and did not look "
    "for it"
)
_OWN_COMPILER = (9, 24)
"""The release from which on cuDNN compiles with what it holds itself, as its strings can tell: 9.27 and 9.28 were
seen to, 9.10 was seen not to, and the last part that strings tell apart between them came with 9.24."""

_FINDS_OUT = (9, 20)
"""The release from which on cuDNN finds out by itself that it is the JIT distribution (see :func:`choose`)."""

_TOLD = (
    "this cuDNN names no part that came with 9.21 or later, and one before 9.20 looks for the parts that "
    "--cudnn jit leaves out: run the program with CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY in its environment"
)
_LEFT_OUT = "--cudnn jit leaves it out: the JIT distribution does not hold it"
_DISTRIBUTION = re.compile(r"nvidia-cudnn-jit-cu\d+")
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Import:
    """A function that the object at ``path`` imports."""

    path: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Whether the JIT distribution may serve a program; where it may not, ``reasons`` says all that stops it,
    a sentence each. ``notes`` are sentences on what could not be checked.
    """

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def possible(self) -> bool:
        """True when nothing stands in the way."""
        return not self.reasons


def proof(
    closure: Closure, kept: Collection[str], imports: Sequence[Import], recipes: Recipes, gpus: Sequence[Gpu]
) -> Proof:
    """Hold what the objects ``kept`` (paths in ``closure``) do with cuDNN against what its JIT distribution has.

    ``imports`` are the cuDNN functions that they import. Without ``gpus`` the compute capability is not checked.
    """
    ours = [o for o in closure.objects if o.path in kept and not _of_cudnn(o.name, recipes)]
    reasons = (
        *(text for o in ours for text in _links(o, recipes)),
        *(text for o in ours for text in _opens(o, closure, recipes)),
        *(text for o in ours for text in _calls(o, imports, recipes)),
        *(f"{gpu.arch} is below {LEAST}" for gpu in gpus if gpu.arch.capability < LEAST.capability),
    )
    unchecked = (
        f"cuDNN's JIT distribution needs a GPU of compute capability {LEAST.major}.{LEAST.minor} or above"
    )
    return Proof(reasons, () if gpus else (unchecked,))


def holds(component: Component) -> bool:
    """Whether the JIT distribution has this component of cuDNN."""
    return any(fnmatchcase(name, pattern) for name in LIBRARIES for pattern in component.files) and (
        component.family == FAMILY
    )


def narrowed(recipes: Recipes) -> Recipes:
    """The recipes as they are with the JIT distribution: nothing opens what it does not hold, and NVRTC is good to
    have. (On a machine without a GPU, 9.27.0.42 for CUDA 12 planned and compiled all graphs of examples/mnist for
    compute capabilities 8.0, 8.6, 8.7, 8.9, 9.0, 10.0 and 12.0, that for CUDA 13 for 9.0 and 11.0; the loader's
    trace has no libnvrtc in it. 9.10.2.21 opened libnvrtc.so.12, and without it found no engine.)
    """
    families = (
        replace(family, components=tuple(_narrowed(c) for c in family.components))
        for family in recipes.families
    )
    return replace(recipes, families=tuple(families))


def _narrowed(component: Component) -> Component:
    if component.id == COMPILER:
        return replace(component, need="recommended", without=_COMPILER_INSIDE)
    if component.family == FAMILY and not holds(component):
        return replace(component, loaded=())
    return component


def lacks_compiler(closure: Closure, recipes: Recipes) -> bool:
    """Whether the cuDNN that was found needs NVRTC, by its age, and ``recipes`` do not say so yet."""
    release = _release(closure, recipes)
    compiler = recipes.component_by_id(COMPILER)
    return release is not None and release < _OWN_COMPILER and not (compiler and compiler.need == "required")


def with_compiler(recipes: Recipes, full: Recipes) -> Recipes:
    """The narrowed ``recipes`` for a cuDNN that compiles nothing without NVRTC: it is required, as in the ``full``
    ones, and by the names under which its distributions have it, so that it can be fetched.
    """
    family, compiler = recipes.family(COMPILER.partition(":")[0]), full.component_by_id(COMPILER)
    if compiler is None:
        return recipes
    sonames = (soname for package in family.packages for soname in package.sonames)
    names = tuple(s for s in sonames if any(fnmatchcase(s, pattern) for pattern in compiler.files))
    loaded = tuple(
        replace(each, names=names) if each.by == GRAPH and names else each for each in compiler.loaded
    )
    required = replace(compiler, loaded=loaded)
    components = tuple(required if c.id == COMPILER else c for c in family.components)
    changed = replace(family, components=components)
    return replace(recipes, families=tuple(changed if f is family else f for f in recipes.families))


def _release(closure: Closure, recipes: Recipes) -> tuple[int, ...] | None:
    """The newest release of cuDNN that the strings of its libraries tell: that of the last part that they name.
    () where they name only parts that all releases have, None where there is no cuDNN.
    """
    ours = {o.path: recipes.component(o.name) for o in closure.objects if _of_cudnn(o.name, recipes)}
    if not any(c is not None and c.id == GRAPH for c in ours.values()):
        return None
    asked = [(m.source, m.name) for m in closure.mentions] + [(e.source, e.name) for e in closure.edges]
    stems = {_stem(name) for path, name in asked if path in ours}
    return max(
        (
            tuple(int(number) for number in c.since.split("."))
            for c in recipes.family(FAMILY).components
            if c.since and any(fnmatchcase(stem, _stem(file)) for stem in stems for file in c.files)
        ),
        default=(),
    )


def _stem(name: str) -> str:
    return name.partition(".so")[0]


def told(closure: Closure, recipes: Recipes) -> tuple[str, ...]:
    """What must be said of the cuDNN that was found: the variable that an old one wants, a sentence."""
    release = _release(closure, recipes)
    return (_TOLD,) if release is not None and release < _FINDS_OUT else ()


def left_out(closure: Closure, recipes: Recipes, loader: Loader) -> Iterator[Decision]:
    """The parts of cuDNN that stand beside its graph library and that the JIT distribution does not hold."""
    graph = next((o for o in closure.objects if (c := recipes.component(o.name)) and c.id == GRAPH), None)
    if graph is None:
        return
    directory = posixpath.dirname(graph.path)
    seen = {loader.sysroot.identity(o.path) for o in closure.objects}
    for name in sorted(loader.sysroot.names(directory)):
        path, component = posixpath.join(directory, name), recipes.component(name)
        if component is None or component.family != FAMILY or loader.sysroot.identity(path) in seen:
            continue
        answer = loader.take(path, How.BESIDE, graph.path)
        if isinstance(answer, Found):
            seen.add(loader.sysroot.identity(path))
            yield _dropped(answer, component, recipes, loader)


def _dropped(found: Found, component: Component, recipes: Recipes, loader: Loader) -> Decision:
    inside = loader.sysroot
    real, host = inside.real(found.path) or found.path, inside.host(found.path) or found.path
    o = Object(found.path, real, host, found.elf, found.how, found.of)
    rule, family = rule_of(recipes, component), recipes.family(component.family)
    return Decision(Action.DROP, o.name, _LEFT_OUT, rule, o.elf.size, o, component, family)


def choose(pins: Sequence[str], recipes: Recipes) -> tuple[str, ...]:
    """``pins`` and those that choose the JIT distributions, one for each version of CUDA.

    A pin that names another distribution of cuDNN stays the choice for its version of CUDA: the three libraries
    are taken from there. (Versions from 9.20 on find out by themselves that the others are not there; earlier ones
    want CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY in the environment.)
    """
    packages = recipes.family(FAMILY).packages
    pinned = {_distribution(pin) for pin in pins}
    settled = {p.cuda for p in packages if p.name in pinned}
    added = (p for p in packages if _DISTRIBUTION.fullmatch(p.name) and p.cuda not in settled)
    return (*pins, *(p.requirement for p in added))


def _distribution(pin: str) -> str:
    """The normalised name in a requirement string (PEP 508, PEP 503)."""
    name = re.match(r"\s*([A-Za-z0-9._-]*[A-Za-z0-9])", pin)
    return normalised(name[1]) if name else ""


def _of_cudnn(name: str, recipes: Recipes) -> bool:
    family = recipes.family_of(name)
    return family is not None and family.name == FAMILY


def _links(o: Object, recipes: Recipes) -> Iterator[str]:
    for name in o.elf.needed:
        component = recipes.component(name)
        if _of_cudnn(name, recipes) and not (component and holds(component)):
            yield f"{o.name} links {name}, which the JIT distribution does not hold"


def _opens(o: Object, closure: Closure, recipes: Recipes) -> Iterator[str]:
    asked = [(e.source, e.name) for e in closure.edges if e.kind is Kind.DLOPEN]
    asked += [
        (m.source, name) for m in closure.misses if m.kind is Kind.DLOPEN for name in (m.name, *m.names)
    ]
    asked += [(m.source, m.name) for m in closure.mentions]
    names = sorted({name for path, name in asked if path == o.path and _of_cudnn(name, recipes)})
    if names:
        yield (
            f"{o.name} opens {', '.join(names)} while it runs, so its imports do not tell which functions it calls"
        )


def _calls(o: Object, imports: Sequence[Import], recipes: Recipes) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for each in imports:
        if each.path == o.path:
            owners = [c for c in recipes.implementers(each.symbol) if c.family == FAMILY]
            if not any(holds(c) for c in owners):
                library = owners[0].files[0].rstrip("*") if owners else ""
                found.setdefault(library, []).append(each.symbol)
    for library, symbols in found.items():
        where = f"which {library} implements" if library else "which no recipe knows"
        yield f"{o.name} imports {_listed(sorted(set(symbols)))}, {where}"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {more} more"
