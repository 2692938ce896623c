"""Bases as the user names them, what they provide, and programs that run on them, on none, or on nothing."""

import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from builders.base_images import LIBRARY, Layout, debian, docker_archive, layer, old_c_library, tree
from builders.elf import Tiny
from builders.oracle import in_root, missing, real_loader, require

from packager import recipes
from packager.decide import make_plan
from packager.emit import Item
from packager.errors import DpackError
from packager.oci.base import Base, c_library_places, configuration_items, conflicts, open_base, open_image
from packager.oci.descriptor import Platform
from packager.plan import Action, Choice
from packager.resolve.elf import read_elf
from packager.resolve.machine import machine_named
from packager.resolve.provided import supplement, with_own_c_library
from packager.resolve.search import Loader
from packager.resolve.sysroot import Sysroot
from packager.resolve.walk import resolve

AMD = Platform("linux", "amd64")
RECIPES = recipes.load()
SOURCE = r"""
#include <cstdio>
#include <dlfcn.h>
#include <iostream>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <stdexcept>
#include <cmath>
static void *ended(void *) { pthread_exit(nullptr); }
int main(int count, char **) {
    pthread_t thread;
    pthread_create(&thread, nullptr, ended, nullptr);
    pthread_join(thread, nullptr);
    try { throw std::runtime_error("caught"); } catch (std::exception &error) { std::cout << error.what(); }
    addrinfo *found = nullptr;
    getaddrinfo("127.0.0.1", "80", nullptr, &found);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    std::cout << " " << std::lround(std::exp(count)) << (getpwuid(0) ? " root" : " nobody")
              << (driver ? " driver" : " none") << std::endl;
    return found == nullptr;
}
"""


def machine():
    return machine_named(os.uname().machine)


def here():
    return Platform("linux", os.uname().machine).usual()


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """A C++ program that finds its libraries in ../lib, and elsewhere what a system has."""
    path = tmp_path_factory.mktemp("program") / "opt/app/bin/app"
    path.parent.mkdir(parents=True)
    flags = ["-pthread", "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib"]
    command = [require("g++"), "-xc++", "-", *flags, "-o", path, "-ldl"]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return path


@pytest.fixture(scope="session")
def system(tmp_path_factory):
    """An image of what Debian's packages of the C and C++ libraries put into a root."""
    layout = Layout()
    settings = {"Env": ["PATH=/bin", "LD_LIBRARY_PATH=/usr/local/nvidia/lib:/usr/local/lib/:"]}
    packages = debian("libc6", "libstdc++6", "libgcc-s1")
    layout.add(layer(*packages), platform=str(here()), compression="gzip", settings=settings, ref="system")
    return layout.write(tmp_path_factory.mktemp("system"))


def planned(program, sysroot, library_path=(), known=RECIPES):
    read = read_elf(program)
    loader = Loader.of(read, sysroot, library_path)
    closure = resolve(sysroot.inside(program), loader, known)
    return make_plan(closure, known, Choice(strip=False)), loader


def on_base(program, base):
    return planned(program, base.sysroot((program.parent,)), base.library_path)[0]


def test_a_base_knows_its_c_library(system, tmp_path):
    base = open_base(f"oci:{system}:system", here(), cache=tmp_path)
    provided = base.provided(machine())
    expected = subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=True)
    assert str(provided.c_library) == expected.stdout.strip()
    assert base.sysroot().is_file(provided.c_library.loader)
    families = {
        version.split("_")[0] for versions in provided.defined.versions.values() for version in versions
    }
    assert {"GLIBC", "GLIBCXX", "CXXABI", "GCC"} <= families
    assert base.library_path == ("/usr/local/nvidia/lib", "/usr/local/lib")


def test_a_program_fits_on_a_base_that_has_it_all(system, tmp_path, program):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    base = open_base(str(system), here(), cache=tmp_path / "link")
    plan = on_base(program, base)
    assert not plan.misses
    assert {d.name for d in plan.decisions if d.object and base.has(d.object.host)} >= {
        "libc.so.6",
        "libstdc++.so.6",
        "libgcc_s.so.1",
    }
    assert conflicts(plan, base) == ()


def test_an_old_base_is_named_with_the_file_and_the_symbols(system, tmp_path, program):
    layout = Layout()
    config = json.loads(open_image(system).config)
    below = next(
        p.read_bytes() for p in (system / "blobs/sha256").iterdir() if p.read_bytes()[:2] == b"\x1f\x8b"
    )
    import gzip  # noqa: PLC0415 - only here

    triplet = machine().triplet
    above = layer((f"usr/lib/{triplet}/libc.so.6", old_c_library(tmp_path)))
    assert len(config["rootfs"]["diff_ids"]) == 1
    layout.add(gzip.decompress(below), above, platform=str(here()))
    base = open_base(str(layout.write(tmp_path / "old")), here(), cache=tmp_path / "cache")
    found = conflicts(on_base(program, base), base)
    assert [conflict.what for conflict in found] == [f"libc.so.6 of {tmp_path / 'old'} is too old"]
    wanted = next(
        v for n in read_elf(program).versions if n.file == "libc.so.6" for v in n.versions if "2.34" in v
    )
    assert f"app wants {wanted} of libc.so.6 (" in found[0].why
    assert "pthread_create" in found[0].why
    assert found[0].why.endswith("its newest: GLIBC_2.2.5")


def test_a_base_with_another_c_library(tmp_path, program):
    layout = Layout()
    musl = f"lib/ld-musl-{machine().name}.so.1"
    layout.add(layer((musl, Tiny(machine=machine().number).build())), platform=str(here()))
    base = open_base(str(layout.write(tmp_path / "alpine")), here(), cache=tmp_path / "cache")
    assert str(base.provided(machine()).c_library) == "musl"
    found = conflicts(on_base(program, base), base)
    assert "the base's C library: musl" in found[0].why
    assert len(found) == 1


def test_a_base_with_nothing_in_it(tmp_path, program):
    layout = Layout()
    layout.add(platform=str(here()))
    base = open_base(str(layout.write(tmp_path / "empty")), here(), cache=tmp_path / "cache")
    assert str(base.provided(machine()).c_library) == "none"
    assert "does not start" in conflicts(on_base(program, base), base)[0].what


def test_a_base_with_a_loader_and_no_c_library(tmp_path, program):
    interp = real_loader().path
    layout = Layout()
    layout.add(layer((interp, Path(interp).read_bytes())), platform=str(here()))
    base = open_base(str(layout.write(tmp_path / "loader")), here(), cache=tmp_path / "cache")
    found = conflicts(on_base(program, base), base)
    assert [conflict.why for conflict in found] == ["a base must have the C library whole"]
    assert "libc.so.6" in found[0].what


def test_umoci_gives_a_root_that_resolves_the_same(system, tmp_path, program):
    command = [require("umoci"), "unpack", *([] if os.geteuid() == 0 else ["--rootless"])]
    subprocess.run(
        [*command, "--image", f"{system}:system", tmp_path / "bundle"], check=True, capture_output=True
    )
    whole, _ = planned(program, Sysroot.at(tmp_path / "bundle/rootfs", (program.parent,)))
    ours = on_base(program, open_base(str(system), here(), cache=tmp_path / "cache"))
    assert [(d.path, d.name, d.size) for d in ours.decisions] == [
        (d.path, d.name, d.size) for d in whole.decisions
    ]


def test_what_a_base_lacks_comes_from_elsewhere(tmp_path, program):
    """Where a base has no libstdc++, a link to this machine's stands in for it."""
    layout = Layout()
    layout.add(layer(("etc/x", b"")), platform=str(here()))
    base = open_base(str(layout.write(tmp_path / "empty")), here(), cache=tmp_path / "cache")
    read = read_elf(program)
    folder = tmp_path / "links"
    folder.mkdir()
    found = supplement(
        ["libstdc++.so.6", "libnothing.so", "libgcc_s.so.1"], read, Loader.of(read, Sysroot.at("/")), folder
    )
    assert found == ("libstdc++.so.6", "libgcc_s.so.1")
    sysroot = base.sysroot((program.parent,)).seeing([str(folder)])
    loader = replace(Loader.of(read, sysroot), store=(str(folder),))
    closure = resolve(sysroot.inside(program), loader, RECIPES)
    hosts = {o.name: o.host for o in closure.objects}
    assert hosts["libstdc++.so.6"] == os.path.realpath(hosts["libstdc++.so.6"])
    assert not base.has(hosts["libstdc++.so.6"])
    assert {miss.name for miss in closure.misses} & {"libstdc++.so.6", "libgcc_s.so.1"} == set()


def scratch_items(plan, loader):
    """The C library and what comes with it, as an image on nothing has them."""
    kept = plan.of(Action.KEEP)
    files = [Item(path, 0o755, Path(d.object.host)) for d in kept for path in c_library_places(d, loader)]
    return (*files, *configuration_items(plan, loader))


def written(items, root):
    for item in items:
        path = root / item.path
        if stat.S_ISDIR(item.mode):
            path.mkdir(mode=stat.S_IMODE(item.mode))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(item.source if isinstance(item.source, bytes) else item.source.read_bytes())
        path.chmod(item.mode)


@pytest.fixture
def from_scratch(tmp_path, program):
    """The program, what it needs, and nothing else, in a root of its own."""
    real_loader()
    plan, loader = planned(program, Sysroot.at("/"), known=with_own_c_library(RECIPES))
    root = tmp_path / "root"
    written(scratch_items(plan, loader), root)
    for d in plan.of(Action.KEEP):
        if d.object is not None and not c_library_places(d, loader):
            name = "bin/app" if d is plan.program else f"lib/{d.name}"
            target = root / "opt/app" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(d.object.host, target)
    return root


def run(root):
    try:
        done = subprocess.run(
            ["/opt/app/bin/app"],
            preexec_fn=in_root(root),
            env={"LD_ORIGIN_PATH": "/opt/app/bin"},  # a container has /proc, which tells the loader
            capture_output=True,
            text=True,
            check=False,
        )
    except (PermissionError, subprocess.SubprocessError) as error:
        missing(f"cannot change the root directory ({error})")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.split()


def test_an_image_from_scratch_runs_on_nothing(from_scratch, program):
    interp = read_elf(program).interp
    stands = tree(from_scratch)
    assert stands[interp.lstrip("/")].startswith("file ")
    assert run(from_scratch) == ["caught", "3", "nobody", "none"]


@pytest.mark.parametrize("place", ["usr/lib64", "usr/lib/{triplet}"])
def test_the_driver_is_found_where_the_container_toolkit_puts_it(from_scratch, place):
    directory = from_scratch / place.format(triplet=machine().triplet)
    directory.mkdir(parents=True)
    target = directory / "libcuda.so.1"
    flags = ["-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([require("gcc"), "-xc", "-", *flags, "-o", target], input="int x;", text=True, check=True)
    command = [require("ldconfig"), "-r", from_scratch, "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache"]
    subprocess.run(command, capture_output=True, check=True)
    assert run(from_scratch) == ["caught", "3", "nobody", "driver"]


def test_from_scratch_the_c_library_is_ours_and_the_driver_is_not(program):
    known = with_own_c_library(RECIPES)
    providers = {family.name: family.provided_by for family in known.families}
    assert (providers["glibc"], providers["musl"], providers["driver"]) == ("bundle", "bundle", "host")
    plan, loader = planned(program, Sysroot.at("/"), known=known)
    paths = [item.path for item in scratch_items(plan, loader)]
    first = loader.defaults[0].lstrip("/")
    assert {f"{first}/libc.so.6", f"{first}/libm.so.6", "etc/ld.so.cache", "etc/ld.so.conf"} <= set(paths)
    assert sum("ld-linux" in path for path in paths) == 1
    assert not any("libstdc++" in path for path in paths)


def test_a_static_program_needs_nothing(tmp_path):
    path = Tiny(dynamic=False, machine=machine().number).write(tmp_path / "static")
    plan, loader = planned(path, Sysroot.at("/"), known=with_own_c_library(RECIPES))
    assert [item.path for item in scratch_items(plan, loader)] == ["tmp"]


def test_musl_needs_its_loader_alone(tmp_path):
    interp = f"/lib/ld-musl-{machine().name}.so.1"
    number = machine().number
    Tiny(soname=Path(interp).name, machine=number).write(tmp_path / "root" / interp.lstrip("/"))
    path = Tiny(interp=interp, needed=(f"libc.musl-{machine().name}.so.1",), machine=number).write(
        tmp_path / "root/app"
    )
    (tmp_path / f"root/lib/libc.musl-{machine().name}.so.1").symlink_to(Path(interp).name)
    plan, loader = planned(path, Sysroot.at(tmp_path / "root"), known=with_own_c_library(RECIPES))
    assert [item.path for item in scratch_items(plan, loader)] == [interp.lstrip("/"), "tmp"]


ONE = layer(("usr/lib/libx.so.1", LIBRARY))


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A layout, an oci-archive and a docker-archive in the working directory."""
    monkeypatch.chdir(tmp_path)
    layout = Layout()
    layout.add(ONE, ref="app:1.0")
    layout.write(tmp_path / "layout")
    layout.archive(tmp_path / "image.tar")
    docker_archive(tmp_path / "saved.tar", ONE, tags=["app:1.0"])
    (tmp_path / "odd:name").mkdir()
    layout.write(tmp_path / "odd:name")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "oci:layout",
        "oci:layout:app:1.0",
        "oci-archive:image.tar",
        "oci-archive:image.tar:app:1.0",
        "docker-archive:saved.tar",
        "docker-archive:saved.tar:app:1.0",
        "layout",
        "./image.tar",
        "saved.tar",
        "odd:name",
        "oci:odd:name",
    ],
)
def test_the_ways_to_name_a_base(kept, text):
    base = open_base(text, AMD, cache=kept / "cache")
    assert tree(base.root).keys() == {"usr", "usr/lib", "usr/lib/libx.so.1"}
    assert (base.reference, base.platform) == (text, AMD)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("./nothing", "no such file"),
        ("oci:nothing", "No such file"),
        ("docker-archive:image.tar", "no manifest.json"),
        ("registry.example/app:1", "cannot find the base"),
    ],
)
def test_bases_that_are_not_there(kept, text, message):
    with pytest.raises(DpackError, match=message) as caught:
        open_base(text, AMD, cache=kept / "cache")
    assert caught.value.exit == 2


def test_a_reference_goes_to_the_registry(kept):
    asked = []

    def pull(reference, platform):
        asked.append((reference, platform))
        return open_image(kept / "layout")

    for text in ("registry.example/app:1", "docker://registry.example/app:1"):
        assert open_base(text, AMD, cache=kept / "cache", pull=pull).root
    assert asked == [("registry.example/app:1", AMD)] * 2


def test_an_image_for_another_platform_is_refused(kept):
    with pytest.raises(DpackError, match="it is for linux/amd64, and the program is for linux/arm64"):
        open_base(
            "registry.example/x",
            Platform("linux", "arm64"),
            cache=kept / "cache",
            pull=lambda *_: open_image(kept / "layout"),
        )


def test_scratch_has_nothing(tmp_path):
    base = open_base("scratch", AMD, cache=tmp_path / "cache")
    assert base == Base("scratch", None, None)
    assert (base.platform, base.library_path, base.has("/lib")) == (None, (), False)
    with pytest.raises(ValueError, match="no file system"):
        base.sysroot()


@pytest.mark.parametrize("target", ["oci:copy:x", "oci-archive:copy.tar:x", "docker-archive:copy.tar:x:1"])
def test_what_skopeo_writes_is_the_same_image(kept, target):
    command = [require("skopeo"), "copy", "--insecure-policy", "oci:layout", target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    base = open_base(target, AMD, cache=kept / "cache")
    assert base.root == open_base("oci:layout", AMD, cache=kept / "cache").root
