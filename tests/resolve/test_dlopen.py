"""dlopen edges from an object's own .note.dlopen, and the names that it merely mentions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from builders import table
from builders.elf import Tiny, write_tree
from builders.oracle import NO_RECIPES

from packager.errors import DpackError
from packager.recipes import load
from packager.resolve.closure import Closure, Kind, Need, Source
from packager.resolve.elf import read_elf
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve

OWNER, TYPE = "FDO", 0x407C0C0A


def noted(*rows: object, **fields: object) -> Tiny:
    """A program with ``rows`` in its .note.dlopen, which finds libraries beside itself."""
    program = Tiny(rpath="$ORIGIN", notes=((OWNER, TYPE, json.dumps(list(rows)).encode() + b"\0"),))
    return program.with_(**fields)


def closure_of(program: Tiny, root: Path, *libraries: str) -> Closure:
    """The closure of ``program`` with ``libraries`` beside it, in a root of their own."""
    write_tree(root, [("/app/main", program), *((f"/app/{name}", Tiny(soname=name)) for name in libraries)])
    sysroot = Sysroot.at(root)
    return resolve("/app/main", Loader.of(read_elf(root / "app/main"), sysroot), NO_RECIPES)


PRIORITIES = (
    ({"priority": "required"}, Need.REQUIRED),
    ({"priority": "recommended"}, Need.RECOMMENDED),
    ({"priority": "suggested"}, Need.OPTIONAL),
    ({}, Need.RECOMMENDED),
    ({"priority": "a word of the future"}, Need.RECOMMENDED),
)


@pytest.mark.parametrize(("fields", "need"), PRIORITIES)
@pytest.mark.parametrize("there", [True, False], ids=["there", "not there"])
def test_a_note_makes_an_edge_with_its_reason(fields, need, there, tmp_path):
    row = {"soname": ["libx.so.1"], "feature": "crypto", "description": "signs things", **fields}
    closure = closure_of(noted(row), tmp_path, *(["libx.so.1"] if there else []))
    (edge,) = closure.edges
    assert (edge.kind, edge.name, edge.target) == (
        Kind.DLOPEN,
        "libx.so.1",
        "/app/libx.so.1" if there else "",
    )
    evidence = edge.evidence
    assert (evidence.source, evidence.rule, evidence.need) == (Source.NOTE, "crypto", need)
    assert [miss.name for miss in closure.misses] == ([] if there else ["libx.so.1"])


@pytest.mark.parametrize(
    ("there", "taken"),
    [(("libx.so.2", "libx.so.1"), "libx.so.2"), (("libx.so.1",), "libx.so.1"), ((), "")],
)
def test_of_alternatives_the_first_that_is_there_is_taken(there, taken, tmp_path):
    closure = closure_of(noted({"soname": ["libx.so.2", "libx.so.1"]}), tmp_path, *there)
    (edge,) = closure.edges
    assert edge.target == (f"/app/{taken}" if taken else "")
    assert [o.name for o in closure.objects[1:]] == ([taken] if taken else [])
    assert [miss.names for miss in closure.misses] == ([] if taken else [("libx.so.2", "libx.so.1")])


def test_what_an_opened_library_needs_and_opens_is_followed(tmp_path):
    opened = noted({"soname": ["libz.so"]}, soname="libx.so", needed=("liby.so",))
    write_tree(tmp_path, [("/app/libx.so", opened)])
    closure = closure_of(noted({"soname": ["libx.so"]}), tmp_path, "liby.so", "libz.so")
    assert [o.name for o in closure.objects] == ["main", "libx.so", "liby.so", "libz.so"]
    rows = [(edge.source, edge.name, edge.kind) for edge in closure.edges]
    assert rows == [
        ("/app/libx.so", "liby.so", Kind.NEEDED),
        ("/app/main", "libx.so", Kind.DLOPEN),
        ("/app/libx.so", "libz.so", Kind.DLOPEN),
    ]


def test_a_library_that_is_opened_and_needed_is_one_object_with_two_edges(tmp_path):
    closure = closure_of(noted({"soname": ["libx.so"]}, needed=("libx.so",)), tmp_path, "libx.so")
    assert [o.name for o in closure.objects] == ["main", "libx.so"]
    assert [edge.kind for edge in closure.edges] == [Kind.NEEDED, Kind.DLOPEN]


def test_several_notes_and_notes_of_others(tmp_path):
    notes = (
        ("GNU", 3, b"build id"),
        (OWNER, TYPE, b'[{"soname": ["libx.so"]}, {"soname": ["liby.so"]}]'),
        (OWNER, 0xCAFE1A7E, b'{"type": "deb"}'),
        ("ELSE", TYPE, b"not ours"),
        (OWNER, TYPE, b'[{"soname": ["libz.so"]}]\0'),
    )
    closure = closure_of(Tiny(rpath="$ORIGIN", notes=notes), tmp_path, "libx.so", "liby.so", "libz.so")
    assert [edge.name for edge in closure.edges] == ["libx.so", "liby.so", "libz.so"]


DAMAGED = (
    ("not JSON", b"[{", "not JSON"),
    ("not UTF-8", b'["\xff"]', "not JSON"),
    ("not a list", b'{"soname": ["libx.so"]}', "not a list of entries"),
    ("a list of names", b'["libx.so"]', "not a list of entries"),
    ("no sonames", b'[{"feature": "x"}]', "an entry without sonames"),
    ("an empty list of sonames", b'[{"soname": []}]', "an entry without sonames"),
    ("a soname that is no list", b'[{"soname": "libx.so"}]', "an entry without sonames"),
    ("a soname that is no text", b'[{"soname": [1]}]', "an entry without sonames"),
    ("brackets without end", b"[" * 100_000, "not JSON"),
)


@table("content why", DAMAGED)
def test_a_damaged_note_is_told(content, why, tmp_path):
    with pytest.raises(DpackError) as caught:
        closure_of(Tiny(notes=((OWNER, TYPE, content),)), tmp_path)
    assert caught.value.what == "cannot read the .note.dlopen of /app/main"
    assert why in caught.value.why


STRINGS = ("x", "libcuda.so.1", "libnvrtc.so.%d", "prose about libx.so, and more")


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"imports": ("dlopen",)}, ("libcuda.so.1", "libnvrtc.so.%d")),
        ({"imports": ("dlmopen",)}, ("libcuda.so.1", "libnvrtc.so.%d")),
        ({"imports": ("puts",)}, ()),
        ({"exports": ("dlopen",)}, ()),
        ({}, ()),
        ({"imports": ("dlopen",), "needed": ("libcuda.so.1",)}, ("libnvrtc.so.%d",)),
        ({"imports": ("dlopen",), "soname": "libnvrtc.so.12"}, ("libcuda.so.1",)),
    ],
    ids=["dlopen", "dlmopen", "neither", "its own dlopen", "no symbols", "needed anyway", "its own name"],
)
def test_names_are_mentioned_only_where_dlopen_is_imported(fields, names, tmp_path):
    closure = closure_of(
        Tiny(rodata=STRINGS, sections=True, rpath="$ORIGIN", **fields), tmp_path, "libcuda.so.1"
    )
    assert tuple(mention.name for mention in closure.mentions) == names
    assert {mention.source for mention in closure.mentions} <= {"/app/main"}


@pytest.mark.parametrize("glob", ["libfoo?.so.*", "libfoo[0-9].so", "libfoo*.so", "libfoo1.so.2"])
def test_a_mention_of_what_a_recipe_knows_names_it(glob, tmp_path):
    family = load(devices=False).family("nccl")
    known = replace(family, components=(replace(family.components[0], files=(glob,)),))
    program = Tiny(imports=("dlopen",), rodata=("libfoo1.so", "libfoo.so"))
    write_tree(tmp_path, [("/app/main", program)])
    loader = Loader.of(read_elf(tmp_path / "app/main"), Sysroot.at(tmp_path))
    rules = {
        m.name: m.rule for m in resolve("/app/main", loader, replace(NO_RECIPES, families=(known,))).mentions
    }
    assert rules["libfoo1.so"] == f"libraries/nccl.toml: {known.components[0].name}"
    assert bool(rules["libfoo.so"]) is (glob == "libfoo*.so")


def test_a_mention_is_no_reason_to_load(tmp_path):
    closure = closure_of(Tiny(rodata=STRINGS, imports=("dlopen",), rpath="$ORIGIN"), tmp_path, "libcuda.so.1")
    assert [o.name for o in closure.objects] == ["main"]
    assert closure.edges == closure.misses == ()
