"""Recipes as people read them, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any

from packager.errors import usage
from packager.recipes.catalogue import Recipes
from packager.recipes.devices import host_json, host_lines, target_json, target_lines
from packager.recipes.host import Host
from packager.recipes.layout import plain, rows, wrapped
from packager.recipes.target import Target
from packager.recipes.values import (
    EVERY_FEATURE,
    PROGRAM,
    Component,
    Family,
    Footprint,
    Framework,
    Loading,
    Model,
)

Described = Family | Component | Model | Framework | Target | Host


def overview(recipes: Recipes) -> str:
    """Every model, family, framework, target and host profile in a line each."""
    blocks = (
        ("Models", [(model.name, model.about) for model in recipes.models]),
        ("Libraries", [(family.name, _line(family)) for family in recipes.families]),
        ("Frameworks to compare with", [(each.name, each.title) for each in recipes.frameworks]),
        ("Targets", [(each.name, each.title) for each in recipes.targets]),
        ("Host profiles", [(each.name, each.title) for each in recipes.hosts]),
    )
    return "\n\n".join(f"{title}:\n" + "\n".join(rows(pairs)) for title, pairs in blocks)


def overview_json(recipes: Recipes) -> dict[str, Any]:
    """The same for programs: names, titles, and where each recipe stands."""
    return {
        "models": [plain(model) for model in recipes.models],
        "families": [
            {
                "name": family.name,
                "title": family.title,
                "group": family.group,
                "licence": family.licence,
                "provided_by": family.provided_by,
                "components": [component.id for component in family.components],
                "source": str(family.source),
            }
            for family in recipes.families
        ],
        "frameworks": _titles(recipes.frameworks),
        "targets": _titles(recipes.targets),
        "hosts": _titles(recipes.hosts),
    }


def _titles(values: Sequence[Framework] | Sequence[Target] | Sequence[Host]) -> list[dict[str, str]]:
    return [{"name": each.name, "title": each.title, "source": str(each.source)} for each in values]


def find(recipes: Recipes, name: str) -> tuple[Described, ...]:
    """What ``name`` means: a family, a model, a framework, a target, a host, a component's id, or a library's name;
    or a recipe's file, as plans cite it: "libraries/cudnn9.toml", or with a component "libraries/cudnn9.toml: adv".

    TensorFlow is a family and a framework, so there may be two. Raises DpackError (exit 2) with the near
    name where it means nothing.
    """
    single: tuple[Family | Model | Framework, ...] = (
        *recipes.families,
        *recipes.models,
        *recipes.frameworks,
    )
    devices: tuple[Target | Host, ...] = (*recipes.targets, *recipes.hosts)
    named: list[tuple[str, Described]] = [(each.name, each) for each in single]
    named += [(alias, device) for device in devices for alias in (device.name, *device.aliases)]
    found = tuple(each for known, each in named if known == name) or tuple(
        each for each in (*single, *devices) if str(each.source) == name
    )
    component = recipes.component_by_id(name) or _cited(recipes, name) or recipes.component(name)
    if not found and component is None:
        near = get_close_matches(name, [known for known, _ in named], n=1, cutoff=0.5)
        raise usage(
            f"no recipe is called {name!r}, and none knows a library of this name",
            f"did you mean {near[0]!r}?" if near else "",
            next="`dpack recipes list` shows the names",
        )
    return found or ((component,) if component else ())


def _cited(recipes: Recipes, name: str) -> Component | None:
    """The component that a plan cites as "libraries/cudnn9.toml: adv"."""
    file, _, part = name.rpartition(": ")
    family = next((each for each in recipes.families if str(each.source) == file), None)
    return recipes.component_by_id(f"{family.name}:{part}") if family else None


def details(recipes: Recipes, described: Described) -> str:
    """Everything that the recipe says."""
    match described:
        case Family():
            lines = _family(recipes, described)
        case Component():
            lines = _component(described)
        case Model():
            lines = _model(recipes, described)
        case Framework():
            lines = _framework(described)
        case Target():
            lines = target_lines(recipes, described)
        case Host():
            lines = host_lines(described)
    return "\n".join(lines)


def details_json(recipes: Recipes, described: Described) -> dict[str, Any]:
    """The same for programs; ``kind`` is family, component, model, framework, target or host."""
    match described:
        case Target():
            return target_json(recipes, described)
        case Host():
            return host_json(described)
        case _:
            table: dict[str, Any] = plain(described)
            return {"kind": type(described).__name__.lower()} | table


def _line(family: Family) -> str:
    parts = len(family.components)
    host = ", left to the host" if family.provided_by == "host" else ""
    return f"{family.title} ({parts} part{'s' if parts > 1 else ''}{host})"


def _family(recipes: Recipes, family: Family) -> Iterator[str]:
    licence = recipes.licence(family)
    allowed = [
        f"files {'may' if licence.modify else 'may not'} be modified",
        f"{'may' if licence.redistribute else 'may not, as far as this text goes,'} be passed on",
    ]
    packages = [f"{p.requirement} (CUDA {p.cuda})" if p.cuda else p.requirement for p in family.packages]
    yield f"{family.title} ({family.source})"
    yield from wrapped(family.about, "  ")
    yield from rows(
        [
            ("files", ", ".join(family.files)),
            ("comes in", ", ".join(packages) or "no distribution on the package index"),
            ("provided by", "the host, never bundled" if family.provided_by == "host" else "the bundle"),
            ("one release", "all parts must come from one" if family.one_version else "parts may differ"),
            ("licence", f"{licence.title}: {', '.join(allowed)} ({licence.source})"),
        ]
    )
    for component in family.components:
        yield ""
        yield from _component(component)


def _component(component: Component) -> Iterator[str]:
    yield f"{component.id}  {', '.join(component.files)}"
    yield from wrapped(component.about, "  ")
    facts = [
        ("serves", _serves(component.serves)),
        ("loaded", "; ".join(_loadings(component))),
        ("need", component.need),
        ("without", component.without),
        ("versions", _versions(component)),
        ("functions", ", ".join(component.symbols)),
        ("evidence", component.evidence),
    ]
    yield from rows([(key, value) for key, value in facts if value])


def _serves(serves: Sequence[str]) -> str:
    return "every model" if EVERY_FEATURE in serves else ", ".join(serves)


def _loadings(component: Component) -> Iterator[str]:
    for loading in component.loaded:
        by = "the program" if loading.by == PROGRAM else loading.by.removeprefix(f"{component.family}:")
        yield f"{'linked' if loading.how == 'needed' else 'opened'} by {by}{_asked(component, loading)}"


def _asked(component: Component, loading: Loading) -> str:
    names = "" if loading.names == component.files else f" as {', '.join(loading.names)}"
    exact = " (the one that it names)" if loading.exact else ""
    return names + exact + ("" if loading.serves == component.serves else f" for {_serves(loading.serves)}")


def _versions(component: Component) -> str:
    since = f"from {component.since}" if component.since else ""
    return f"{since} before {component.until}".strip() if component.until else since


def _model(recipes: Recipes, model: Model) -> Iterator[str]:
    sentences = {feature.name: feature.about for feature in recipes.features}
    yield f"{model.title} ({model.source})"
    yield from wrapped(model.about, "  ")
    yield "features:"
    yield from rows([(name, sentences[name]) for name in sorted(model.features)])
    yield "leaves out, where a program opens them:"
    yield from rows(
        [
            (component.id, f"for {_serves(component.serves)}")
            for family in recipes.families
            for component in family.components
            if not component.used_with(model.features)
            and any(loading.how == "dlopen" for loading in component.loaded)
        ]
    )


def _framework(framework: Framework) -> Iterator[str]:
    yield f"{framework.title} ({framework.source})"
    yield from wrapped(framework.about, "  ")
    for name, footprint in (("GPU", framework.gpu), ("CPU", framework.cpu)):
        if footprint is not None:
            yield from _footprint(name, footprint)


def _footprint(name: str, footprint: Footprint) -> Iterator[str]:
    yield f"{name}: {_size(footprint.bytes)}: {footprint.counts}"
    yield f"  {footprint.source}, {footprint.date}"
    yield from rows([(_size(part.bytes), part.title) for part in footprint.parts])


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
