"""The forms of the output: JSON, Markdown, help and completion."""

from __future__ import annotations

import subprocess
import sys

import jsonschema
import pytest
from builders.manifest_schema import schema

from packager.cli import _COMMANDS


def test_plan_prints_one_json_document(dpack, cnn, cuda):
    told = dpack("plan", cnn, "-L", cuda, "--model", "cnn", "--json").done().json
    assert told["models"] == ["cnn"]
    assert told["missing"] == told["conflicts"] == told["possible_misses"] == []
    by_action = {"keep": 0, "drop": 0}
    for row in told["decisions"]:
        by_action[row["action"]] = by_action.get(row["action"], 0) + row["bytes"]
    assert told["totals"] == {"keep_bytes": by_action["keep"], "drop_bytes": by_action["drop"]}


def test_a_plan_with_a_miss_prints_its_json_all_the_same(dpack, cnn):
    result = dpack("plan", cnn, "--json")
    assert result.code == 1
    assert [row["name"] for row in result.json["missing"]] == [
        "libcudnn.so.9",
        "libcublas.so.12",
        "libcudart.so.12",
    ]
    assert all(row["searched"] for row in result.json["missing"])


def test_tree_prints_one_json_document(dpack, cnn, cuda):
    told = dpack("tree", cnn, "-L", cuda, "--json").done().json
    edges = {(row["from"].rpartition("/")[2], row["name"], row["kind"]) for row in told["edges"]}
    assert ("mnist", "libcudnn.so.9", "needed") in edges
    assert ("libcudnn.so.9", "libcudnn_graph.so.9", "dlopen") in edges
    assert {row["path"] for row in told["objects"]} >= {row["to"] for row in told["edges"] if row["to"]}


@pytest.mark.parametrize("name", ["out/", "x.tar", "x.tar.gz", "x.tar.zst"])
def test_bundle_prints_the_manifest_which_fits_its_schema(name, dpack, cnn, cuda):
    manifest = dpack("bundle", cnn, "-L", cuda, "--model", "cnn", "--json", "-o", name).done().json
    jsonschema.Draft202012Validator(schema()).validate(manifest)
    assert [row["name"] for row in manifest["dropped"]] == ["libcudnn_adv.so.9"]


def test_bundle_prints_markdown_tables(dpack, cnn, cuda):
    out = dpack("bundle", cnn, "-L", cuda, "--model", "cnn", "--markdown").done().out
    tables = [block for block in out.split("\n\n") if block.strip().startswith("|")]
    assert len(tables) == 2
    for table in tables:
        rows = table.strip().splitlines()
        assert set(rows[1]) <= set("|-: ")
        assert len({row.count("|") for row in rows}) == 1


def test_tree_tells_how_and_why_on_each_line(dpack, cnn, cuda):
    out = dpack("tree", cnn, "-L", cuda).done().out
    assert f"libcudnn.so.9  {cuda}/libcudnn.so.9  [library path; needed]" in out
    assert "dlopen, recipe libraries/cudnn9.toml: graph]" in out


def test_help_lists_every_command(dpack):
    out = dpack("--help").done().out
    assert not [name for name in _COMMANDS if f"  {name} " not in out]
    assert "  dpack bundle ./mnist --model cnn" in out
    assert dpack("-h").done().out == out


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_help_of_every_command_has_an_example(command, dpack):
    out = dpack(command, "--help").done().out
    assert any(
        line.strip().startswith((f"dpack {command}", f'eval "$(dpack {command}')) for line in out.splitlines()
    ), out


def test_help_imports_nothing_that_takes_long():
    source = (
        "import sys\nfrom packager.cli import dpack\ndpack.main(['--help'], standalone_mode=False)\n"
        "print(*sorted(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    heavy = {
        "lief",
        "rich",
        "requests",
        "urllib3",
        "pypi_simple",
        "zstandard",
        "jsonschema",
        "elftools",
        "packaging",
    }
    assert not heavy & set(done.stderr.split())


def test_version_is_told(dpack):
    assert dpack("--version").done().out.startswith("dpack, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_each_shell(shell, dpack):
    out = dpack("completion", shell).done().out
    assert "_DPACK_COMPLETE" in out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=out, text=True, check=True)


def test_completion_for_another_shell_is_refused(dpack):
    result = dpack("completion", "tcsh")
    assert result.code == 2
    assert "tcsh" in result.err


@pytest.mark.parametrize(
    ("words", "offered"),
    [("dpack bu", "bundle"), ("dpack plan ./app --model c", "cnn"), ("dpack plan ./app --mod", "--model")],
)
def test_completion_offers_commands_options_and_models(words, offered, dpack):
    count = str(len(words.split()) - 1)
    out = dpack(_DPACK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count).out
    assert f"plain,{offered}" in out.splitlines()
