"""The recipes beside NVIDIA's real libraries: names, functions, and the strings that dlopen gets."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from packager.recipes import Component, Recipes, load

pytestmark = pytest.mark.real

Libraries = list[tuple[Component, Path]]


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return load()


@pytest.fixture(scope="module")
def libraries(cuda12_libs: dict[str, Path], recipes: Recipes) -> Libraries:
    # The compiler's own library comes with the headers, and no program loads it.
    shared = {name: path for name, path in cuda12_libs.items() if ".so" in name and name != "libnvvm.so"}
    found = [(recipes.component(name), path) for name, path in shared.items()]
    assert [path.name for component, path in found if component is None] == []
    return [(component, path) for component, path in found if component]


@pytest.fixture(scope="module")
def exports(libraries: Libraries) -> dict[str, set[str]]:
    return {component.id: set(_exported(path)) for component, path in libraries}


def _exported(path: Path) -> Iterator[str]:
    with path.open("rb") as stream:
        symbols = ELFFile(stream).get_section_by_name(".dynsym")
        for symbol in symbols.iter_symbols():
            if symbol["st_shndx"] != "SHN_UNDEF":
                yield symbol.name


def test_files_are_named_by_their_soname(libraries: Libraries) -> None:
    for component, path in libraries:
        with path.open("rb") as stream:
            dynamic = ELFFile(stream).get_section_by_name(".dynamic")
            assert isinstance(dynamic, DynamicSection)
            sonames = [tag.soname for tag in dynamic.iter_tags("DT_SONAME")]
        assert sonames == [path.name], component.id


def test_each_pattern_matches_a_function_of_its_component(
    libraries: Libraries, exports: dict[str, set[str]]
) -> None:
    for component, _ in libraries:
        for pattern in component.symbols:
            assert any(fnmatchcase(name, pattern) for name in exports[component.id]), (component.id, pattern)


def test_no_pattern_matches_a_function_of_another_component(
    libraries: Libraries, exports: dict[str, set[str]]
) -> None:
    for component, _ in libraries:
        for other, _ in libraries:
            # cuDNN's shim exports everything and passes it on.
            if other.id == component.id or other.family != component.family or other.name == "shim":
                continue
            shared = {
                name
                for name in exports[other.id]
                if any(fnmatchcase(name, pattern) for pattern in component.symbols)
            }
            assert not shared, (component.id, other.id)


@pytest.mark.parametrize("part", ["cnn", "adv"])
def test_every_function_of_a_part_that_a_model_may_leave_out_is_covered(
    part: str, exports: dict[str, set[str]], recipes: Recipes
) -> None:
    functions = {name for name in exports[f"cudnn9:{part}"] if name.startswith("cudnn") and name[5].isupper()}
    assert functions
    for name in functions:
        assert f"cudnn9:{part}" in {component.id for component in recipes.implementers(name)}, name


def test_names_that_are_opened_stand_in_the_one_that_opens(libraries: Libraries, recipes: Recipes) -> None:
    by_id = {component.id: path for component, path in libraries}
    checked = 0
    for component, path in libraries:
        content = path.read_bytes() if path.stat().st_size < 10_000_000 else b""
        for opened, loading in recipes.opened_by(component) if content else ():
            if opened.id in by_id and opened.family == component.family:
                # The shim and the graph library add the version themselves.
                stem = by_id[opened.id].name.partition(".so")[0]
                name = by_id[opened.id].name if loading.exact else f"{stem}.so"
                assert name.encode() in content, (component.id, opened.id)
                checked += 1
    assert checked >= 7
