"""All recipes together, and the questions asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeVar

from packager.errors import DpackError, usage
from packager.recipes.globs import Globs
from packager.recipes.host import Host
from packager.recipes.target import Target
from packager.recipes.values import Component, Family, Feature, Framework, Licence, Loading, Model, Package

_Named = TypeVar("_Named", Model, Family)
_Device = TypeVar("_Device", bound=Target | Host)


@dataclass(frozen=True, slots=True)
class _Index:
    """Everything that is looked up by name, built once."""

    components: Globs[Component]
    families: Globs[Family]
    symbols: Globs[Component]
    packages: Globs[Package]
    opened: dict[str, tuple[tuple[Component, Loading], ...]]
    by_id: dict[str, Component]


@dataclass(frozen=True, slots=True)
class Recipes:
    """Every recipe that is in force, each tuple sorted by name."""

    families: tuple[Family, ...]
    models: tuple[Model, ...]
    frameworks: tuple[Framework, ...]
    licences: tuple[Licence, ...]
    features: tuple[Feature, ...]
    targets: tuple[Target, ...] = ()
    hosts: tuple[Host, ...] = ()
    _index: _Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_index", _index(self.families))

    def component(self, name: str) -> Component | None:
        """The component that a library belongs to, by its soname, base name or path."""
        return next(iter(self._index.components.matches(_base(name))), None)

    def component_by_id(self, component_id: str) -> Component | None:
        """The component with an id such as ``cudnn9:adv``."""
        return self._index.by_id.get(component_id)

    def family_of(self, name: str) -> Family | None:
        """The family of a library, also of one that no component claims."""
        component = self.component(name)
        if component is not None:
            return self.family(component.family)
        return next(iter(self._index.families.matches(_base(name))), None)

    def family(self, name: str) -> Family:
        """The family with this name; DpackError where there is none."""
        return _named("family", name, self.families)

    def opened_by(self, component: Component) -> tuple[tuple[Component, Loading], ...]:
        """What this component opens with dlopen, and by which names."""
        return self._index.opened.get(component.id, ())

    def implementers(self, symbol: str) -> tuple[Component, ...]:
        """The components that implement an API function, one a family (cuDNN 8 and 9 share many)."""
        return self._index.symbols.matches(symbol)

    def model(self, name: str) -> Model:
        """The model type with this name; DpackError with the near names where there is none."""
        return _named("model", name, self.models)

    def target(self, name: str) -> Target:
        """The target with this name or alias; DpackError with the near names where there is none."""
        return _device("target", name, self.targets, self.hosts)

    def host(self, name: str) -> Host:
        """The host profile with this name or alias; DpackError with the near names where there is none."""
        return _device("host profile", name, self.hosts, self.targets)

    def packages_for(self, soname: str) -> tuple[Package, ...]:
        """The distributions that hold a library, in the recipe's order: of several for one CUDA major version the
        first is the one to take where nobody names another.
        """
        found = set(self._index.packages.matches(_base(soname)))
        return tuple(package for family in self.families for package in family.packages if package in found)

    def cuda_majors(self, names: Iterable[str]) -> frozenset[int]:
        """The CUDA major versions that library names imply: those of names that belong to one version alone,
        as libcublas.so.12 does and libcudnn.so.9 does not.
        """
        versions = ({package.cuda for package in self.packages_for(name)} for name in names)
        return frozenset(
            major for found in versions if len(found) == 1 for major in found if major is not None
        )

    def licence(self, family: Family) -> Licence:
        """The licence class of a family."""
        return next(licence for licence in self.licences if licence.name == family.licence)


def _base(name: str) -> str:
    return name.rpartition("/")[2]


def _named(kind: str, name: str, values: tuple[_Named, ...]) -> _Named:
    for value in values:
        if value.name == name:
            return value
    raise _unknown(kind, name, [value.name for value in values])


def _device(
    kind: str, name: str, values: tuple[_Device, ...], others: tuple[Target, ...] | tuple[Host, ...]
) -> _Device:
    for value in values:
        if name == value.name or name in value.aliases:
            return value
    for other in others:
        if name == other.name or name in other.aliases:
            it, option = (
                ("a target", "--target") if isinstance(other, Target) else ("a host profile", "--host")
            )
            raise usage(f"unknown {kind} {name!r}", f"{name} is {it}", next=f"name it with {option} {name}")
    known = [alias for each in values for alias in (each.name, *each.aliases)]
    near = get_close_matches(name.lower(), known, n=3, cutoff=0.5)
    raise usage(
        f"unknown {kind} {name!r}",
        f"did you mean {' or '.join(map(repr, near))}?" if near else "no recipe has this name",
        next="`dpack targets` lists the devices, `dpack targets --hosts` the systems",
    )


def _unknown(kind: str, name: str, known: list[str]) -> DpackError:
    near = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return usage(
        f"unknown {kind} {name!r}",
        f"did you mean {near[0]!r}?" if near else f"no recipe has this {kind}",
        next=f"the known ones are {', '.join(known)}; `dpack recipes list` tells more",
    )


def _index(families: tuple[Family, ...]) -> _Index:
    components = [component for family in families for component in family.components]
    return _Index(
        components=Globs(_patterns(components, "files")),
        families=Globs((glob, family) for family in families for glob in family.files),
        symbols=Globs(_patterns(components, "symbols")),
        packages=Globs(
            (glob, package) for family in families for package in family.packages for glob in package.sonames
        ),
        opened=_opened(components),
        by_id={component.id: component for component in components},
    )


def _patterns(components: Iterable[Component], which: str) -> Iterator[tuple[str, Component]]:
    for component in components:
        for glob in getattr(component, which):
            yield glob, component


def _opened(components: Iterable[Component]) -> dict[str, tuple[tuple[Component, Loading], ...]]:
    opened: dict[str, list[tuple[Component, Loading]]] = {}
    for component in components:
        for loading in component.loaded:
            if loading.how == "dlopen":
                opened.setdefault(loading.by, []).append((component, loading))
    return {opener: tuple(pairs) for opener, pairs in opened.items()}
