"""What is kept and dropped, as the command line tells it, on stand-ins for the CUDA libraries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import fake_cuda
from builders.fake_cuda import KEPT_FOR_CNN, Library

from packager.account.size import human

ADV = "libcudnn_adv.so.9"


def actions(told: dict[str, object]) -> dict[str, set[str]]:
    """The names of a plan's JSON by action."""
    found: dict[str, set[str]] = {"keep": set(), "drop": set(), "host": set()}
    for row in told["decisions"]:  # type: ignore[attr-defined]
        found[row["action"]].add(row["name"])
    return found


def test_a_cnn_drops_the_recurrent_part_alone(dpack, cnn, cuda):
    found = actions(dpack("plan", cnn, "-L", cuda, "--model", "cnn", "--json").done().json)
    assert found["keep"] == KEPT_FOR_CNN | {"mnist"}
    assert found["drop"] == {ADV}
    assert found["host"] == {"libc.so.6", "ld-linux-x86-64.so.2", "libcuda.so.1"}


def test_an_rnn_keeps_the_recurrent_part(dpack, rnn, cuda):
    found = actions(dpack("plan", rnn, "-L", cuda, "--model", "rnn", "--json").done().json)
    assert ADV in found["keep"]
    assert found["drop"] == {"libcudnn_cnn.so.9"}


def test_two_models_keep_what_either_needs(dpack, cnn, cuda):
    assert not actions(dpack("plan", cnn, "-L", cuda, "-m", "cnn", "-m", "rnn", "--json").done().json)["drop"]


@pytest.fixture
def graph(cuda, tmp_path):
    """A program on cuDNN's graph API alone."""
    return fake_cuda.compile_program(
        tmp_path / "graph", ("cudnnCreate",), cuda, ("libcudnn.so.9", "libcudart.so.12")
    )


def test_jit_on_an_old_cudnn_wants_nvrtc_and_tells_the_variable(dpack, graph, cuda):
    told = dpack("plan", graph, "-L", cuda, "--cudnn", "jit", "--json").done().json
    found = actions(told)
    assert {"libnvrtc.so.12", "libnvrtc-builtins.so.12.9", "libcudnn_graph.so.9"} <= found["keep"]
    assert any("CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY" in warning for warning in told["warnings"])
    parts = ("ops", "cnn", "adv", "heuristic", "engines_precompiled")
    assert found["drop"] == {f"libcudnn_{part}.so.9" for part in parts}
    assert told["totals"]["drop_bytes"] == sum((cuda / name).stat().st_size for name in found["drop"])
    why = dpack("why", graph, "cudnn_ops", "-L", cuda, "--cudnn", "jit").done().out
    assert "--cudnn jit leaves it out" in why
    assert "found beside " in why
    assert "nothing that is loaded opens it" in why


def test_jit_on_an_old_cudnn_without_nvrtc_is_incomplete(dpack, graph, tmp_path):
    own = tmp_path / "own"
    fake_cuda.compile_libraries(
        [lib for lib in (*fake_cuda.CUDNN, *fake_cuda.CUDA) if "nvrtc" not in lib.soname], own
    )
    told = dpack("plan", graph, "-L", own, "--cudnn", "jit", "--json", code=1).json
    assert [row["name"] for row in told["missing"]] == ["libnvrtc.so.12"]


def test_without_a_model_nothing_is_dropped_and_the_saving_is_told(dpack, cnn, cuda):
    told = dpack("plan", cnn, "-L", cuda, "--json").done().json
    assert not actions(told)["drop"]
    size = (cuda / ADV).stat().st_size
    assert {"model": "cnn", "names": [ADV], "bytes": size} in told["savings"]
    out = dpack("plan", cnn, "-L", cuda).done().out
    assert "no model named" in out
    assert f"--model cnn would leave out {human(size)}: {ADV}" in out


def test_a_saving_is_not_promised_for_a_model_that_the_program_contradicts(dpack, rnn, cuda):
    told = dpack("plan", rnn, "-L", cuda, "--json").done().json
    assert "cnn" not in {row["model"] for row in told["savings"]}
    assert "rnn" in {row["model"] for row in told["savings"]}


@pytest.mark.parametrize("command", ["plan", "bundle"])
def test_a_program_that_calls_what_the_model_leaves_out_is_a_conflict(command, dpack, rnn, cuda):
    result = dpack(command, rnn, "-L", cuda, "--model", "cnn")
    result.refused(
        1, "lstm imports cudnnRNNForward", ADV, "cudnn9:adv", "--model cnn --model rnn", f"--include {ADV}"
    )
    assert not dpack.written


@pytest.mark.parametrize("way", [("--model", "rnn"), ("--include", ADV)], ids=["model", "include"])
def test_both_ways_out_of_the_conflict_work(way, dpack, rnn, cuda):
    found = actions(dpack("plan", rnn, "-L", cuda, "--model", "cnn", *way, "--json").done().json)
    assert ADV in found["keep"]


def test_the_same_import_in_a_library_is_a_note(dpack, cuda):
    """A framework imports every function of cuDNN, whatever the model."""
    framework = Library("libframework.so.1", ("run",), ("libcudnn.so.9",), (), ("cudnnRNNForward",))
    directory = dpack.cwd / "lib"
    directory.mkdir()
    (directory / "libcudnn.so.9").symlink_to(cuda / "libcudnn.so.9")
    fake_cuda.compile_library(framework, directory)
    app = fake_cuda.compile_program(
        dpack.cwd / "app", ("run",), directory, ["libframework.so.1"], f"-Wl,-rpath-link,{cuda}"
    )
    result = dpack("plan", app, "-L", "lib", "-L", cuda, "--model", "cnn").done()
    assert "note: libframework.so.1 imports cudnnRNNForward of cudnn9:adv, which is left out" in result.out


def test_include_keeps_what_the_model_would_drop(dpack, cnn, cuda):
    out = dpack("plan", cnn, "-L", cuda, "--model", "cnn", "--include", "libcudnn_a*").done().out
    assert "dropped:" not in out
    assert "asked for with --include libcudnn_a*" in out


@pytest.mark.parametrize("pattern", ["libcudnn_heur*", "*/libcudnn_heuristic.so.9"], ids=["soname", "path"])
def test_exclude_leaves_out_by_soname_and_by_path(pattern, dpack, cnn, cuda):
    out = dpack("plan", cnn, "-L", cuda, "--exclude", pattern).done().out
    assert f"left out with --exclude {pattern}" in out
    assert "libcudnn_heuristic.so.9" in out.partition("dropped:")[2]


def test_excluding_a_needed_library_warns(dpack, cnn, cuda):
    result = dpack("plan", cnn, "-L", cuda, "--exclude", "libcudart.so.12").done()
    assert "warning: libcudart.so.12 is left out, but needed" in result.out


def test_excluding_a_missing_library_settles_the_miss(dpack, cnn, cuda):
    some = dpack.cwd / "lib"
    some.mkdir()
    for library in cuda.iterdir():
        if "cudart" not in library.name:
            (some / library.name).symlink_to(library)
    dpack("plan", cnn, "-L", "lib").refused(1, "libcudart.so.12")
    dpack("plan", cnn, "-L", "lib", "--exclude", "libcudart.so.12").done()


@pytest.mark.parametrize("option", ["--include", "--exclude"])
@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)], ids=["text", "json", "markdown"])
def test_a_glob_that_matches_nothing_is_a_warning(form, option, dpack, cnn, cuda):
    result = dpack("bundle", cnn, "-L", cuda, option, "libzebra*", *form).done()
    assert f"{option} libzebra* matches nothing" in result.out + result.err


def test_a_pin_that_is_not_used_is_a_warning(dpack, cnn, cuda):
    """The user asked for a version; what is found on this machine may be another one."""
    result = dpack("plan", cnn, "-L", cuda, "--require", "nvidia-cuda-runtime-cu12==12.9.79").done()
    assert "nvidia-cuda-runtime-cu12" in result.out + result.err


def test_an_include_that_cannot_be_found_is_a_miss(dpack, cnn, cuda):
    dpack("plan", cnn, "-L", cuda, "--include", "libplugin.so.1").refused(1, "libplugin.so.1", str(cuda))


@pytest.fixture
def opener(dpack) -> Path:
    """A program that opens a library which no recipe knows."""
    source = (
        '#include <dlfcn.h>\nint main(int c, char **v) { return dlopen("libplugin_x.so.3", c) == v[0]; }\n'
    )
    fake_cuda.gcc("-o", dpack.cwd / "opener", source=source)
    return dpack.cwd / "opener"


def test_a_string_is_a_possible_miss_and_no_reason_to_bundle(dpack, opener):
    fake_cuda.compile_library(Library("libplugin_x.so.3", ("plugin",)), dpack.cwd / "lib")
    out = dpack("plan", opener, "-L", "lib").done().out
    assert "possible miss: opener mentions libplugin_x.so.3" in out
    assert "libplugin_x" not in out.partition("left to the host:")[0]
    assert "possible misses" in dpack("tree", opener, "-L", "lib").done().out


def test_strict_makes_it_a_failure(dpack, opener):
    dpack("bundle", opener, "--strict").refused(1, "libplugin_x.so.3", "opener", "--strict", "--include")
    assert dpack.written == {"opener"}


def test_include_follows_a_string(dpack, opener):
    fake_cuda.compile_library(Library("libplugin_x.so.3", ("plugin",)), dpack.cwd / "lib")
    dpack("plan", opener, "-L", "lib", "--include", "libplugin_x.so.3").done()
    out = dpack("plan", opener, "-L", "lib", "--strict", "--include", "libplugin_*").done().out
    assert "asked for with --include libplugin_*" in out
    assert "possible miss" not in out


@pytest.mark.parametrize(
    "place", ["lib/libplugin_x.so.3", "{cwd}/lib/libplugin_x.so.3"], ids=["relative", "absolute"]
)
def test_include_by_path_answers_the_name_that_the_program_opens(place, dpack, opener):
    fake_cuda.compile_library(Library("libplugin_x.so.3", ("plugin",)), dpack.cwd / "lib")
    out = dpack("plan", opener, "--include", place.format(cwd=dpack.cwd)).done().out
    assert "asked for with --include" in out
    assert "possible miss" not in out
    assert "warning" not in out


@pytest.mark.parametrize("option", ["--include", "--exclude"])
def test_an_empty_name_is_refused(option, dpack, opener):
    dpack("plan", opener, option, "").refused(2, f"cannot use {option} ''", "variable")


@pytest.mark.parametrize("option", [("--slice", "vendor"), ("--ptx", "drop")], ids=" ".join)
def test_what_to_cut_needs_a_gpu(option, dpack, opener):
    said = f"cannot use {' '.join(option)} here"
    for command in ("plan", "bundle", "why"):
        name = ("libc.so.6",) if command == "why" else ()
        dpack(command, opener, *name, *option).refused(2, said, "--gpu", "--target")
    dpack("plan", opener, *option, "--gpu", "8.6").done()
    dpack("plan", opener, "--slice", "no", "--ptx", "keep").done()


def test_why_tells_who_mentions_a_library(dpack, opener):
    for name in ("libplugin_x.so.3", "plugin_x", "libplugin*"):
        out = dpack("why", opener, name).done().out
        assert "libplugin_x.so.3 is a possible miss: opener mentions it" in out
        assert "--include libplugin_x.so.3 adds it" in out


def test_why_denies_nothing_while_libraries_are_missing(dpack, cnn, cuda, opener):
    said = dpack("why", cnn, "libother.so.1").refused(1, "3 libraries were not found", "--fetch")
    assert "did you mean" not in said.err
    said = dpack("why", opener, "libother.so.1").refused(1, "nothing that is loaded needs")
    assert "did you mean" not in said.err
    dpack("why", opener, "libplugin_y.so.3").refused(1, "nothing that is loaded needs")
    dpack("why", cnn, "libcudnn_avd.so.9", "-L", cuda).refused(1, "did you mean libcudnn_adv.so.9")


def _quoted(text: str) -> str:
    """``text`` inside quotes, for the assembler or for C."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def noted(path: Path, *rows: dict[str, object], text: str | None = None) -> Path:
    """A program with a .note.dlopen (UAPI.12) of these entries."""
    content = json.dumps(rows) if text is None else text
    lines = [
        '.pushsection .note.dlopen,\\"a\\",@note', ".balign 4", f".long 4, {len(content) + 1}, 0x407c0c0a",
        '.asciz \\"FDO\\"', f'.asciz \\"{_quoted(_quoted(content))}\\"',
        ".balign 4", ".popsection",
    ]  # fmt: skip
    assembly = "".join(f'"{line}\\n"' for line in lines)
    fake_cuda.gcc("-o", path, source=f"__asm__({assembly});\nint main(void) {{ return 0; }}\n")
    return path


def test_a_note_of_the_program_is_followed(dpack):
    app = noted(
        dpack.cwd / "app",
        {"soname": ["libnewer.so.2", "libplugin.so.1"], "feature": "plugins", "priority": "required"},
        {"soname": ["libgone.so.1"], "priority": "recommended"},
        {"soname": ["libsuggested.so.1"], "priority": "suggested"},
    )
    for name in ("libplugin.so.1", "libsuggested.so.1"):
        fake_cuda.compile_library(Library(name, (name[3:6],)), dpack.cwd / "lib")
    out = dpack("plan", app, "-L", "lib").done().out
    kept, dropped = out.partition("dropped:")[::2]
    assert "libplugin.so.1" in kept
    assert "required by the .note.dlopen of app" in kept
    assert "libsuggested.so.1" in dropped
    assert "only suggested by a .note.dlopen; --include adds it" in dropped
    assert "warning: libgone.so.1 is recommended and was not found" in out


def test_a_required_note_that_nothing_answers_is_a_miss_with_all_alternatives(dpack):
    app = noted(dpack.cwd / "app", {"soname": ["libnewer.so.2", "libplugin.so.1"], "priority": "required"})
    dpack("bundle", app).refused(1, "libnewer.so.2", "libplugin.so.1", "opened by app")


@pytest.mark.parametrize("text", ["{", "[3]", '[{"soname": "x"}]', '{"soname": ["x"]}'])
def test_a_note_that_cannot_be_read_is_refused(text, dpack):
    app = noted(dpack.cwd / "app", text=text)
    result = dpack("plan", app)
    result.refused(result.code, ".note.dlopen", "app")
    assert result.code in {1, 2}


def test_a_new_part_of_a_known_family_is_kept_with_a_warning(dpack, cnn, cuda):
    """cuDNN gained parts in minor releases; what nobody knows is not dropped on a guess."""
    directory = dpack.cwd / "lib"
    directory.mkdir()
    for library in cuda.iterdir():
        (directory / library.name).write_bytes(library.read_bytes())
    fake_cuda.compile_library(Library("libcudnn_telepathy.so.9", ("telepathy",)), directory)
    result = dpack("plan", cnn, "-L", "lib", "--model", "cnn").done()
    assert "libcudnn_telepathy.so.9" in result.out.partition("dropped:")[0]
    assert "warning: libcudnn_telepathy.so.9 belongs to NVIDIA cuDNN 9, and no recipe knows it" in result.out
    dpack("bundle", cnn, "-L", "lib", "--model", "cnn", "-o", "out/").done()
    assert (dpack.cwd / "out/lib/libcudnn_telepathy.so.9").is_file()


WHY = {
    "libcudnn_cnn.so.9": (
        "is kept",
        "for convolution (model cnn)",
        "mnist needs libcudnn.so.9",
        "cudnn9.toml: cnn",
    ),
    "libcudnn_adv.so.9": (
        "is dropped",
        "serves rnn",
        "libcudnn.so.9 opens libcudnn_adv.so.9",
        "cudnn9.toml: adv",
    ),
    "libc.so.6": ("is left to the host", "glibc.toml"),
    "libcuda.so.1": ("is left to the host", "not seen here", "driver.toml"),
    "mnist": ("is kept", "the program itself"),
    "cudnn_adv": ("libcudnn_adv.so.9 is dropped",),
    "libcudnn_engines_*": ("engines_precompiled.so.9 is kept", "engines_runtime_compiled.so.9 is kept"),
}


@pytest.mark.parametrize("name", WHY)
def test_why_tells_the_whole_chain(name, dpack, cnn, cuda):
    out = dpack("why", cnn, name, "-L", cuda, "--model", "cnn").done().out
    assert not [word for word in WHY[name] if word not in out], out


def test_why_of_a_missing_library_tells_where_it_was_searched(dpack, cnn):
    out = dpack("why", cnn, "libcudart.so.12").done().out
    assert "libcudart.so.12 is missing: needed by mnist" in out
    assert "/usr/lib (default directory)" in out


def test_why_of_an_unknown_name_suggests(dpack, cnn, cuda):
    dpack("why", cnn, "libcudnn_avd.so.9", "-L", cuda).refused(1, "libcudnn_avd.so.9", "libcudnn_adv.so.9")
    dpack("why", cnn, "zebra", "-L", cuda).refused(1, "zebra", "dpack tree")


@pytest.mark.parametrize("extra", [(), ("--dry-run",)], ids=["bundle", "dry run"])
def test_plan_and_bundle_print_the_same_decisions(extra, dpack, cnn, cuda):
    options = (cnn, "-L", cuda, "--model", "cnn", "--exclude", "libzebra*")
    planned = dpack("plan", *options).done().out
    assert dpack("bundle", *options, *extra).done().out.startswith(planned)
    assert dpack.written == (set() if extra else {"mnist.tar.zst"})
