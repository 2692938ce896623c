"""What an object opens while it runs, from three kinds of evidence.

- A recipe: measured on the real library, and the only one that knows what the opening is for.
- The object's own ``.note.dlopen`` (UAPI.12, "ELF dlopen metadata"): JSON that names alternatives and a priority.
- Names of shared objects that stand as strings in an object that imports dlopen. They are evidence for people:
  a string does not say whether, when or from where the name is opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from packager.recipes import Component, Recipes
from packager.recipes.globs import is_glob
from packager.resolve.closure import Evidence, Mention, Need, Object, Source
from packager.resolve.elf import ElfError, ElfFile
from packager.resolve.strings import library_names
from packager.resolve.symbols import imports_one_of

_NOTE_OWNER, _NOTE_TYPE = "FDO", 0x407C0C0A
_OPENERS = {"dlopen", "dlmopen"}


Strings = Callable[[Object], tuple[str, ...]]
"""Gives the names of shared objects in an object; the walk asks :func:`strings_of` once an object."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Something that an object opens: any of ``names`` will do (globs are matched beside the opener).

    ``component`` is the recipe's, where one knows it. Names that the note gives stand in its order, and the
    first that is found is taken; of a recipe's names each that is found is taken. ``called`` is what the object
    itself calls it, where it was looked for under another name: the path that the user gave.
    """

    names: tuple[str, ...]
    evidence: Evidence
    component: Component | None = None
    called: str = ""


def wanted(object: Object, recipes: Recipes, strings: Strings) -> tuple[Wanted, ...]:  # noqa: A002 - the noun of the design
    """What ``object`` opens, by recipe and by its own note."""
    return (*_by_recipe(object, recipes, strings), *_by_note(object))


def strings_of(object: Object) -> tuple[str, ...]:  # noqa: A002
    """The names of shared objects that stand as strings in ``object``; reads all of its read-only data."""
    with ElfFile(object.host, object.path) as file:
        return library_names(file)


def rule_of(recipes: Recipes, component: Component) -> str:
    """The recipe's file and component, as reasons name them: "libraries/cudnn9.toml: adv"."""
    return f"{recipes.family(component.family).source}: {component.name}"


def _by_recipe(object: Object, recipes: Recipes, strings: Strings) -> Iterator[Wanted]:  # noqa: A002
    opener = recipes.component(object.name)
    if opener is None:
        return
    for component, loading in recipes.opened_by(opener):
        names = loading.names or component.files
        if loading.exact:
            names = (
                tuple(n for n in strings(object) if any(fnmatchcase(n, pattern) for pattern in names))
                or names
            )
        rule, need = rule_of(recipes, component), Need(component.need)
        evidence = Evidence(Source.RECIPE, rule, need, loading.serves)
        yield Wanted(names, evidence, component)


def _by_note(object: Object) -> Iterator[Wanted]:  # noqa: A002
    with ElfFile(object.host, object.path) as file:
        notes = [
            content for owner, kind, content in file.notes() if (owner, kind) == (_NOTE_OWNER, _NOTE_TYPE)
        ]
    for content in notes:
        for row in _rows(content, object):
            names = row.get("soname")
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or not names:
                raise _note_error(object, "an entry without sonames")
            need = _PRIORITIES.get(str(row.get("priority", "recommended")), Need.RECOMMENDED)
            yield Wanted(tuple(names), Evidence(Source.NOTE, str(row.get("feature", "")), need))


_PRIORITIES = {
    "required": Need.REQUIRED,
    "recommended": Need.RECOMMENDED,
    "suggested": Need.OPTIONAL,
}


def _rows(content: bytes, object: Object) -> list[dict[str, object]]:  # noqa: A002
    try:
        rows = json.loads(content.rstrip(b"\0").decode())
    except (ValueError, RecursionError) as error:
        raise _note_error(object, f"not JSON ({error})") from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _note_error(object, "not a list of entries")
    return rows


def _note_error(object: Object, why: str) -> ElfError:  # noqa: A002
    return ElfError(f"cannot read the .note.dlopen of {object.path}", why, next="see UAPI.12 for its format")


def mentions(object: Object, recipes: Recipes, strings: Strings) -> tuple[Mention, ...]:  # noqa: A002
    """The names of shared objects in ``object``, if it imports dlopen at all; its own name left out."""
    with ElfFile(object.host, object.path) as file:
        if not imports_one_of(file, _OPENERS):
            return ()
    return tuple(
        Mention(object.path, name, _known(name, recipes))
        for name in strings(object)
        if _stem(name) != _stem(object.name)
    )


def _known(name: str, recipes: Recipes) -> str:
    """The rule of the component that ``name`` means, whatever version or format follows its ".so"."""
    stem = _stem(name)
    for component in (c for family in recipes.families for c in family.components):
        if any(_stem_fits(stem, _stem(glob)) for glob in component.files):
            return rule_of(recipes, component)
    return ""


def _stem_fits(stem: str, glob: str) -> bool:
    """Fnmatchcase compiles each pattern that it meets, and most here have no wildcard before the ".so"."""
    return fnmatchcase(stem, glob) if is_glob(glob) else stem == glob


def _stem(name: str) -> str:
    """The stem: "libnvrtc" of "libnvrtc.so.%d": what is left when versions and formats go."""
    return name.rpartition("/")[2].partition(".so")[0]
