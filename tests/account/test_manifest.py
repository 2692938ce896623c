from __future__ import annotations

import copy
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mnist_plan as sample
import pytest
from builders.manifest_schema import PATH, schema
from jsonschema import Draft202012Validator

from packager.account.manifest import SCHEMA_ID, manifest, to_json, with_archive
from packager.arch import Gpu
from packager.destination import Destination
from packager.emit import Entry
from packager.errors import DpackError
from packager.recipes import load
from packager.resolve.closure import Evidence, Kind, Miss, Need, Source


def made() -> dict[str, Any]:
    plan = sample.mnist()
    miss = Miss("liba.so", sample.PROGRAM, Kind.DLOPEN, Evidence(Source.NOTE, "", Need.REQUIRED), ())
    marked = replace(sample.LIBC.elf, path=sample.DIGITS.path, soname="libdigits.so.1", size=30_000)
    decisions = tuple(
        replace(d, object=replace(sample.DIGITS, elf=marked)) if d.name == "libdigits.so.1" else d
        for d in plan.decisions
    )
    plan = replace(plan, misses=(miss,), decisions=decisions)
    return manifest(plan, sample.entries(plan), sample.contents(plan))


def packed() -> dict[str, Any]:
    return with_archive(made(), "tar.zst", 60_000_000, "0" * 64)


def row(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


@functools.cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(schema())


def errors(value: object) -> list[str]:
    return [error.message for error in validator().iter_errors(value)]


def test_the_schema_is_one_and_the_manifest_obeys_it():
    Draft202012Validator.check_schema(schema())
    assert schema()["$id"] == SCHEMA_ID
    assert errors(made()) == []
    assert errors(packed()) == []
    assert errors(with_archive(made(), "dir", 1, None)) == []


def parts(of: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object schema in the schema, with where it stands."""
    if isinstance(of.get("properties"), dict):
        yield at, of
    for key, value in of.items():
        if isinstance(value, dict):
            yield from parts(value, f"{at}/{key}")


def test_every_property_is_described_and_no_other_is_allowed():
    found = dict(parts(schema()))
    assert len(found) > 10
    for at, part in found.items():
        assert part["additionalProperties"] is False, at
        for name, value in part["properties"].items():
            assert value.get("description"), f"{at}/{name}"


def dicts(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The place of every object in a manifest; the map of groups has free keys and does not count."""
    if isinstance(value, dict):
        if at != ("totals", "by_group"):
            yield at
        for key, inner in value.items():
            yield from dicts(inner, (*at, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from dicts(inner, (*at, i))


def at(value: Any, place: tuple[str | int, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


PACKED = packed()
LAYER = {"name": "the program", "digest": f"sha256:{'1' * 64}", "diff_id": f"sha256:{'2' * 64}", "bytes": 7}
PACKED["image"] = {
    **dict.fromkeys(("digest", "config", "account"), f"sha256:{'3' * 64}"),
    "base": [f"sha256:{'4' * 64}"],
    "layers": [LAYER],
}
PACKED["links"] = [{"path": "lib/libcudart.so", "target": "libcudart.so.12"}]
SHAPES = {tuple(sorted(at(PACKED, place))): place for place in dicts(PACKED)}
"""One place for each kind of object: the set of its keys tells the kind."""


def test_the_sample_shows_every_object_of_the_schema():
    assert {tuple(sorted(part["properties"])) for _, part in parts(schema())} == set(SHAPES)


OPTIONAL = {
    *(((), key) for key in ("archive", "image")),
    *((("image",), key) for key in ("digest", "config", "account", "base")),
}
"""What only the copy outside of the bundle tells, and of that, what only an image has."""


@pytest.mark.parametrize(("place", "key"), [(place, key) for keys, place in SHAPES.items() for key in keys])
def test_without_any_of_its_keys_it_is_no_manifest(place, key):
    broken = copy.deepcopy(PACKED)
    del at(broken, place)[key]
    assert bool(errors(broken)) is ((place, key) not in OPTIONAL)


@pytest.mark.parametrize("place", SHAPES.values())
def test_with_any_other_key_it_is_no_manifest(place):
    broken = copy.deepcopy(PACKED)
    at(broken, place)["unknown"] = 1
    assert errors(broken)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), 2),
        (("$schema",), "urn:other"),
        (("totals", "bytes"), -1),
        (("totals", "bytes"), 1.5),
        (("files", 0, "sha256"), "ABC"),
        (("files", 0, "path"), "/bin/mnist"),
        (("files", 0, "action"), "drop"),
        (("files", 0, "origin", "kind"), "snap"),
        (("host", "glibc", "version"), "GLIBC_2.34"),
        (("host", "glibc", "wanted_by"), []),
        (("files",), []),
        (("request", "gpus"), ["8.6"]),
        (("request", "target"), ""),
        (("request", "base"), "oci:/home/ann/base"),
    ],
)
def test_a_wrong_value_is_no_manifest(place, value):
    broken = copy.deepcopy(PACKED)
    at(broken, place[:-1])[place[-1]] = value
    assert errors(broken)


def test_a_kept_library_has_its_whole_story():
    assert row(made()["files"], "libcudnn_graph.so.9") == {
        "path": "lib/libcudnn_graph.so.9",
        "kind": "library",
        "name": "libcudnn_graph.so.9",
        "names": [],
        "soname": "libcudnn_graph.so.9",
        "bytes": 4_400_000,
        "bytes_original": 4_400_000,
        "sha256": hashlib.sha256(b"lib/libcudnn_graph.so.9").hexdigest(),
        "origin": {
            "kind": "wheel",
            "name": "nvidia-all-cu12",
            "version": "12.9",
            "path": "nvidia/lib/libcudnn_graph.so.9",
        },
        "component": "cudnn9:graph",
        "group": "cuDNN",
        "action": "keep",
        "reason": "opened by libcudnn.so.9",
        "rule": "libraries/cudnn9.toml: graph",
        "chain": [
            "mnist needs libcudnn.so.9",
            "libcudnn.so.9 opens libcudnn_graph.so.9 (libraries/cudnn9.toml: graph)",
        ],
        "licence": "nvidia-cudnn",
        "modified": False,
        "changes": [],
    }


def test_the_program_is_marked_as_modified():
    program = row(made()["files"], "mnist")
    shown = ("path", "kind", "soname", "bytes", "bytes_original", "modified", "changes", "chain", "licence")
    assert {key: program[key] for key in shown} == {
        "path": "bin/mnist",
        "kind": "executable",
        "soname": None,
        "bytes": 4_000_000,
        "bytes_original": 5_200_000,
        "modified": True,
        "changes": ["stripped", "rpath"],
        "chain": [],
        "licence": None,
    }


def test_a_licence_text_says_whose_it_is():
    text = row(made()["files"], "License.txt")
    assert (text["kind"], text["group"], text["bytes"]) == ("licence", "licence texts", 50_000)
    assert text["reason"] == "licence text of nvidia-all-cu12 12.9"


def test_a_dropped_library_says_why_and_what_that_means():
    (adv,) = made()["dropped"]
    assert adv == {
        "name": "libcudnn_adv.so.9",
        "names": [],
        "bytes": 285_226_600,
        "origin": {
            "kind": "wheel",
            "name": "nvidia-all-cu12",
            "version": "12.9",
            "path": "nvidia/lib/libcudnn_adv.so.9",
        },
        "component": "cudnn9:adv",
        "group": "cuDNN",
        "action": "drop",
        "reason": "serves rnn; the model cnn has none of them",
        "rule": "libraries/cudnn9.toml: adv",
        "chain": [
            "mnist needs libcudnn.so.9",
            "libcudnn.so.9 opens libcudnn_adv.so.9 (libraries/cudnn9.toml: adv)",
        ],
        "licence": "nvidia-cudnn",
        "without": "cudnnRNN* abort",
    }


def test_totals_add_up():
    totals = made()["totals"]
    assert totals["files"] == 7
    assert totals["bytes"] == 4_000_000 + 100_000 + 105_100_000 + 30_000 + 4_400_000 + 700_000 + 50_000
    assert totals["bytes_original"] - totals["bytes"] == 1_200_000
    assert (totals["dropped_files"], totals["dropped_bytes"]) == (1, 285_226_600)
    assert totals["by_group"]["cuDNN"] == {
        "files": 2,
        "bytes": 4_500_000,
        "dropped_files": 1,
        "dropped_bytes": 285_226_600,
    }
    for key in ("files", "bytes", "dropped_files", "dropped_bytes"):
        assert sum(group[key] for group in totals["by_group"].values()) == totals[key]


def test_request_licences_and_possible_misses():
    found = made()
    assert found["request"] == {
        "program": "mnist",
        "models": ["cnn"],
        "target": None,
        "platform": "linux/amd64",
        "gpus": [],
        "host": None,
        "base": None,
        "include": [],
        "exclude": [],
        "strict": False,
    }
    assert [licence["name"] for licence in found["licences"]] == ["nvidia-cuda", "nvidia-cudnn"]
    assert found["possible_misses"] == [{"name": "libplugin.so", "mentioned_by": "libdigits.so.1"}]
    assert found["misses"] == [{"name": "liba.so", "asked_by": "mnist", "need": "required"}]
    assert found["host"]["driver"] == ["libcuda.so.1"]


def test_where_it_is_to_run_stands_in_the_request():
    known = load()
    there = Destination(
        name="l40",
        target="l4",
        platform="linux/amd64",
        gpus=(Gpu.of("8.9"), Gpu.of("sm_90")),
        host=known.host("bookworm"),
        base=f"sha256:{'5' * 64}",
        base_root="/home/ann/.cache/dpack/roots/5",
    )
    plan = sample.mnist()
    plan = replace(plan, choice=replace(plan.choice, destination=there))
    found = manifest(plan, sample.entries(plan), sample.contents(plan))
    asked = {key: found["request"][key] for key in ("target", "platform", "gpus", "host", "base")}
    assert asked == {
        "target": "l4",
        "platform": "linux/amd64",
        "gpus": ["sm_89", "sm_90"],
        "host": "debian-12",
        "base": f"sha256:{'5' * 64}",
    }
    assert errors(found) == []
    assert b"ann" not in to_json(found)


def test_it_is_the_same_in_any_order_and_names_no_place_of_this_machine():
    plan = sample.mnist()
    one = to_json(manifest(plan, sample.entries(plan), sample.contents(plan)))
    other = to_json(manifest(plan, sample.entries(plan)[::-1], sample.contents(plan)))
    assert one == other
    assert b"/home" not in one
    assert b"ann" not in one
    assert one.endswith(b"}\n")
    assert json.loads(one)["files"][0]["path"] == "bin/mnist"


def test_names_that_are_not_ascii_or_not_even_text_are_written_all_the_same():
    assert to_json({"b": "é", "a": "\udcff"}) == b'{\n  "a": "\\udcff",\n  "b": "\\u00e9"\n}\n'


def test_the_second_name_of_a_file_is_a_link_and_has_no_bytes():
    plan = sample.mnist()
    link = Entry("lib/libdigits.so", 0o777, 0, sample.entries(plan)[0].sha256, "libdigits.so.1")
    found = manifest(plan, (*sample.entries(plan), link), sample.contents(plan))
    assert found["links"] == [{"path": "lib/libdigits.so", "target": "libdigits.so.1"}]
    assert "lib/libdigits.so" not in {file["path"] for file in found["files"]}
    assert found["totals"]["by_group"]["other libraries"]["bytes"] == 30_000
    assert not errors(found)


def test_a_file_that_nobody_accounts_for_is_an_error_of_dpack():
    plan = sample.mnist()
    extra = replace(sample.entries(plan)[0], path="lib/stray.so")
    with pytest.raises(ValueError, match=r"lib/stray\.so"):
        manifest(plan, (*sample.entries(plan), extra), sample.contents(plan))
    with pytest.raises(ValueError, match="bin/mnist"):
        manifest(plan, sample.entries(plan)[1:], sample.contents(plan))


def test_a_file_that_changed_since_the_plan_is_not_called_unmodified():
    plan = sample.mnist()
    first, second, *rest = sample.entries(plan)
    with pytest.raises(
        DpackError, match=r"lib/libcudnn.so.9: it changed since it was planned \(100,000 bytes then"
    ):
        manifest(plan, (first, replace(second, size=1), *rest), sample.contents(plan))


def test_the_published_schema_is_tidy():
    assert PATH.read_text(encoding="utf-8") == json.dumps(schema(), indent=2) + "\n"
