"""From missing sonames to requirements, by the shipped recipes."""

import pytest
from builders.elf import Tiny, write_tree
from local_index import wheel_file

from packager import recipes as recipe_files
from packager.analysis import analyse
from packager.errors import EXIT_USAGE, DpackError
from packager.request import Request, Supply
from packager.source.needs import requirements

RECIPES = recipe_files.load()


@pytest.mark.parametrize(
    ("missing", "present", "pins", "have", "expected"),
    [
        (["libcublas.so.12"], [], [], [], ("nvidia-cublas-cu12",)),
        (["libcublas.so.13"], [], [], [], ("nvidia-cublas",)),
        (
            ["libcudnn.so.9", "libcublas.so.12"],
            [],
            [],
            [],
            ("nvidia-cublas-cu12", "nvidia-cudnn-cu12>=9,<10"),
        ),
        (["libcudnn.so.9"], ["libcudart.so.13"], [], [], ("nvidia-cudnn-cu13>=9,<10",)),
        (["libcudnn.so.9"], [], ["nvidia_cudnn_cu12==9.10.2.21"], [], ("nvidia_cudnn_cu12==9.10.2.21",)),
        (["libcublas.so.12", "libcublasLt.so.12"], [], [], ["nvidia-cublas-cu12"], ()),
        (["libnvrtc.so.12", "libnvrtc.so.13"], ["libcublas.so.12"], [], [], ("nvidia-cuda-nvrtc-cu12",)),
        (["libacme.so.1"], [], [], [], ()),
        (["libcudnn_graph.so.9"], ["libcudart.so.12"], [], [], ("nvidia-cudnn-cu12>=9,<10",)),
        (
            ["libcudnn.so.9"],
            ["libcudart.so.12"],
            ["nvidia-cudnn-jit-cu12==9.27.0.42", "nvidia-cudnn-jit-cu13"],
            [],
            ("nvidia-cudnn-jit-cu12==9.27.0.42",),
        ),
    ],
    ids=[
        "the soname tells the version of CUDA",
        "CUDA 13 has no suffix",
        "another missing library tells it",
        "one that is there tells it",
        "a pin tells it, and is passed on as it stands",
        "what was fetched is not asked for again",
        "of two versions the one in use",
        "what no recipe knows is not on the index",
        "of two for one version of CUDA the first",
        "unless another is named",
    ],
)
def test_requirements(missing, present, pins, have, expected):
    found = requirements(missing, present, RECIPES, pins, have)
    assert tuple(r.replace(" ", "") for r in found) == expected


def test_when_nothing_tells_the_version_of_cuda():
    with pytest.raises(DpackError, match=r"cannot choose a package for libcudnn\.so\.9") as caught:
        requirements(["libcudnn.so.9"], [], RECIPES)
    assert "CUDA 11, 12, 13" in caught.value.why
    assert "--require nvidia-cudnn-cu13" in caught.value.next


def test_a_pin_that_is_no_requirement():
    with pytest.raises(DpackError, match="cannot read the requirement 'nvidia cudnn'") as caught:
        requirements(["libcudnn.so.9"], [], RECIPES, ["nvidia cudnn"])
    assert caught.value.exit == 2


def test_two_pins_for_one_distribution_are_refused():
    pins = ["nvidia-cudnn-cu12==9.10.2.21", "nvidia_cudnn_cu12==9.28.0.42"]
    with pytest.raises(DpackError) as caught:
        requirements(["libcudnn.so.9"], [], RECIPES, pins)
    assert caught.value.exit == EXIT_USAGE
    assert all(pin in str(caught.value) for pin in pins)
    assert requirements(["libcudnn.so.9"], [], RECIPES, [pins[0], pins[0]]) == (pins[0],)


@pytest.mark.usefixtures("no_pip")
def test_a_wheel_that_lacks_the_library_is_fetched_once(index, tmp_path):
    index.add(wheel_file("nvidia-cublas-cu12", "12.9"))
    program = Tiny(interp="/lib64/ld-linux-x86-64.so.2", needed=("libcublas.so.12",))
    write_tree(tmp_path, [("/app/main", program)])
    request = Request(tmp_path / "app/main", supply=Supply(("NVIDIA_cublas.cu12==12.9",)))
    analysis = analyse(request)
    assert "libcublas.so.12" in {miss.name for miss in analysis.plan.misses}
    assert [each.name for each in analysis.fetched] == ["nvidia-cublas-cu12"]
    assert len(index.requests_of(".whl")) == 1
