"""A user's own recipes: what is wrong with one is told with its file and key, and a right one is used."""

from __future__ import annotations

import pytest
from builders import fake_cuda

FAMILY = """\
schema = 1
[family]
name = "mine"
title = "My library"
about = "What my program calls"
group = "mine"
files = ["libmine*.so.1"]
licence = "lgpl"
[[component]]
name = "mine"
about = "The library"
files = ["libmine.so.1"]
serves = ["*"]
need = "required"
without = "The program does not start"
loaded = [{ by = "program", how = "needed" }]
evidence = "it is ours"
"""
SECOND = """\
[[component]]
name = "extra"
about = "A plugin"
files = ["libmine_extra.so.1"]
serves = ["convolution"]
need = "required"
without = "No convolution"
loaded = [{ by = "mine", how = "dlopen" }]
evidence = "it is ours"
"""
MODEL = """\
schema = 1
[model]
name = "{name}"
title = "Ours"
about = "A network of ours"
includes = ["{other}"]
features = ["gemm"]
"""

WRONG = {
    "unknown key": (FAMILY.replace("title =", "titel ="), ("libraries/mine.toml", "titel", "title")),
    "wrong type": (
        FAMILY.replace('serves = ["*"]', 'serves = "*"'),
        ("libraries/mine.toml", "component[0].serves"),
    ),
    "missing key": (FAMILY.replace('licence = "lgpl"\n', ""), ("libraries/mine.toml", "family.licence")),
    "unknown feature": (FAMILY.replace('["*"]', '["convolutoin"]'), ("component[0].serves", "convolution")),
    "unknown schema": (FAMILY.replace("schema = 1", "schema = 9"), ("libraries/mine.toml", "schema", "9")),
    "not TOML": (FAMILY + "[[", ("libraries/mine.toml",)),
    "loaders in a circle": (
        FAMILY.replace('by = "program", how = "needed"', 'by = "extra", how = "dlopen"') + SECOND,
        ("libraries/mine.toml", "mine:mine", "mine:extra"),
    ),
    "loaded by nobody": (
        FAMILY.replace('[{ by = "program", how = "needed" }]', "[]"),
        ("component[0].loaded",),
    ),
    "unknown loader": (FAMILY.replace('by = "program"', 'by = "main"'), ("component[0].loaded", "mine:main")),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_recipe_is_refused_with_file_and_key(name, dpack, plain):
    content, words = WRONG[name]
    folder = dpack.cwd / "recipes/libraries"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(content)
    dpack("bundle", plain, "--recipes", "recipes").refused(2, "cannot use the recipes", *words)
    assert dpack.written == {"recipes"}


def test_models_that_include_each_other_are_refused(dpack, plain):
    folder = dpack.cwd / "recipes/models"
    folder.mkdir(parents=True)
    (folder / "one.toml").write_text(MODEL.format(name="one", other="two"))
    (folder / "two.toml").write_text(MODEL.format(name="two", other="one"))
    dpack("plan", plain, "--recipes", "recipes").refused(2, "models/one.toml", "model.includes", "cycle")


def test_every_problem_of_every_recipe_is_told_at_once(dpack, plain):
    folder = dpack.cwd / "recipes/libraries"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        FAMILY.replace("title =", "titel =").replace('serves = ["*"]', "serves = 3")
    )
    (folder / "other.toml").write_text("schema = 1\n")
    dpack("plan", plain, "--recipes", "recipes").refused(
        2, "titel", "component[0].serves", "libraries/other.toml"
    )


@pytest.fixture
def own(dpack):
    """A program of the user's whose library opens a plugin, and a directory with the recipe that knows it."""
    libraries = fake_cuda.compile_libraries(
        [
            fake_cuda.Library("libmine.so.1", ("mine",), (), ("libmine_extra.so.1",)),
            fake_cuda.Library("libmine_extra.so.1", ("extra",)),
        ],
        dpack.cwd / "lib",
    )
    app = fake_cuda.compile_program(dpack.cwd / "app", ("mine",), libraries, ["libmine.so.1"])
    folder = dpack.cwd / "recipes/libraries"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(FAMILY + SECOND)
    return app


def test_a_recipe_of_the_users_follows_their_own_dlopen(own, dpack):
    without = dpack("plan", own, "-L", "lib", "--model", "cnn").done().out
    assert "possible miss: libmine.so.1 mentions libmine_extra.so.1" in without
    with_recipe = dpack("plan", own, "-L", "lib", "--model", "cnn", "--recipes", "recipes").done().out
    assert "libmine_extra.so.1" in with_recipe.partition("kept:")[2]
    assert "possible miss" not in with_recipe
    assert "opened by libmine.so.1, for convolution (model cnn)" in with_recipe


def test_a_recipe_of_the_users_drops_by_their_features(own, dpack):
    out = dpack("plan", own, "-L", "lib", "--model", "rnn", "--recipes", "recipes").done().out
    assert "libmine_extra.so.1" in out.partition("dropped:")[2]


def test_a_recipe_of_the_users_replaces_the_one_of_the_same_name(dpack, cnn, cuda):
    folder = dpack.cwd / "recipes/models"
    folder.mkdir(parents=True)
    (folder / "cnn.toml").write_text(
        'schema = 1\n[model]\nname = "cnn"\ntitle = "Ours"\nabout = "Ours has an LSTM in it"\nincludes = ["rnn"]\n'
        'features = ["convolution"]\n'
    )
    out = dpack("plan", cnn, "-L", cuda, "--model", "cnn", "--recipes", "recipes").done().out
    assert "dropped:" not in out
