"""What the plan decides, as tables: a closure drawn with arrows on the left, each file's fate on the right."""

import re
from dataclasses import replace

import pytest

from packager import recipes as recipe_files
from packager.decide import make_plan
from packager.destination import Destination
from packager.plan import Action, Choice
from packager.resolve.closure import Closure, Edge, Evidence, Kind, Mention, Miss, Need, Object, Source, Use
from packager.resolve.elf import Elf
from packager.resolve.machine import machine_named
from packager.resolve.search import How

RECIPES = recipe_files.load()
RULE = "libraries/cudnn9.toml: part"
ARROW = re.compile(r"(\S+) (->|=>|~>|\?>)(?:\[([^\]]*)\])? (\S+)")


def thing(name):
    elf = Elf(
        f"/lib/{name}", machine_named("x86_64"), 3, 1000, interp="/lib/ld.so", soname=name, dynamic=True
    )
    return Object(f"/lib/{name}", f"/lib/{name}", f"/lib/{name}", elf, How.DEFAULT)


def closure(drawing, missing=(), uses=(), mentions=()):
    """Lines "app -> a" (needed), "app =>[rnn] a" (recipe, serves rnn), "~>" (note) and "?>" (only suggested)."""
    names, edges, misses = ["app"], [], []
    for source, arrow, serves, target in ARROW.findall(drawing):
        names += [name for name in (source, target) if name not in names]
        kind = Kind.NEEDED if arrow == "->" else Kind.DLOPEN
        evidence = {
            "->": Evidence(Source.DYNAMIC),
            "=>": Evidence(
                Source.RECIPE, RULE, Need.REQUIRED, tuple(serves.split(",")) if serves else ("*",)
            ),
            "~>": Evidence(Source.NOTE, "sound", Need.RECOMMENDED),
            "?>": Evidence(Source.NOTE, "sound", Need.OPTIONAL),
        }[arrow]
        here = target not in missing
        edges.append(
            Edge(
                f"/lib/{source}",
                target,
                kind,
                evidence,
                f"/lib/{target}" if here else "",
                How.DEFAULT if here else None,
            )
        )
        if not here:
            misses.append(Miss(target, f"/lib/{source}", kind, evidence, (), (target,)))
    objects = tuple(thing(name) for name in names if name not in missing)
    return Closure(objects, tuple(edges), tuple(misses), tuple(mentions), tuple(uses))


def plan_of(drawing, *models, include=(), exclude=(), strict=False, **more):
    choice = Choice(tuple(RECIPES.model(name) for name in models), include, exclude, strict)
    return make_plan(closure(drawing, **more), RECIPES, choice)


def fates(plan):
    return {d.name: str(d.action) for d in plan.decisions if d.name != "app"}


CUDNN = """
app -> libcudnn.so.9
libcudnn.so.9 => libcudnn_ops.so.9
libcudnn.so.9 =>[convolution] libcudnn_cnn.so.9
libcudnn.so.9 =>[rnn,ctc-loss] libcudnn_adv.so.9
libcudnn_adv.so.9 -> libonly_adv.so.1
"""


@pytest.mark.parametrize(
    ("drawing", "models", "dropped"),
    [
        (CUDNN, (), set()),
        (CUDNN, ("cnn",), {"libcudnn_adv.so.9", "libonly_adv.so.1"}),
        (CUDNN, ("rnn",), {"libcudnn_cnn.so.9"}),
        (CUDNN, ("cnn", "rnn"), set()),
        (CUDNN + "app -> libcudnn_adv.so.9", ("cnn",), set()),
        (CUDNN + "libcudnn_ops.so.9 -> libonly_adv.so.1", ("cnn",), {"libcudnn_adv.so.9"}),
        ("app ~> libsound.so.1", ("cnn",), set()),
        ("app ?> libsound.so.1", (), {"libsound.so.1"}),
        ("app =>[rnn] libnobody.so.1", ("cnn",), set()),
    ],
    ids=[
        "without a model nothing is dropped",
        "what serves no feature of the model goes, and what only it needs",
        "another model drops something else",
        "two models keep what either needs",
        "what the program needs cannot be dropped",
        "what something kept needs stays",
        "a note recommends",
        "a note only suggests",
        "a library that no recipe knows is kept",
    ],
)
def test_what_is_dropped(drawing, models, dropped):
    plan = plan_of(drawing, *models)
    assert {d.name for d in plan.of(Action.DROP)} == dropped
    assert plan.complete


def test_every_decision_has_a_reason_and_a_drop_by_recipe_its_rule():
    plan = plan_of(CUDNN, "cnn")
    assert all(d.reason for d in plan.decisions)
    reasons = {d.name: (d.reason, d.rule) for d in plan.decisions}
    assert reasons["libcudnn_adv.so.9"] == ("serves rnn, ctc-loss; the model cnn has none of them", RULE)
    assert reasons["libcudnn_cnn.so.9"] == ("opened by libcudnn.so.9, for convolution (model cnn)", RULE)
    assert reasons["libonly_adv.so.1"] == ("asked for only by libcudnn_adv.so.9, which is left out", "")


def test_the_host_provides_the_c_library_and_the_driver_seen_or_not():
    plan = plan_of(
        "app -> libc.so.6 app => libcuda.so.1 libc.so.6 -> ld-linux-x86-64.so.2", missing=["libcuda.so.1"]
    )
    assert fates(plan) == {"libc.so.6": "host", "ld-linux-x86-64.so.2": "host", "libcuda.so.1": "host"}
    assert plan.complete


def test_what_only_something_dropped_wants_of_the_host_is_not_asked_of_it():
    plan = plan_of(CUDNN + "libcudnn_adv.so.9 -> libresolv.so.2", "cnn")
    assert "libresolv.so.2" not in fates(plan)


def test_a_string_that_means_the_driver_asks_it_of_the_host():
    mention = Mention("/lib/app", "libcuda.so.1", "libraries/driver.toml: cuda")
    assert fates(plan_of("", mentions=[mention])) == {"libcuda.so.1": "host"}


@pytest.mark.parametrize(
    ("models", "misses", "absent"),
    [((), 1, 0), (("rnn",), 1, 0), (("cnn",), 0, 0)],
    ids=["none", "rnn", "cnn"],
)
def test_what_the_model_does_not_use_is_not_missing(models, misses, absent):
    plan = plan_of(
        CUDNN.replace("libcudnn_adv.so.9 -> libonly_adv.so.1", ""), *models, missing=["libcudnn_adv.so.9"]
    )
    assert (len(plan.misses), len(plan.absent)) == (misses, absent)


def test_a_recommended_miss_is_a_warning():
    plan = plan_of("app ~> libsound.so.1", missing=["libsound.so.1"])
    assert plan.complete
    assert plan.warnings == ("libsound.so.1 is recommended and was not found",)


@pytest.mark.parametrize(
    ("models", "source", "conflicts", "notes"),
    [
        (("cnn",), "app", 1, 0),
        (("rnn",), "app", 0, 0),
        (("cnn", "rnn"), "app", 0, 0),
        ((), "app", 0, 0),
        (("cnn",), "libframework.so.1", 0, 1),
    ],
)
def test_an_import_of_what_the_model_leaves_out(models, source, conflicts, notes):
    use = Use(f"/lib/{source}", "cudnnRNNForward", RECIPES.component("libcudnn_adv.so.9"))
    plan = plan_of(CUDNN + "app -> libframework.so.1", *models, uses=[use])
    assert (len(plan.conflicts), len(plan.notes)) == (conflicts, notes)
    assert plan.complete == (not conflicts)


def test_a_conflict_names_the_symbol_the_component_and_two_ways_out():
    use = Use("/lib/app", "cudnnRNNForward", RECIPES.component("libcudnn_adv.so.9"))
    (conflict,) = plan_of(CUDNN, "cnn", uses=[use]).conflicts
    assert conflict.what == "app imports cudnnRNNForward, which libcudnn_adv.so.9 implements"
    assert "cudnn9:adv" in conflict.why
    assert "--model cnn --model rnn" in conflict.ways[0]
    assert "--include libcudnn_adv.so.9" in conflict.ways[1]


@pytest.mark.parametrize(
    ("include", "exclude", "dropped", "warnings"),
    [
        (("libcudnn_adv*",), (), set(), 0),
        ((), ("libcudnn_ops*",), {"libcudnn_ops.so.9", "libcudnn_adv.so.9", "libonly_adv.so.1"}, 0),
        ((), ("libcudnn.so.9",), None, 1),
        ((), ("libnothing*",), {"libcudnn_adv.so.9", "libonly_adv.so.1"}, 1),
        (("/lib/libcudnn_a*",), (), set(), 0),
        (("libc*",), ("libcudnn_adv*",), set(), 0),
    ],
)
def test_include_and_exclude(include, exclude, dropped, warnings):
    plan = plan_of(CUDNN, "cnn", include=include, exclude=exclude)
    assert dropped is None or {d.name for d in plan.of(Action.DROP)} == dropped
    assert len(plan.warnings) == warnings


def test_leaving_out_what_is_needed_is_told():
    (warning,) = plan_of("app -> liba.so.1", exclude=("liba*",)).warnings
    assert warning == "liba.so.1 is left out, but needed: the program will not start where the host lacks it"


def test_a_part_that_no_recipe_knows_is_kept_with_a_warning():
    plan = plan_of(CUDNN + "libcudnn.so.9 => libcudnn_quantum.so.9", "cnn")
    assert fates(plan)["libcudnn_quantum.so.9"] == "keep"
    assert [w for w in plan.warnings if "libcudnn_quantum.so.9" in w]


def test_strict_refuses_names_that_no_recipe_knows():
    mention = Mention("/lib/app", "libplugin.so", "")
    assert plan_of("", mentions=[mention]).complete
    assert not plan_of("", mentions=[mention], strict=True).complete


def test_parts_of_two_releases_do_not_mix():
    base = closure("app -> libcudnn.so.9 libcudnn.so.9 => libcudnn_ops.so.9")
    odd = Object(
        "/opt/libcudnn_ops.so.9", "/opt/libcudnn_ops.so.9", "/x", thing("libcudnn_ops.so.9").elf, How.CONF
    )
    edges = tuple(
        Edge(e.source, e.name, e.kind, e.evidence, odd.path, e.how) if e.name == "libcudnn_ops.so.9" else e
        for e in base.edges
    )
    plan = make_plan(Closure((*base.objects[:2], odd), edges), RECIPES, Choice())
    (conflict,) = plan.conflicts
    assert "come from 2 directories" in conflict.what
    assert "/opt" in conflict.why


def test_without_a_model_the_plan_tells_what_naming_one_would_save():
    savings = {s.model: s.size for s in plan_of(CUDNN).savings}
    assert savings["cnn"] == 2000
    assert savings["rnn"] == 1000
    assert not plan_of(CUDNN, "cnn").savings


def test_a_library_stands_in_the_bundle_under_the_names_it_is_asked_for_by():
    assert [d.file_names for d in plan_of("app -> liba.so.1").decisions[1:]] == [("liba.so.1",)]
    base = closure("app -> liba.so.1")
    asked = tuple(Edge(e.source, "libalias.so", e.kind, e.evidence, e.target, e.how) for e in base.edges)
    plan = make_plan(Closure(base.objects, asked), RECIPES, Choice())
    assert [d.file_names for d in plan.decisions[1:]] == [("libalias.so",)]


def test_two_files_of_one_name_do_not_fit_into_one_directory():
    base = closure("app -> liba.so.1 app -> libb.so.1")
    other = Object("/opt/liba.so.1", "/opt/liba.so.1", "/x", thing("liba.so.1").elf, How.PATH)
    edges = (
        *base.edges,
        Edge("/lib/app", "liba.so.1", Kind.DLOPEN, Evidence(Source.USER), other.path, How.PATH),
    )
    (conflict,) = make_plan(Closure((*base.objects, other), edges), RECIPES, Choice()).conflicts
    assert conflict.what == "two files are both liba.so.1"


@pytest.mark.parametrize(
    ("name", "runpath", "rpath", "conflicts"),
    [
        ("libmine.so.1", None, None, 0),
        ("libmine.so.1", "$ORIGIN", None, 0),
        ("libmine.so.1", "${ORIGIN}/.:/opt", None, 0),
        ("libmine.so.1", "/opt/lib", "$ORIGIN", 0),
        ("libmine.so.1", "$ORIGIN/..", "$ORIGIN", 0),
        ("libmine.so.1", "/opt/lib:$ORIGIN", "$ORIGIN", 0),
        ("libcublas.so.12", "/opt/lib:$ORIGIN", None, 0),
        ("libcublas.so.12", "$ORIGIN/..", None, 1),
        ("libcublas.so.12", "$ORIGIN", None, 0),
        ("libcublas.so.12", "/opt/lib", None, 1),
    ],
)
def test_a_library_that_looks_elsewhere_gets_an_rpath_unless_its_licence_forbids_it(
    name, runpath, rpath, conflicts
):
    base = closure(f"app -> {name} {name} -> libb.so.1")
    objects = tuple(
        replace(o, elf=replace(o.elf, runpath=runpath)) if o.name == name else o for o in base.objects
    )
    plan = make_plan(Closure(objects, base.edges), RECIPES, Choice())
    assert plan.decisions[1].change.rpath == rpath
    assert len(plan.conflicts) == conflicts


def test_a_library_that_is_needed_by_its_path_is_a_conflict():
    base = closure("app -> liba.so.1")
    edges = tuple(Edge(e.source, "/opt/liba.so.1", e.kind, e.evidence, e.target, e.how) for e in base.edges)
    (conflict,) = make_plan(Closure(base.objects, edges), RECIPES, Choice()).conflicts
    assert conflict.what == "app needs /opt/liba.so.1 by its path"


def test_the_program_is_stripped_and_gets_its_rpath():
    assert plan_of("app -> liba.so.1").program.change.words == ("stripped", "rpath $ORIGIN/../lib")
    assert plan_of("").program.change.words == ("stripped",)
    unstripped = make_plan(closure("app -> liba.so.1"), RECIPES, Choice(strip=False))
    assert unstripped.program.change.words == ("rpath $ORIGIN/../lib",)


@pytest.mark.parametrize(
    ("runpath", "found_by", "host", "rpath"),
    [
        ("/opt/b:/opt/a/:/opt/c", How.RUNPATH, "/base/opt", "$ORIGIN/../lib:/opt/b:/opt/a"),
        ("$LIB/x:/opt/a", How.RPATH, "/base/opt", "$ORIGIN/../lib:/opt/a:/opt/b"),
        ("/opt/a:/opt/b", How.CONF, "/base/opt", "$ORIGIN/../lib"),
        ("/opt/a:/opt/b", How.RUNPATH, "/elsewhere", "$ORIGIN/../lib"),
    ],
)
def test_directories_of_the_base_stay_behind_ours_in_the_rpath(runpath, found_by, host, rpath):
    drawn = closure("app -> liba.so.1 app -> libb.so.1 app -> libmine.so.1")

    def moved(o):
        if o.name == "app":
            return replace(o, elf=replace(o.elf, runpath=runpath))
        if o.name == "libmine.so.1":
            return o
        path = f"/opt/{o.name[3]}/{o.name}"
        return replace(o, path=path, host=f"{host}{path}", how=found_by, of="/lib/app")

    objects = tuple(map(moved, drawn.objects))
    places = {o.name: o.path for o in objects}
    edges = tuple(replace(e, target=places[e.name]) for e in drawn.edges)
    base = Destination(base="sha256:…", base_root="/base")
    plan = make_plan(Closure(objects, edges), RECIPES, Choice(destination=base))
    assert plan.program.change.rpath == rpath


def test_what_is_excluded_anyway_is_no_saving_of_a_model():
    assert {s.model for s in plan_of("app -> liba.so.1", exclude=("liba*",)).savings} == set()


def test_a_library_that_is_opened_by_its_path_is_a_warning():
    base = closure("app -> liba.so.1")
    evidence = Evidence(Source.USER, "liba*")
    edge = Edge("/lib/app", "plugins/liba.so.1", Kind.DLOPEN, evidence, "/lib/liba.so.1", How.PATH)
    (warning,) = make_plan(Closure(base.objects, (*base.edges, edge)), RECIPES, Choice()).warnings
    assert warning.startswith("liba.so.1 is opened by its path")


def test_a_file_under_two_names_counts_once():
    base = closure("app -> liba.so.1")
    edge = Edge("/lib/app", "liba.so", Kind.NEEDED, Evidence(Source.DYNAMIC), "/lib/liba.so.1", How.LOADED)
    plan = make_plan(Closure(base.objects, (*base.edges, edge)), RECIPES, Choice())
    assert (plan.count(Action.KEEP), plan.size(Action.KEEP)) == (2, 2000)
    assert plan.decisions[1].file_names == ("liba.so.1", "liba.so")


def test_excluding_the_program_is_a_warning():
    (warning,) = plan_of("app -> liba.so.1", exclude=("app",)).warnings
    assert warning == "--exclude app matches the program itself, which stays"


def test_a_c_library_in_the_bundle_is_a_warning():
    plan = plan_of("app -> libc.so.6", include=("libc.so.6",))
    assert [d.name for d in plan.of(Action.KEEP)] == ["app", "libc.so.6"]
    (warning,) = plan.warnings
    assert warning.startswith("libc.so.6 belongs to the host (GNU C library)")
