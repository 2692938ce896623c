"""API symbols that objects import: evidence of which components a program calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from packager.recipes import Recipes
from packager.resolve.closure import Object, Use
from packager.resolve.elf import ElfFile
from packager.resolve.symbols import symbols


def uses(objects: Sequence[Object], recipes: Recipes) -> Iterator[Use]:
    """The imports of ``objects`` that a recipe says only one component implements, one a component and object.

    Objects of the component's own family are left out: cuDNN's parts import each other's symbols.
    """
    families = {f.name for f in recipes.families if any(c.symbols for c in f.components)}
    for o in objects:
        own = recipes.family_of(o.name)
        linked = {f.name for name in o.elf.needed if (f := recipes.family_of(name))} & families
        if linked and not (own is not None and own.name in families):
            yield from _uses(o, linked, recipes)


def imported(objects: Sequence[Object], prefix: str) -> Iterator[tuple[str, str]]:
    """Path and symbol of each import of ``objects`` whose name begins with ``prefix``."""
    for o in objects:
        with ElfFile(o.host, o.path) as file:
            found = [s.name for s in symbols(file) if not s.defined and s.name.startswith(prefix)]
        yield from ((o.path, name) for name in found)


def _uses(o: Object, families: set[str], recipes: Recipes) -> Iterator[Use]:
    seen = set()
    with ElfFile(o.host, o.path) as file:
        for symbol in symbols(file):
            for component in () if symbol.defined else recipes.implementers(symbol.name):
                if component.family in families and component.id not in seen:
                    seen.add(component.id)
                    yield Use(o.path, symbol.name, component)
