"""The recipes that dpack ships, directories of a user's own, and the questions asked of both."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from recipe_files import FILES, FRAMEWORK, edited, write

from packager.errors import EXIT_USAGE, DpackError
from packager.recipes import Component, Recipes, built_in, load
from packager.recipes.globs import Globs


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return load()


def test_shipped_recipes_are_those_of_the_repository(recipes: Recipes) -> None:
    stems = sorted(path.stem for path in (built_in() / "libraries").glob("*.toml"))
    assert [family.name for family in recipes.families] == stems
    assert [model.name for model in recipes.models] == ["cnn", "mlp", "rnn", "transformer"]


def components(recipes: Recipes) -> list[Component]:
    return [component for family in recipes.families for component in family.components]


def test_every_feature_is_one_that_a_model_has_or_a_component_serves(recipes: Recipes) -> None:
    used = {feature for model in recipes.models for feature in model.features}
    for component in components(recipes):
        used.update(component.serves, *(loading.serves for loading in component.loaded))
    assert {feature.name for feature in recipes.features} == used - {"*"}


def test_every_licence_is_one_that_a_family_has(recipes: Recipes) -> None:
    assert {licence.name for licence in recipes.licences} == {family.licence for family in recipes.families}


def test_families_of_the_host_are_never_passed_on_by_mistake(recipes: Recipes) -> None:
    hosts = {family.name for family in recipes.families if family.provided_by == "host"}
    assert hosts == {"driver", "glibc", "musl", "rdma"}


SONAMES = [
    ("libcudnn.so.9", "cudnn9:shim"),
    ("libcudnn_adv.so.9", "cudnn9:adv"),
    ("libcudnn_adv.so.9.10.2", "cudnn9:adv"),
    ("/opt/cuda/lib/libcudnn_ext.so.9", "cudnn9:ext"),
    ("libcudnn_adv_infer.so.8", "cudnn8:adv_infer"),
    ("libcublas.so.12", "cublas:cublas"),
    ("libcublasLt.so.13", "cublas:cublasLt"),
    ("libcudart.so.11.0", "cudart:cudart"),
    ("libnvrtc.so.12", "nvrtc:nvrtc"),
    ("libnvrtc-builtins.so.12.9", "nvrtc:builtins"),
    ("libnvrtc.alt.so.12", "nvrtc:alt"),
    ("libcuda.so.1", "driver:cuda"),
    ("libnvidia-ml.so.535.54.03", "driver:ml"),
    ("libc.so.6", "glibc:libc"),
    ("libm-2.31.so", "glibc:parts"),
    ("ld-linux-aarch64.so.1", "glibc:loader"),
    ("ld-musl-x86_64.so.1", "musl:musl"),
    ("libstdc++.so.6.0.30", "gcc-runtime:stdcxx"),
    ("libonnxruntime.so.1.31.1", "onnxruntime:core"),
    ("libonnxruntime_providers_cuda.so", "onnxruntime:providers_cuda"),
    ("libtorch_cuda_linalg.so", "libtorch:torch_cuda_linalg"),
    ("libtensorflow_framework.so.2", "tensorflow:framework"),
    ("libnvinfer_builder_resource_sm86.so.10.3.0", "tensorrt:builder_resource"),
    ("libnvinfer.so.10", "tensorrt:nvinfer"),
    ("libcudnn_new.so.9", None),
    ("libcublasMystery.so.12", None),
    ("libfoo.so.1", None),
    ("xlibc.so.6", None),
]


@pytest.mark.parametrize(("name", "expected"), SONAMES)
def test_component_of_a_library(name: str, expected: str | None, recipes: Recipes) -> None:
    component = recipes.component(name)
    assert (component.id if component else None) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libcudnn_new.so.9", "cudnn9"),
        ("libcudnn_new.so.8.9.7", "cudnn8"),
        ("libnvidia-brandnew.so.600.10", "driver"),
        ("libcublasMystery.so.12", "cublas"),
        ("libtorch_xpu.so", "libtorch"),
        ("libz.so.1", None),
    ],
)
def test_new_library_of_a_known_family(name: str, expected: str | None, recipes: Recipes) -> None:
    family = recipes.family_of(name)
    assert recipes.component(name) is None
    assert (family.name if family else None) == expected


DISTRIBUTIONS = [
    ("libcudnn_adv.so.9", ["nvidia-cudnn-cu11 11", "nvidia-cudnn-cu12 12", "nvidia-cudnn-cu13 13"]),
    ("libcudnn_cnn_infer.so.8", ["nvidia-cudnn-cu11 11", "nvidia-cudnn-cu12 12"]),
    ("libcublasLt.so.11", ["nvidia-cublas-cu11 11"]),
    ("libcublasLt.so.12", ["nvidia-cublas-cu12 12"]),
    ("libcublasLt.so.13", ["nvidia-cublas 13"]),
    ("libcudart.so.11.0", ["nvidia-cuda-runtime-cu11 11"]),
    ("libcudart.so.12", ["nvidia-cuda-runtime-cu12 12"]),
    ("libcudart.so.13", ["nvidia-cuda-runtime 13"]),
    ("libnvrtc.so.11.2", ["nvidia-cuda-nvrtc-cu11 11"]),
    ("libnvrtc-builtins.so.12.9", ["nvidia-cuda-nvrtc-cu12 12"]),
    ("libnvrtc-builtins.so.13.5", ["nvidia-cuda-nvrtc 13"]),
    ("libcufft.so.10", ["nvidia-cufft-cu11 11"]),
    ("libcufft.so.11", ["nvidia-cufft-cu12 12"]),
    ("libcufft.so.12", ["nvidia-cufft 13"]),
    ("libcurand.so.10", ["nvidia-curand-cu11 11", "nvidia-curand-cu12 12", "nvidia-curand 13"]),
    ("libcusparse.so.11", ["nvidia-cusparse-cu11 11"]),
    ("libcusparse.so.12", ["nvidia-cusparse-cu12 12", "nvidia-cusparse 13"]),
    ("libcusolver.so.11", ["nvidia-cusolver-cu11 11", "nvidia-cusolver-cu12 12"]),
    ("libcusolver.so.12", ["nvidia-cusolver 13"]),
    ("libnvJitLink.so.12", ["nvidia-nvjitlink-cu12 12"]),
    ("libnvJitLink.so.13", ["nvidia-nvjitlink 13"]),
    ("libnccl.so.2", ["nvidia-nccl-cu11 11", "nvidia-nccl-cu12 12", "nvidia-nccl-cu13 13"]),
    ("libcuda.so.1", []),
    ("libc.so.6", []),
]


@pytest.mark.parametrize(("soname", "expected"), DISTRIBUTIONS)
def test_distributions_of_a_library(soname: str, expected: list[str], recipes: Recipes) -> None:
    assert [f"{package.name} {package.cuda}" for package in recipes.packages_for(soname)] == expected


@pytest.mark.parametrize(
    ("soname", "expected"),
    [
        ("libcudnn.so.8", ["nvidia-cudnn-cu11>=8,<9", "nvidia-cudnn-cu12>=8,<9"]),
        ("libcublas.so.13", ["nvidia-cublas"]),
        ("libtorch_cpu.so", []),
    ],
)
def test_release_that_holds_the_soname(soname: str, expected: list[str], recipes: Recipes) -> None:
    assert [package.requirement for package in recipes.packages_for(soname)] == expected


def left_out(recipes: Recipes, model: str, family: str) -> set[str]:
    features = recipes.model(model).features
    return {c.name for c in recipes.family(family).components if not c.used_with(features)}


@pytest.mark.parametrize(
    ("model", "cudnn9", "cudnn8"),
    [
        ("cnn", {"adv", "ext"}, {"adv_infer", "adv_train"}),
        ("rnn", {"cnn", "ext"}, set()),
        ("transformer", {"cnn", "ext"}, set()),
        ("mlp", {"cnn", "adv", "ext"}, {"adv_infer", "adv_train"}),
    ],
)
def test_what_a_model_leaves_out(model: str, cudnn9: set[str], cudnn8: set[str], recipes: Recipes) -> None:
    assert left_out(recipes, model, "cudnn9") == cudnn9
    assert left_out(recipes, model, "cudnn8") == cudnn8
    assert left_out(recipes, model, "cublas") == set()
    assert left_out(recipes, model, "nvrtc") == set()


def test_what_cudnn_opens(recipes: Recipes) -> None:
    shim, graph = recipes.component("libcudnn.so.9"), recipes.component("libcudnn_graph.so.9")
    assert shim
    assert graph
    assert [c.id for c, _ in recipes.opened_by(shim)] == [
        "cudnn9:graph",
        "cudnn9:ops",
        "cudnn9:cnn",
        "cudnn9:adv",
        "cudnn9:ext",
    ]
    opened = {c.id: loading.names for c, loading in recipes.opened_by(graph)}
    assert opened.keys() == {
        "cudnn9:heuristic",
        "cudnn9:engines_precompiled",
        "cudnn9:engines_runtime_compiled",
        "cudnn9:engines_tensor_ir",
        "driver:cuda",
        "nvrtc:nvrtc",
    }
    assert opened["cudnn9:heuristic"] == ("libcudnn_heuristic.so.9",)


def test_builtins_of_exactly_the_minor_version(recipes: Recipes) -> None:
    nvrtc = recipes.component("libnvrtc.so.12")
    assert nvrtc
    loadings = {c.id: loading for c, loading in recipes.opened_by(nvrtc)}
    assert loadings["nvrtc:builtins"].exact
    assert loadings["nvrtc:builtins"].names == ("libnvrtc-builtins.so.1[0-9].*",)


def test_loader_that_asks_for_fewer_features(recipes: Recipes) -> None:
    cufft = recipes.component("libcufft.so.12")
    assert cufft
    features = recipes.model("cnn").features
    asked = {loading.by: loading.used_with(features) for loading in cufft.loaded if loading.how == "dlopen"}
    assert asked == {"onnxruntime:providers_cuda": False, "tensorflow:framework": True}
    assert cufft.used_with(features)


def test_function_is_implemented_once_in_each_cudnn(recipes: Recipes) -> None:
    found = {component.id for component in recipes.implementers("cudnnRNNForward")}
    assert found == {"cudnn9:adv", "cudnn8:adv_infer"}
    assert recipes.implementers("main") == ()


def test_model_holds_the_features_of_those_it_includes(recipes: Recipes) -> None:
    assert recipes.model("mlp").features < recipes.model("cnn").features
    assert "convolution" in recipes.model("cnn").features


def test_unknown_model_suggests_the_near_one(recipes: Recipes) -> None:
    with pytest.raises(DpackError) as caught:
        recipes.model("CN")
    assert caught.value.exit == EXIT_USAGE
    assert caught.value.lines() == [
        "unknown model 'CN': did you mean 'cnn'?",
        "  next: the known ones are cnn, mlp, rnn, transformer; `dpack recipes list` tells more",
    ]


@pytest.mark.parametrize(
    ("name", "gpu", "cpu"),
    [
        ("opennn", 1_300_000_000, 3_200_000),
        ("onnxruntime", 2_000_000_000, 22_000_000),
        ("pytorch", 5_000_000_000, 442_000_000),
        ("tensorflow", 6_200_000_000, 752_000_000),
    ],
)
def test_published_sizes(name: str, gpu: int, cpu: int, recipes: Recipes) -> None:
    framework = next(each for each in recipes.frameworks if each.name == name)
    assert framework.gpu
    assert framework.cpu
    assert (framework.gpu.bytes, framework.cpu.bytes) == (gpu, cpu)
    # The published totals are rounded, their parts less so.
    assert sum(part.bytes for part in framework.gpu.parts) == pytest.approx(gpu, rel=0.03)


def test_directory_adds(tmp_path: Path) -> None:
    recipes = load([write(tmp_path, FILES)])
    assert recipes.family("acme").source == tmp_path / "libraries/acme.toml"
    assert recipes.model("screws").features == recipes.model("cnn").features - {"pooling"}
    train = recipes.component("libacme_train.so.3")
    assert train
    assert (train.id, train.since, train.loaded[0].by) == ("acme:train", "3.1", "acme:core")
    assert recipes.component("libcudnn_adv.so.9")


def test_directory_replaces_by_name(tmp_path: Path) -> None:
    shipped = load()
    text = (built_in() / "libraries/nccl.toml").read_text(encoding="utf-8")
    write(tmp_path, {"libraries/nccl.toml": edited(text, '"NVIDIA NCCL"', '"Our NCCL"')})
    recipes = load([tmp_path])
    assert recipes.family("nccl").title == "Our NCCL"
    assert recipes.family("nccl").source == tmp_path / "libraries/nccl.toml"
    assert [f for f in recipes.families if f.name != "nccl"] == [
        f for f in shipped.families if f.name != "nccl"
    ]


def test_later_directory_wins(tmp_path: Path) -> None:
    first = write(tmp_path / "a", FILES)
    second = write(
        tmp_path / "b", {"frameworks/acmeworks.toml": edited(FRAMEWORK, '"Acme Works"', '"Newer"')}
    )
    assert [f.title for f in load([first, second]).frameworks if f.name == "acmeworks"] == ["Newer"]
    assert [f.title for f in load([second, first]).frameworks if f.name == "acmeworks"] == ["Acme Works"]


def test_directory_adds_features_and_licences_name_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "features.toml": 'schema = 1\n[features]\nscrews = "Screws"\ngemm = "Products"',
            "licences.toml": 'schema = 1\n[licences.acme]\ntitle = "A"\nmodify = true\nredistribute = true\n'
            'note = "N"\nsource = "S"',
        },
    )
    recipes, shipped = load([tmp_path]), load()
    sentences = {feature.name: feature.about for feature in recipes.features}
    assert sentences["screws"] == "Screws"
    assert sentences["gemm"] == "Products"
    assert len(sentences) == len(shipped.features) + 1
    assert {each.name for each in recipes.licences} - {each.name for each in shipped.licences} == {"acme"}


def test_example_of_the_readme_loads(tmp_path: Path) -> None:
    readme = (built_in() / "README.md").read_text(encoding="utf-8")
    files = dict(re.findall(r"```toml\n# (\S+\.toml)\n(.*?)```", readme, flags=re.DOTALL))
    assert files.keys() == {
        "libraries/acme.toml",
        "features.toml",
        "licences.toml",
        "targets/acme-box.toml",
        "hosts/acme-os.toml",
    }
    recipes = load([write(tmp_path, files)])
    assert recipes.target("acme-box-2").compression == "gzip"
    assert recipes.host("acme-os").versions == {"GLIBC": "2.35"}
    assert left_out(recipes, "cnn", "acme") == {"train"}
    assert not recipes.licence(recipes.family("acme")).modify


def test_readme_names_every_key() -> None:
    readme = (built_in() / "README.md").read_text(encoding="utf-8")
    for path in sorted(built_in().rglob("*.toml")):
        if path.name != "features.toml":
            for key in re.findall(
                r"^(\w+) = |(?<=[{,] )(\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE
            ):
                assert f"`{key[0] or key[1]}`" in readme or key[0] == "schema", (path.name, key)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("libx.so.1", ["exact", "begins", "wide"]),
        ("libx.so.12", ["begins", "wide"]),
        ("liby.so.1", ["wide", "set"]),
        ("libY.so.1", ["wide"]),
        ("lib", []),
        ("li", []),
        ("", []),
    ],
)
def test_most_specific_pattern_comes_first(name: str, expected: list[str]) -> None:
    globs = Globs(
        [("lib?.so*", "wide"), ("libx.so.*", "begins"), ("libx.so.1", "exact"), ("lib[yz].so.1", "set")]
    )
    assert list(globs.matches(name)) == expected
