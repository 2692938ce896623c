"""Recipes as people read them, and as JSON."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from packager.errors import usage
from packager.recipes.catalogue import Recipes
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

Described = Family | Component | Model | Framework

_WIDTH = 100


def overview(recipes: Recipes) -> str:
    """Every model, family and framework in a line each."""
    blocks = (
        ("Models", [(model.name, model.about) for model in recipes.models]),
        ("Libraries", [(family.name, _line(family)) for family in recipes.families]),
        ("Frameworks to compare with", [(each.name, each.title) for each in recipes.frameworks]),
    )
    return "\n\n".join(f"{title}:\n" + "\n".join(_rows(rows)) for title, rows in blocks)


def overview_json(recipes: Recipes) -> dict[str, Any]:
    """The same for programs: names, titles, and where each recipe stands."""
    return {
        "models": [_plain(model) for model in recipes.models],
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
        "frameworks": [
            {"name": each.name, "title": each.title, "source": str(each.source)}
            for each in recipes.frameworks
        ],
    }


def find(recipes: Recipes, name: str) -> tuple[Described, ...]:
    """What ``name`` means: a family, a model, a framework, a component's id, or a library's name.

    TensorFlow is a family and a framework, so there may be two. Raises DpackError (exit 2) with the near
    name where it means nothing.
    """
    named: tuple[Family | Model | Framework, ...] = (
        *recipes.families,
        *recipes.models,
        *recipes.frameworks,
    )
    found = tuple(each for each in named if each.name == name)
    component = recipes.component_by_id(name) or recipes.component(name)
    if not found and component is None:
        near = get_close_matches(name, [each.name for each in named], n=1, cutoff=0.5)
        raise usage(
            f"no recipe is called {name!r}, and none knows a library of this name",
            f"did you mean {near[0]!r}?" if near else "",
            next="`dpack recipes list` shows the names",
        )
    return found or ((component,) if component else ())


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
    return "\n".join(lines)


def details_json(described: Described) -> dict[str, Any]:
    """The same for programs; ``kind`` is family, component, model or framework."""
    plain: dict[str, Any] = _plain(described)
    return {"kind": type(described).__name__.lower()} | plain


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
    yield from _wrapped(family.about, "  ")
    yield from _rows(
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
    yield from _wrapped(component.about, "  ")
    rows = [
        ("serves", _serves(component.serves)),
        ("loaded", "; ".join(_loadings(component))),
        ("need", component.need),
        ("without", component.without),
        ("versions", _versions(component)),
        ("functions", ", ".join(component.symbols)),
        ("evidence", component.evidence),
    ]
    yield from _rows([(key, value) for key, value in rows if value])


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
    yield from _wrapped(model.about, "  ")
    yield "features:"
    yield from _rows([(name, sentences[name]) for name in sorted(model.features)])
    yield "leaves out, where a program opens them:"
    yield from _rows(
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
    yield from _wrapped(framework.about, "  ")
    for name, footprint in (("GPU", framework.gpu), ("CPU", framework.cpu)):
        if footprint is not None:
            yield from _footprint(name, footprint)


def _footprint(name: str, footprint: Footprint) -> Iterator[str]:
    yield f"{name}: {_size(footprint.bytes)}: {footprint.counts}"
    yield f"  {footprint.source}, {footprint.date}"
    yield from _rows([(_size(part.bytes), part.title) for part in footprint.parts])


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Two columns, the second wrapped beside the first."""
    pairs = list(rows)
    width = max((len(key) for key, _ in pairs), default=0)
    return [
        line
        for key, value in pairs
        for line in textwrap.wrap(
            value,
            _WIDTH,
            initial_indent=f"  {key:<{width}}  ",
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    ]


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _plain(value: object) -> Any:
    """A value as JSON has it: tables for dataclasses, sorted arrays for sets, text for paths."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value
