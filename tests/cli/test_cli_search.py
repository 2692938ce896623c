"""Libraries that are missing, foreign, looping or in a sysroot, and what the commands say about them."""

from __future__ import annotations

import pytest
from builders import fake_cuda
from builders.elf import AARCH64, Tiny

LINKED = ("libcudnn.so.9", "libcublas.so.12", "libcudart.so.12")


def test_all_misses_are_reported_together_with_the_places(dpack, cnn):
    (dpack.cwd / "empty").mkdir()
    result = dpack("bundle", cnn, "-L", "empty").refused(1, "3 things stand in the way", *LINKED)
    for name in LINKED:
        assert f"{dpack.cwd}/empty (library path)" in result.err
        assert f"{name}: needed by mnist, not found; searched:" in result.err
        assert f"{name}  " in result.out, "the plan lists it as missing"
    assert "--fetch" in result.err.splitlines()[-1]
    assert "--library-path" in result.err.splitlines()[-1]
    assert dpack.written == {"empty"}


def test_a_library_that_only_a_recipe_asks_for_is_a_miss_too(dpack, cnn, cuda):
    """cuDNN's parts are in no DT_NEEDED: without the recipe nobody would notice that one is gone."""
    some = dpack.cwd / "lib"
    some.mkdir()
    for library in cuda.iterdir():
        if "heuristic" not in library.name:
            (some / library.name).write_bytes(library.read_bytes())
    result = dpack("plan", cnn, "-L", "lib", "--model", "cnn")
    result.refused(1, "libcudnn_heuristic.so.9", "opened by libcudnn_graph.so.9", "libraries/cudnn9.toml")
    assert "one thing stands in the way" in result.err


def test_a_missing_part_that_the_model_leaves_out_is_no_miss(dpack, cnn, cuda):
    some = dpack.cwd / "lib"
    some.mkdir()
    for library in cuda.iterdir():
        if "adv" not in library.name:
            (some / library.name).write_bytes(library.read_bytes())
    dpack("plan", cnn, "-L", "lib", "--model", "cnn").done()
    dpack("plan", cnn, "-L", "lib").refused(1, "libcudnn_adv.so.9")


def test_a_library_of_another_machine_is_passed_over_and_said_so(dpack, cnn, cuda):
    wrong = dpack.cwd / "arm"
    Tiny(machine=AARCH64, soname="libcudart.so.12").write(wrong / "libcudart.so.12")
    search = ("-L", wrong, "-L", cuda)
    for told in (
        dpack("tree", cnn, *search).done().out,
        dpack("why", cnn, "libcudart.so.12", *search).done().out,
    ):
        assert f"{wrong}/libcudart.so.12: passed over: made for aarch64" in told
        assert f"{cuda}/libcudart.so.12" in told


def test_only_a_library_of_another_machine_is_a_miss_that_says_so(dpack):
    app = fake_cuda.compile_program(dpack.cwd / "src/app", (), fake_cuda.compile_libraries(
        [fake_cuda.Library("libmine.so.1", ("mine",))], dpack.cwd / "build"), ["libmine.so.1"])  # fmt: skip
    Tiny(machine=AARCH64, soname="libmine.so.1").write(dpack.cwd / "arm/libmine.so.1")
    dpack("plan", app, "-L", "arm").refused(
        1, "libmine.so.1", "made for aarch64", "the program is for x86_64"
    )


def test_links_that_lead_in_a_circle_are_a_miss_and_no_endless_search(dpack, cnn, cuda):
    loop = dpack.cwd / "loop"
    loop.mkdir()
    (loop / "libcudart.so.12").symlink_to("libcudart.so")
    (loop / "libcudart.so").symlink_to("libcudart.so.12")
    for name in ("libcudnn.so.9", "libcublas.so.12", "libcublasLt.so.12"):
        (loop / name).symlink_to(cuda / name)
    dpack("plan", cnn, "-L", "loop").refused(
        1, f"{loop} (library path): libcudart.so.12 passed over", "leads nowhere"
    )
    dpack("plan", cnn, "-L", "loop", "-L", cuda).done()


@pytest.fixture
def sysroot(dpack, cnn, cuda):
    """A device's file system as it lies on a build machine: absolute links that mean its own root."""
    root = dpack.cwd / "sysroot"
    libraries, store = root / "usr/lib/x86_64-linux-gnu", root / "opt/cuda/lib64"
    store.mkdir(parents=True)
    libraries.mkdir(parents=True)
    for library in cuda.iterdir():
        (store / library.name).write_bytes(library.read_bytes())
    (root / "usr/local").mkdir()
    (root / "usr/local/cuda").symlink_to("/opt/cuda")
    for library in cuda.iterdir():
        (libraries / library.name).symlink_to(f"/usr/local/cuda/lib64/{library.name}")
    (root / "lib").symlink_to("/usr/lib")
    Tiny(soname="libc.so.6").write(libraries / "libc.so.6")
    app = root / "srv/mnist"
    app.parent.mkdir()
    app.write_bytes(cnn.read_bytes())
    app.chmod(0o755)
    return root


@pytest.mark.usefixtures("sysroot")
def test_absolute_links_of_a_sysroot_stay_inside_it(dpack):
    told = dpack("plan", "sysroot/srv/mnist", "-R", "sysroot", "--model", "cnn", "--json").done().json
    kept = {row["name"]: row["path"] for row in told["decisions"] if row["action"] == "keep"}
    assert kept.keys() == fake_cuda.KEPT_FOR_CNN | {"mnist"}
    assert kept["mnist"] == "/srv/mnist"
    assert all(path.startswith(("/lib/", "/usr/lib/", "/srv/")) for path in kept.values()), kept


@pytest.mark.usefixtures("sysroot")
def test_a_program_named_as_the_target_sees_it_gets_a_hint(dpack):
    dpack("plan", "/srv/mnist", "-R", "sysroot").refused(
        2, "no such file on this machine", "sysroot/srv/mnist"
    )


@pytest.mark.usefixtures("sysroot")
def test_a_bundle_from_a_sysroot_holds_its_files(dpack, cuda):
    dpack("bundle", "sysroot/srv/mnist", "-R", "sysroot", "--model", "cnn", "-o", "out/").done()
    libraries = sorted((dpack.cwd / "out/lib").iterdir())
    assert {path.name for path in libraries} == fake_cuda.KEPT_FOR_CNN
    for path in libraries:
        assert not path.is_symlink()
        assert path.read_bytes() == (cuda / path.name).read_bytes()


def test_links_in_a_sysroot_that_lead_in_a_circle_are_a_miss(dpack, sysroot):
    link = sysroot / "usr/lib/x86_64-linux-gnu/libcudart.so.12"
    link.unlink()
    link.symlink_to("/usr/lib/x86_64-linux-gnu/libcudart.so.12")
    dpack("plan", "sysroot/srv/mnist", "-R", "sysroot").refused(1, "libcudart.so.12")


def test_parts_of_two_releases_are_a_conflict(dpack, cnn, cuda):
    """cuDNN refuses parts of another release while it runs: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH."""
    for library in cuda.iterdir():
        release = "new" if library.name in {"libcudnn.so.9", "libcudnn_graph.so.9"} else "old"
        target = dpack.cwd / release / library.name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(library.read_bytes())
    result = dpack("bundle", cnn, "-L", "new", "-L", "old", "--model", "cnn")
    result.refused(1, "cuDNN", f"{dpack.cwd}/new", f"{dpack.cwd}/old", "--library-path")
    assert dpack.written == {"new", "old"}


def test_two_whole_releases_in_reach_are_no_conflict(dpack, cnn, cuda):
    for release in ("new", "old"):
        (dpack.cwd / release).mkdir()
        for library in cuda.iterdir():
            (dpack.cwd / release / library.name).write_bytes(library.read_bytes())
    told = dpack("plan", cnn, "-L", "new", "-L", "old", "--model", "cnn", "--json").done().json
    paths = [row["path"] for row in told["decisions"] if row["action"] == "keep" and row["name"] != "mnist"]
    assert {path.rpartition("/")[0] for path in paths} == {f"{dpack.cwd}/new"}


def test_a_directory_of_links_is_one_place(dpack, cnn, cuda):
    """As Nix, Bazel and Spack make them: each library in a directory of its own, and one that links to all."""
    (dpack.cwd / "view").mkdir()
    for library in cuda.iterdir():
        real = dpack.cwd / "store" / library.name / library.name
        real.parent.mkdir(parents=True)
        real.write_bytes(library.read_bytes())
        (dpack.cwd / "view" / library.name).symlink_to(real)
    dpack("bundle", cnn, "-L", "view", "--model", "cnn", "-o", "out/").done()
    libraries = list((dpack.cwd / "out/lib").iterdir())
    assert {path.name for path in libraries} == fake_cuda.KEPT_FOR_CNN
    assert not any(path.is_symlink() for path in libraries)


def test_links_in_a_library_path_beside_a_sysroot_are_followed_on_this_machine(dpack, sysroot, cuda):
    """As `dpack fetch --sdk DIR` lays libraries out: DIR/lib links to the cache, which is in no sysroot."""
    for library in (sysroot / "usr/lib/x86_64-linux-gnu").glob("libcu*"):
        library.unlink()
    directory = dpack.cwd / "sdk/lib"
    directory.mkdir(parents=True)
    for library in cuda.iterdir():
        (directory / library.name).symlink_to(library)
    dpack("plan", "sysroot/srv/mnist", "-R", "sysroot", "-L", "sdk/lib", "--model", "cnn").done()
