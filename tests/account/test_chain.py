from __future__ import annotations

from dataclasses import replace

import mnist_plan as sample
import pytest

from packager.account.chain import chain
from packager.plan import Action, Decision, Plan
from packager.resolve.closure import Edge, Evidence, Kind, Source


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("mnist", ()),
        ("libcudnn.so.9", ("mnist needs libcudnn.so.9",)),
        ("libdigits.so.1", ("mnist needs libdigits.so, which is libdigits.so.1",)),
        (
            "libcudart.so.12",
            (
                "mnist needs libcudnn.so.9",
                "libcudnn.so.9 opens libcudnn_graph.so.9 (libraries/cudnn9.toml: graph)",
                "libcudnn_graph.so.9 needs libcudart.so.12",
            ),
        ),
        (
            "libcudnn_adv.so.9",
            (
                "mnist needs libcudnn.so.9",
                "libcudnn.so.9 opens libcudnn_adv.so.9 (libraries/cudnn9.toml: adv)",
            ),
        ),
        ("libc.so.6", ("mnist needs libc.so.6",)),
        (
            "libcuda.so.1",
            (
                "mnist needs libcudnn.so.9",
                "libcudnn.so.9 opens libcudnn_graph.so.9 (libraries/cudnn9.toml: graph)",
                "libcudnn_graph.so.9 needs libcudart.so.12",
                "libcudart.so.12 opens libcuda.so.1 (libraries/driver.toml: cuda)",
            ),
        ),
    ],
)
def test_a_chain_leads_from_the_program_to_the_library(name, steps):
    plan = sample.mnist()
    assert chain(plan, next(d for d in plan.decisions if d.name == name)) == steps


@pytest.mark.parametrize(
    ("evidence", "step"),
    [
        (Evidence(Source.NOTE, "tpm"), "mnist opens liba.so (.note.dlopen: tpm)"),
        (Evidence(Source.NOTE), "mnist opens liba.so (.note.dlopen)"),
        (Evidence(Source.USER, "liba*"), "mnist opens liba.so (--include liba*)"),
        (Evidence(Source.STRING), "mnist opens liba.so (string)"),
    ],
)
def test_a_step_says_what_it_rests_on(evidence, step):
    o = sample.library("liba.so", 1)
    new = sample.keep(o, (sample.opened(sample.PROGRAM, o, evidence),), "opened by mnist")
    assert chain(with_more(new), new) == (step,)


def with_more(*decisions: Decision) -> Plan:
    base = sample.mnist()
    return replace(base, decisions=(*base.decisions, *decisions))


def test_a_name_with_a_path_is_told_without_it():
    o = sample.library("liba.so", 1)
    edge = replace(sample.needed(sample.PROGRAM, o), name="/home/ann/liba.so")
    new = sample.keep(o, (edge,), "needed by mnist")
    assert chain(with_more(new), new) == ("mnist needs liba.so",)


def dropped(name: str, *askers: str) -> Decision:
    o = sample.library(name, 1)
    edges = tuple(Edge(asker, name, Kind.NEEDED, Evidence(Source.DYNAMIC), o.path, o.how) for asker in askers)
    return Decision(Action.DROP, name, "left out", "", 1, o, edges=edges)


def test_dropped_files_that_need_each_other_do_not_go_in_circles():
    a = dropped("a.so", f"{sample.LIBS}/b.so", sample.ADV.path)
    b = dropped("b.so", f"{sample.LIBS}/a.so")
    plan = with_more(a, b)
    assert [step.split()[0] for step in chain(plan, b)] == [
        "mnist",
        "libcudnn.so.9",
        "libcudnn_adv.so.9",
        "a.so",
    ]


def test_what_nothing_leads_to_has_no_chain():
    a, b = dropped("a.so", f"{sample.LIBS}/b.so"), dropped("b.so", f"{sample.LIBS}/a.so")
    assert chain(with_more(a, b), b) == ()


def test_a_kept_file_follows_the_edge_that_decided():
    o = sample.library("liba.so", 1)
    edges = (sample.needed(sample.SHIM.path, o), sample.needed(sample.PROGRAM, o))
    new = sample.keep(o, edges, "needed by libcudnn.so.9")
    assert chain(with_more(new), new) == ("mnist needs libcudnn.so.9", "libcudnn.so.9 needs liba.so")
