"""cuDNN's JIT distribution: what it may serve, as a table of programs; what choosing it changes."""

from dataclasses import replace

import pytest

from packager import recipes as recipe_files
from packager.arch import Gpu
from packager.jit import (
    LIBRARIES,
    Import,
    choose,
    holds,
    lacks_compiler,
    narrowed,
    proof,
    told,
    with_compiler,
)
from packager.recipes import Package
from packager.resolve.closure import Closure, Edge, Evidence, Kind, Mention, Miss, Object, Source
from packager.resolve.elf import Elf
from packager.resolve.machine import machine_named
from packager.resolve.search import How

SHIPPED = recipe_files.load()
GRAPH = ("cudnnCreate", "cudnnBackendExecute", "cudnnGetVersion", "cudnnGetErrorString", "cudnnSetStream")


def with_packages(*packages):
    family = SHIPPED.family("cudnn9")
    full = tuple(p for p in family.packages if "jit" not in p.name)
    changed = replace(family, packages=(*full, *(Package(name, cuda, (), ">=9") for name, cuda in packages)))
    return replace(SHIPPED, families=tuple(changed if f == family else f for f in SHIPPED.families))


RECIPES = with_packages(("nvidia-cudnn-jit-cu12", 12), ("nvidia-cudnn-jit-cu13", 13))


def thing(name, *needed):
    elf = Elf(
        f"/lib/{name}",
        machine_named("x86_64"),
        3,
        1000,
        soname=name,
        needed=("libc.so.6", *needed),
        dynamic=True,
    )
    return Object(f"/lib/{name}", f"/lib/{name}", f"/lib/{name}", elf, How.DEFAULT)


def opens(source, name, *, found):
    evidence = Evidence(Source.RECIPE, "libraries/some.toml: part")
    if found:
        edge = Edge(f"/lib/{source}", name, Kind.DLOPEN, evidence, f"/lib/{name}", How.DEFAULT)
        return {"edges": (edge,)}
    return {"misses": (Miss(name, f"/lib/{source}", Kind.DLOPEN, evidence, (), (name,)),)}


def proven(*objects, imports=(), kept=None, gpus=("8.6",), **more):
    closure = Closure(**{"objects": objects, "edges": (), **more})
    paths = {o.path for o in objects} if kept is None else {f"/lib/{name}" for name in kept}
    found = [Import(f"/lib/{name}", symbol) for name, *symbols in imports for symbol in symbols]
    return proof(closure, paths, found, RECIPES, [Gpu.of(gpu) for gpu in gpus])


APP = thing("app", "libcudnn.so.9")
FRAMEWORK = thing("libframework.so", "libcudnn.so.9")


@pytest.mark.parametrize(
    ("case", "reasons"),
    [
        (proven(APP, imports=[("app", *GRAPH)]), ()),
        (proven(thing("app")), ()),
        (
            proven(APP, imports=[("app", *GRAPH, "cudnnConvolutionForward")]),
            ("app imports cudnnConvolutionForward, which libcudnn_cnn.so.9 implements",),
        ),
        (
            proven(
                APP,
                imports=[
                    (
                        "app",
                        "cudnnRNNForward",
                        "cudnnSoftmaxForward",
                        "cudnnPoolingForward",
                        "cudnnAddTensor",
                        "cudnnOpTensor",
                        "cudnnCreateTensorDescriptor",
                    )
                ],
            ),
            (
                "app imports cudnnRNNForward, which libcudnn_adv.so.9 implements",
                (
                    "app imports cudnnAddTensor, cudnnCreateTensorDescriptor, cudnnOpTensor and 2 more, "
                    "which libcudnn_ops.so.9 implements"
                ),
            ),
        ),
        (
            proven(APP, imports=[("app", "cudnnFoldProteins")]),
            ("app imports cudnnFoldProteins, which no recipe knows",),
        ),
        (
            proven(APP, FRAMEWORK, imports=[("app", *GRAPH), ("libframework.so", "cudnnCTCLoss")]),
            ("libframework.so imports cudnnCTCLoss, which libcudnn_adv.so.9 implements",),
        ),
        (proven(APP, FRAMEWORK, imports=[("libframework.so", "cudnnCTCLoss")], kept=("app",)), ()),
        (
            proven(
                thing("libcudnn_cnn.so.9", "libcudnn_ops.so.9"),
                imports=[("libcudnn_cnn.so.9", "cudnnIm2Col")],
            ),
            (),
        ),
        (
            proven(thing("app", "libcudnn_graph.so.9", "libcudnn_ops.so.9")),
            ("app links libcudnn_ops.so.9, which the JIT distribution does not hold",),
        ),
        (
            proven(thing("app"), **opens("app", "libcudnn.so.9", found=True)),
            ("app opens libcudnn.so.9 while it runs, so its imports do not tell which functions it calls",),
        ),
        (
            proven(thing("app"), **opens("app", "libcudnn.so.9", found=False)),
            ("app opens libcudnn.so.9 while it runs, so its imports do not tell which functions it calls",),
        ),
        (
            proven(
                thing("app"),
                mentions=(Mention("/lib/app", "libcudnn_cnn.so.9"), Mention("/lib/app", "libx.so")),
            ),
            (
                "app opens libcudnn_cnn.so.9 while it runs, so its imports do not tell which functions it calls",
            ),
        ),
        (proven(APP, **opens("app", "libcublasLt.so.12", found=True)), ()),
        (proven(APP, gpus=("8.0", "8.7", "9.0", "12.0")), ()),
        (proven(APP, gpus=("7.5", "8.6", "sm_61")), ("sm_75 is below sm_80", "sm_61 is below sm_80")),
    ],
    ids=[
        "the graph API alone",
        "no cuDNN at all",
        "one older function",
        "many, a library a line, three of them by name",
        "a function that no recipe knows stops it too",
        "a library's imports count",
        "but not those of one that is left out",
        "cuDNN's own imports do not",
        "a sub-library that is linked directly",
        "imports say nothing where it is opened",
        "found or not",
        "or only mentioned",
        "other libraries may be opened",
        "GPUs from 8.0 on",
        "older ones are named",
    ],
)
def test_proof(case, reasons):
    assert case.reasons == reasons
    assert case.possible is not bool(reasons)
    assert not case.notes


def test_without_a_gpu_the_capability_is_only_told():
    unchecked = proven(APP, gpus=())
    assert unchecked.possible
    assert unchecked.notes == ("cuDNN's JIT distribution needs a GPU of compute capability 8.0 or above",)


def test_with_the_narrowed_recipes_nothing_opens_what_it_does_not_hold():
    before, after = RECIPES.family("cudnn9"), narrowed(RECIPES).family("cudnn9")
    assert {c.name for c in after.components if c.loaded} == {"shim", "graph", "engines_runtime_compiled"}
    assert [c.name for c in after.components] == [c.name for c in before.components]
    for opener in after.components:
        for opened, _ in narrowed(RECIPES).opened_by(opener):
            assert opened.family != "cudnn9" or holds(opened)
    others = [f for f in narrowed(RECIPES).families if f.name not in ("cudnn9", "nvrtc")]
    assert others == [f for f in RECIPES.families if f.name not in ("cudnn9", "nvrtc")]


def test_the_compiler_is_good_to_have():
    compiler = narrowed(RECIPES).component("libnvrtc.so.12")
    assert RECIPES.component("libnvrtc.so.12").need == "required"
    assert compiler.need == "recommended"
    assert "hold a compiler" in compiler.without
    assert narrowed(RECIPES).component("libnvrtc-builtins.so.12.9").need == "required"


def cudnn_naming(*names):
    graph = thing("libcudnn_graph.so.9")
    return Closure((thing("app"), graph), (), mentions=tuple(Mention(graph.path, name) for name in names))


@pytest.mark.parametrize(
    ("closure", "compiler", "variable"),
    [
        (cudnn_naming("libcudnn_heuristic.so"), True, True),
        (cudnn_naming("libcudnn_heuristic.so", "libcudnn_engines_tensor_ir.so"), True, False),
        (cudnn_naming("libcudnn_engines_tensor_ir.so", "libcudnn_ext.so"), False, False),
        (Closure((thing("app"),), ()), False, False),
    ],
    ids=["9.10", "9.21", "9.24", "no cuDNN was found"],
)
def test_what_a_cudnn_wants_by_the_parts_that_it_names(closure, compiler, variable):
    recipes = narrowed(RECIPES)
    assert lacks_compiler(closure, recipes) is compiler
    assert any("CUDNN_LIB_CONFIG=GRAPH_JIT_ONLY" in text for text in told(closure, recipes)) is variable
    assert not lacks_compiler(closure, with_compiler(recipes, RECIPES))


def test_the_compiler_that_is_required_has_names_that_can_be_fetched():
    recipes = with_compiler(narrowed(RECIPES), RECIPES)
    assert recipes.component("libnvrtc.so.12").need == "required"
    opened = dict(recipes.opened_by(recipes.component("libcudnn_graph.so.9")))
    assert opened[recipes.component("libnvrtc.so.12")].names == (
        "libnvrtc.so.11.2",
        "libnvrtc.so.12",
        "libnvrtc.so.13",
    )


def test_its_libraries_are_three_components():
    held = [c for f in RECIPES.families for c in f.components if holds(c)]
    assert {RECIPES.component(name) for name in LIBRARIES} == set(held)
    assert len(held) == len(LIBRARIES)


@pytest.mark.parametrize(
    ("pins", "chosen"),
    [
        ((), ("nvidia-cudnn-jit-cu12>=9", "nvidia-cudnn-jit-cu13>=9")),
        (
            ("nvidia_cudnn.JIT_cu12==9.27.0.42", "nvidia-cuda-runtime-cu12==12.9.79"),
            (
                "nvidia_cudnn.JIT_cu12==9.27.0.42",
                "nvidia-cuda-runtime-cu12==12.9.79",
                "nvidia-cudnn-jit-cu13>=9",
            ),
        ),
        (
            ("nvidia-cudnn-cu12[extra]==9.10.2.21",),
            ("nvidia-cudnn-cu12[extra]==9.10.2.21", "nvidia-cudnn-jit-cu13>=9"),
        ),
    ],
    ids=["both versions of CUDA", "a pin of its own version stays", "so does one of the full distribution"],
)
def test_choose(pins, chosen):
    assert choose(pins, RECIPES) == chosen
