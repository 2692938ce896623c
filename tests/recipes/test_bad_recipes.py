"""Each thing that can be wrong with a recipe, and the message that names file and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_files import FAMILY, FILES, FRAMEWORK, MODEL, edited, write

from packager.errors import EXIT_USAGE, DpackError
from packager.recipes import load

LIBRARY = "libraries/acme.toml"
SCREWS = "models/screws.toml"
WORKS = "frameworks/acmeworks.toml"

OTHER = edited(edited(FAMILY, 'name = "acme"', 'name = "other"'), '"libacme.so.3*"', '"libother.so.3*"')

LOOP = """\
[[component]]
name = "a"
about = "A"
files = ["libacme_a.so.3"]
serves = ["*"]
need = "optional"
without = "Nothing"
loaded = [{ by = "b", how = "dlopen" }]
evidence = "none"
[[component]]
name = "b"
about = "B"
files = ["libacme_b.so.3"]
serves = ["*"]
need = "optional"
without = "Nothing"
loaded = [{ by = "a", how = "dlopen" }]
evidence = "none"
"""

BAD = {
    "wrong key": (
        {LIBRARY: edited(FAMILY, 'since = "3.1"', 'sinse = "3.1"')},
        '{dir}/libraries/acme.toml: component[1].sinse: unknown key; did you mean "since"?',
    ),
    "strange key": (
        {WORKS: edited(FRAMEWORK, 'title = "core"', 'title = "core"\nxyzzy = 1')},
        '{dir}/frameworks/acmeworks.toml: cpu.part[0].xyzzy: unknown key; known are "bytes" and "title"',
    ),
    "wrong key at the top": (
        {LIBRARY: edited(FAMILY, "schema = 1", "schema = 1\ncomponents = 3")},
        '{dir}/libraries/acme.toml: components: unknown key; did you mean "component"?',
    ),
    "missing key": (
        {LIBRARY: edited(FAMILY, 'without = "No training"\n', "")},
        "{dir}/libraries/acme.toml: component[1].without: missing; it must be a string",
    ),
    "blank": (
        {LIBRARY: edited(FAMILY, '"No training"', '" "')},
        "{dir}/libraries/acme.toml: component[1].without: must not be empty",
    ),
    "empty array": (
        {LIBRARY: edited(FAMILY, '["rnn", "gemm"]', "[]")},
        "{dir}/libraries/acme.toml: component[1].serves: must not be empty",
    ),
    "wrong type": (
        {LIBRARY: edited(FAMILY, "cuda = 12", 'cuda = "12"')},
        '{dir}/libraries/acme.toml: family.package[0].cuda: must be an integer, not "12"',
    ),
    "no specifier": (
        {LIBRARY: edited(FAMILY, "cuda = 12", 'cuda = 12\nversions = "3"')},
        (
            "{dir}/libraries/acme.toml: family.package[0].versions: "
            'must be a version specifier such as ">=9,<10", not "3"'
        ),
    ),
    "a distribution's name as nobody compares it": (
        {LIBRARY: edited(FAMILY, '"acme-cu12"', '"Acme_cu.12"')},
        (
            "{dir}/libraries/acme.toml: family.package[0].name: "
            'must be "acme-cu-12", as package indexes write it, not "Acme_cu.12"'
        ),
    ),
    "truth is no number": (
        {WORKS: edited(FRAMEWORK, 'bytes = 12\ncounts = "all"', 'bytes = true\ncounts = "all"')},
        "{dir}/frameworks/acmeworks.toml: cpu.bytes: must be an integer, not true or false (True)",
    ),
    "negative": (
        {WORKS: edited(FRAMEWORK, 'bytes = 12\ncounts = "all"', 'bytes = -1\ncounts = "all"')},
        "{dir}/frameworks/acmeworks.toml: cpu.bytes: must not be negative, as -1 is",
    ),
    "wrong type in an array": (
        {LIBRARY: edited(FAMILY, '["rnn", "gemm"]', '["rnn", 3]')},
        (
            "{dir}/libraries/acme.toml: component[1].serves[1]: must be a string with something in it, "
            "not an integer (3)"
        ),
    ),
    "no table": (
        {LIBRARY: "schema = 1\nfamily = 3\n" + FAMILY[FAMILY.index("[[component]]") :]},
        "{dir}/libraries/acme.toml: family: must be a table, not an integer (3)",
    ),
    "no choice": (
        {
            LIBRARY: edited(
                FAMILY,
                'need = "required"\nwithout = "No training',
                'need = "recomended"\nwithout = "No training',
            )
        },
        (
            '{dir}/libraries/acme.toml: component[1].need: must be "required", "recommended" or "optional", '
            'not "recomended"; did you mean "recommended"?'
        ),
    ),
    "no version": (
        {LIBRARY: edited(FAMILY, '"3.1"', '"v3.1"')},
        '{dir}/libraries/acme.toml: component[1].since: must be a version such as "9.24", not "v3.1"',
    ),
    "another schema": (
        {SCREWS: edited(MODEL, "schema = 1", "schema = 2")},
        "{dir}/models/screws.toml: schema: is 2, and this dpack reads 1",
    ),
    "no schema": (
        {SCREWS: edited(MODEL, "schema = 1\n", "")},
        "{dir}/models/screws.toml: schema: missing; it must be an integer",
    ),
    "not TOML": (
        {LIBRARY: edited(FAMILY, 'title = "Acme"', "title = Acme")},
        "{dir}/libraries/acme.toml: cannot be read: Invalid value (at line 4, column 9)",
    ),
    "another name than the file's": (
        {LIBRARY: edited(FAMILY, 'name = "acme"', 'name = "acne"')},
        '{dir}/libraries/acme.toml: family.name: must be "acme", as the file is called, not "acne"',
    ),
    "unknown feature": (
        {LIBRARY: edited(FAMILY, '["rnn", "gemm"]', '["rnn", "gem"]')},
        '{dir}/libraries/acme.toml: component[1].serves: unknown feature "gem"; did you mean "gemm"?',
    ),
    "unknown feature of a model": (
        {SCREWS: edited(MODEL, '"convolution"', '"convolutions"')},
        (
            '{dir}/models/screws.toml: model.features: unknown feature "convolutions"; '
            'did you mean "convolution"?'
        ),
    ),
    "unknown licence": (
        {LIBRARY: edited(FAMILY, '"mit"', '"mitt"')},
        '{dir}/libraries/acme.toml: family.licence: unknown licence "mitt"; did you mean "mit"?',
    ),
    "unknown loader": (
        {LIBRARY: edited(FAMILY, 'by = "core"', 'by = "cores"')},
        (
            '{dir}/libraries/acme.toml: component[1].loaded: unknown component "acme:cores"; '
            'did you mean "acme:core"?'
        ),
    ),
    "unknown loader in another family": (
        {LIBRARY: edited(FAMILY, 'by = "core"', 'by = "cudnn9:adw"')},
        (
            '{dir}/libraries/acme.toml: component[1].loaded: unknown component "cudnn9:adw"; '
            'did you mean "cudnn9:adv"?'
        ),
    ),
    "unknown model": (
        {SCREWS: edited(MODEL, '"mlp"', '"mpl"')},
        '{dir}/models/screws.toml: model.includes: unknown model "mpl"; did you mean "mlp"?',
    ),
    "a loader asks for what the component is not for": (
        {LIBRARY: edited(FAMILY, 'serves = ["rnn"] }', 'serves = ["fft"] }')},
        (
            "{dir}/libraries/acme.toml: component[1].loaded[0].serves: "
            "must be among those of the component, rnn, gemm"
        ),
    ),
    "repeated component": (
        {LIBRARY: edited(FAMILY, 'name = "train"', 'name = "core"')},
        '{dir}/libraries/acme.toml: component[1].name: "core" is component[0] already',
    ),
    "a file of two components": (
        {LIBRARY: edited(FAMILY, '"libacme_train.so.3*"', '"libcudnn_adv.so.9*"')},
        "{dir}/libraries/acme.toml: component[1].files: 'libcudnn_adv.so.9*' belongs to cudnn9:adv",
    ),
    "a file of two families": (
        {"libraries/other.toml": OTHER},
        "{dir}/libraries/other.toml: component[1].files: 'libacme_train.so.3*' belongs to acme:train",
    ),
    "models that include each other": (
        {
            SCREWS: edited(MODEL, '"mlp"', '"bolts"'),
            "models/bolts.toml": edited(edited(MODEL, '"screws"', '"bolts"'), '"mlp"', '"screws"'),
        },
        "{dir}/models/bolts.toml: model.includes: bolts → screws → bolts is a cycle",
    ),
    "a model that includes itself": (
        {SCREWS: edited(MODEL, '"mlp"', '"screws"')},
        "{dir}/models/screws.toml: model.includes: screws → screws is a cycle",
    ),
    "loaders that wait for each other": (
        {LIBRARY: FAMILY + LOOP},
        (
            "{dir}/libraries/acme.toml: component[2].loaded: nothing that a program starts with leads to acme:a; "
            "its loaders (acme:b) wait for each other"
        ),
    ),
    "a component that loads itself": (
        {LIBRARY: edited(FAMILY, 'by = "core"', 'by = "train"')},
        (
            "{dir}/libraries/acme.toml: component[1].loaded: nothing that a program starts with leads to "
            "acme:train; its loaders (acme:train) wait for each other"
        ),
    ),
    "a component that nobody loads": (
        {LIBRARY: edited(FAMILY, 'loaded = [{ by = "program", how = "needed" }]', "loaded = []")},
        "{dir}/libraries/acme.toml: component[0].loaded: must not be empty: nobody could load this component",
    ),
    "a licence that does not say": (
        {
            "licences.toml": 'schema = 1\n[licences.acme]\ntitle = "A"\nredistribute = true\nnote = "N"\n'
            'source = "S"',
        },
        "{dir}/licences.toml: licences.acme.modify: missing; it must be true or false",
    ),
    "a feature without a sentence": (
        {"features.toml": 'schema = 1\n[features]\nscrews = ""'},
        "{dir}/features.toml: features.screws: must not be empty",
    ),
}


def problems(directory: Path) -> tuple[str, ...]:
    with pytest.raises(DpackError) as caught:
        load([directory])
    assert caught.value.exit == EXIT_USAGE
    return caught.value.tried


@pytest.mark.parametrize(("files", "message"), BAD.values(), ids=BAD.keys())
def test_message_names_file_and_key(files: dict[str, str], message: str, tmp_path: Path) -> None:
    write(tmp_path, FILES | files)
    assert message.format(dir=tmp_path) in problems(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        "not TOML",
        "missing key",
        "unknown loader",
        "unknown model",
        "repeated component",
        "wrong key",
        "a file of two components",
        "models that include each other",
        "a component that loads itself",
    ],
)
def test_one_mistake_is_one_problem(name: str, tmp_path: Path) -> None:
    files, message = BAD[name]
    write(tmp_path, FILES | files)
    assert problems(tmp_path) == (message.format(dir=tmp_path),)


def test_unreadable_file_is_the_only_problem_where_others_refer_to_it(tmp_path: Path) -> None:
    write(tmp_path, {"libraries/cudnn9.toml": "schema", "models/mlp.toml": "schema"})
    reason = "cannot be read: Expected '=' after a key in a key/value pair (at end of document)"
    assert problems(tmp_path) == (
        f"{tmp_path}/libraries/cudnn9.toml: {reason}",
        f"{tmp_path}/models/mlp.toml: {reason}",
    )


def test_all_problems_of_all_files_come_together(tmp_path: Path) -> None:
    chosen = [
        BAD[name] for name in ("missing key", "unknown model", "negative", "a feature without a sentence")
    ]
    for files, _ in chosen:
        write(tmp_path, files)
    assert set(problems(tmp_path)) == {message.format(dir=tmp_path) for _, message in chosen}


def test_the_error_counts_the_problems_and_tells_what_to_do(tmp_path: Path) -> None:
    write(tmp_path, {SCREWS: edited(MODEL, '"mlp"', '"mpl"')})
    with pytest.raises(DpackError) as caught:
        load([tmp_path])
    assert caught.value.lines() == [
        "cannot use the recipes: 1 problem",
        f'  {tmp_path}/models/screws.toml: model.includes: unknown model "mpl"; did you mean "mlp"?',
        "  next: recipes/README.md explains the format; `dpack recipes check DIR` reads a directory again",
    ]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere", "no such directory"),
        (
            "empty",
            (
                "holds none of libraries/*.toml, models/*.toml, frameworks/*.toml, hosts/*.toml, targets/*.toml, "
                "features.toml, licences.toml"
            ),
        ),
    ],
)
def test_directory_without_recipes(name: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert problems(tmp_path / name) == (f"{tmp_path / name}: {why}",)
