"""The flow goes one way, the map names every module, and each third-party library has its places. Read from the
source, imports inside functions included."""

import ast
import re
import sys
from pathlib import Path

import click
import pytest

import packager
from packager.cli import dpack

ROOT = Path(packager.__file__).parent
FILES = sorted(path for path in ROOT.rglob("*.py"))
MODULES = [path for path in FILES if path.stem != "__init__"]

RANK = {
    "errors": 0,
    "arch": 1,
    "place": 1,
    "worker": 1,
    "recipes": 2,
    "resolve": 3,
    "cuda": 4,
    "destination": 4,
    "request": 4,
    "plan": 5,
    "cautions": 6,
    "changes": 6,
    "gpu": 6,
    "jit": 6,
    "decide": 7,
    "source": 7,
    "emit": 7,
    "slicing": 8,
    "transform": 8,
    "oci": 8,
    "registry": 9,
    "ground": 10,
    "fit": 11,
    "analysis": 12,
    "account": 13,
    "contents": 14,
    "bundle": 15,
    "image": 15,
    "cli": 16,
}

HOME = {
    "click": {"cli"},
    "deflate": {"emit/compress.py"},
    "elftools": {"transform/verify.py"},
    "lief": {"transform/rpath.py"},
    "lz4": {"cuda"},
    "packaging": {"source"},
    "platformdirs": {"source/cache.py"},
    "pypi_simple": {"source"},
    "requests": {"source", "registry"},
    "rich": {"cli/progress.py"},
    "stringzilla": {"cuda/scan.py"},
    "urllib3": {"source"},
    "zstandard": {"emit/compress.py", "cuda", "oci"},
}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            yield node.module
            if node.module == "packager":
                yield from (f"packager.{alias.name}" for alias in node.names)


def room(path):
    relative = path.relative_to(ROOT)
    return relative.parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_imports_point_down_the_flow(path):
    if path == ROOT / "__init__.py":
        assert not [name for name in imports(path) if name.startswith("packager")]
        return
    for name in imports(path):
        target = name.split(".")[1] if name.startswith("packager.") else None
        if target in RANK and target != room(path):
            assert RANK[target] < RANK[room(path)], f"{room(path)} imports {name}"


def test_every_room_has_its_rank():
    assert {room(path) for path in FILES} - {"__init__"} == set(RANK)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_module_is_named_in_the_map(path):
    """In the lines of its room, or in the docstring of its package; a command's module is named as the command."""
    if room(path) == "cli" and path.stem in dpack.list_commands(click.Context(dpack)):
        return
    lines = re.search(rf"^{room(path)}/ .*(\n {{13}}.*)*", packager.__doc__, re.MULTILINE)
    here = ast.get_docstring(ast.parse((path.parent / "__init__.py").read_text()))
    assert re.search(rf"\b{path.stem}\b", f"{lines and lines[0]}\n{here}")


@pytest.mark.parametrize("library", HOME)
def test_each_library_is_imported_in_its_places(library):
    users = {
        path.relative_to(ROOT).as_posix()
        for path in FILES
        for name in imports(path)
        if name.split(".")[0] == library
    }
    assert users, f"{library} is not used: drop it from pyproject.toml"
    strangers = {
        user for user in users if user not in HOME[library] and user.split("/")[0] not in HOME[library]
    }
    assert not strangers


def test_nothing_else_is_imported():
    known = {"packager", *HOME, *sys.stdlib_module_names}
    assert not {name for path in FILES for name in imports(path) if name.split(".")[0] not in known}
