"""Host profiles: those that dpack ships, against real packages where this machine has them, and bad ones."""

from __future__ import annotations

import platform
import re
import runpy
import subprocess
from pathlib import Path

import pytest
from recipe_files import edited, write
from test_targets import FILES, HOST

from packager.errors import EXIT_USAGE, DpackError
from packager.recipes import Host, Recipes, built_in, load
from packager.recipes.host import split_version

ROWS = runpy.run_path(str(built_in() / "hosts/read.py"))


@pytest.fixture(scope="module")
def recipes() -> Recipes:
    return load()


# The C and C++ run-time of each system. glibc's by its release; GLIBCXX and CXXABI by GCC's, as its ABI policy has
# them: 8 3.4.25 1.3.11, 10 3.4.28 1.3.12, 12 3.4.30 1.3.13, 14 3.4.33 1.3.15.
FLOORS = [
    ("jetpack4", "2.27", "3.4.25", "1.3.11"),
    ("jetpack5", "2.31", "3.4.28", "1.3.12"),
    ("jetpack6", "2.35", "3.4.30", "1.3.13"),
    ("jetpack7", "2.39", "3.4.33", "1.3.15"),
    ("ubuntu-20.04", "2.31", "3.4.28", "1.3.12"),
    ("ubuntu-22.04", "2.35", "3.4.30", "1.3.13"),
    ("ubuntu-24.04", "2.39", "3.4.33", "1.3.15"),
    ("ubuntu-26.04", "2.43", "3.4.33", "1.3.15"),
    ("debian-12", "2.36", "3.4.30", "1.3.13"),
    ("debian-13", "2.41", "3.4.33", "1.3.15"),
    ("distroless-base-debian12", "2.36", None, None),
    ("distroless-cc-debian12", "2.36", "3.4.30", "1.3.13"),
    ("distroless-base-debian13", "2.41", None, None),
    ("distroless-cc-debian13", "2.41", "3.4.33", "1.3.15"),
    ("manylinux2014", "2.17", "3.4.19", "1.3.7"),
    ("manylinux_2_28", "2.28", "3.4.24", "1.3.11"),
    ("manylinux_2_34", "2.34", "3.4.29", "1.3.13"),
]


@pytest.mark.parametrize(("name", "glibc", "glibcxx", "cxxabi"), FLOORS)
def test_run_time_of_a_host(
    name: str, glibc: str, glibcxx: str | None, cxxabi: str | None, recipes: Recipes
) -> None:
    versions = recipes.host(name).versions
    assert (versions["GLIBC"], versions.get("GLIBCXX"), versions.get("CXXABI")) == (glibc, glibcxx, cxxabi)


def test_every_shipped_host_has_its_run_time_in_the_table(recipes: Recipes) -> None:
    assert {recipes.host(name).name for name, *_ in FLOORS} == {host.name for host in recipes.hosts}


def test_every_host_has_loader_and_c_library_on_each_of_its_platforms(recipes: Recipes) -> None:
    loaders = {"linux/amd64": "ld-linux-x86-64.so.2", "linux/arm64": "ld-linux-aarch64.so.1"}
    for host in recipes.hosts:
        for each in host.platforms:
            here = host.on(each)
            assert here.platforms == (each,)
            assert here.supplies(loaders[each])
            assert here.supplies("libm.so.6")
            assert not [other for other in loaders if other != each and here.supplies(loaders[other])]


def test_only_the_driver_is_mounted(recipes: Recipes) -> None:
    mounted = {
        (host.name, package.name) for host in recipes.hosts for package in host.packages if package.mounted
    }
    assert mounted == {(f"jetpack{number}", "L4T driver") for number in (5, 6, 7)}
    found = recipes.host("l4t-r36").supplies("libcuda.so.1")
    assert found
    assert found.package.title == "L4T driver drivers.csv 36.3"


def test_a_profile_from_documents_says_so(recipes: Recipes) -> None:
    told = {host.name for host in recipes.hosts if host.evidence.startswith("From documents")}
    assert told == {host.name for host in recipes.hosts if re.match("ubuntu|jetpack", host.name)}


@pytest.mark.parametrize(
    ("wanted", "lacking"),
    [
        (["GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.36"], ()),
        (["GLIBC_2.38", "GLIBC_2.37", "GLIBC_2.34"], ("GLIBC_2.37", "GLIBC_2.38")),
        (["GLIBC_2.100"], ("GLIBC_2.100",)),
        (["GLIBC_ABI_DT_RELR", "GLIBC_PRIVATE"], ()),
        (["GLIBC_ABI_GNU2_TLS"], ("GLIBC_ABI_GNU2_TLS",)),
        (["GLIBCXX_3.4"], ("GLIBCXX_3.4",)),
    ],
)
def test_versions_that_a_library_lacks(wanted: list[str], lacking: tuple[str, ...], recipes: Recipes) -> None:
    libc = recipes.host("debian-12").on("linux/amd64").supplies("libc.so.6")
    assert libc
    assert libc.lacks(wanted) == lacking


def test_platforms_differ(recipes: Recipes) -> None:
    host = recipes.host("bookworm")
    amd64 = host.on("linux/amd64").supplies("libgcc_s.so.1")
    arm64 = host.on("linux/arm64").supplies("libgcc_s.so.1")
    assert amd64
    assert arm64
    assert amd64.lacks(["GCC_12.0.0"]) == ()
    assert arm64.lacks(["GCC_12.0.0", "GCC_11.0"]) == ("GCC_12.0.0",)


@pytest.mark.parametrize(
    ("version", "split"),
    [
        ("GLIBC_2.2.5", ("GLIBC", (2, 2, 5))),
        ("GLIBC_2.17", ("GLIBC", (2, 17))),
        ("GLIBCXX_3.4.30", ("GLIBCXX", (3, 4, 30))),
        ("GLIBC_PRIVATE", ("GLIBC_PRIVATE", ())),
        ("CXXABI_TM_1", ("CXXABI_TM", (1,))),
        ("OPENSSL_1_1_1d", ("OPENSSL_1_1_1d", ())),
        ("XZ_5.1.2alpha", ("XZ_5.1.2alpha", ())),
    ],
)
def test_split_of_a_symbol_version(version: str, split: tuple[str, tuple[int, ...]]) -> None:
    assert split_version(version) == split


def test_host_without_the_platform(recipes: Recipes) -> None:
    with pytest.raises(DpackError, match="cannot use the host profile jetpack6 for linux/amd64") as caught:
        recipes.host("jetpack6").on("linux/amd64")
    assert caught.value.exit == EXIT_USAGE
    assert caught.value.why == "it is known for linux/arm64"


BAD = {
    "a library of two packages": (
        edited(
            HOST,
            "[[package]]",
            '[[package]]\nname = "a"\nversion = "1"\nsonames = ["libm.so.6"]\n[[package]]',
        ),
        "package[1].sonames: libm.so.6 is in a already, for linux/arm64",
    ),
    "a platform that the host has not": (
        edited(HOST, 'version = "2.31-1"', 'version = "2.31-1"\nplatforms = ["linux/amd64"]'),
        "package[0].platforms: must be among those of the host, linux/arm64",
    ),
    "no platform": (
        edited(HOST, '"linux/arm64"', '"arm64"'),
        'host.platforms[0]: must be "linux/amd64" or "linux/arm64", not "arm64"',
    ),
    "no day": (
        edited(HOST, '"2026-11-21"', '"last week"'),
        'host.read: must be a day such as "2026-11-21", not "last week"',
    ),
    "no package": (HOST[: HOST.index("[[package]]")], "package: missing; it must be an array"),
    "no libraries": (
        edited(HOST, '["libc.so.6", "libm.so.6"]', "[]"),
        "package[0].sonames: must not be empty",
    ),
    "no compression": (
        edited(HOST, '"gzip"', '"lz4"'),
        'host.compression: must be "zstd" or "gzip", not "lz4"',
    ),
}


@pytest.mark.parametrize(("text", "problem"), BAD.values(), ids=BAD)
def test_bad_host(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(DpackError) as caught:
        load([write(tmp_path, FILES | {"hosts/box-os.toml": text})])
    assert f"{tmp_path}/hosts/box-os.toml: {problem}" in caught.value.tried


def release() -> dict[str, str]:
    try:
        lines = Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}


def installed(host: Host, packages: str) -> dict[str, str]:
    """Package by package the file that this machine has for a library of the profile."""
    found = {}
    for package in host.packages:
        if re.fullmatch(packages, package.name):
            for directory in (
                f"/lib/{platform.machine()}-linux-gnu",
                f"/usr/lib/{platform.machine()}-linux-gnu",
            ):
                for soname in package.sonames:
                    if Path(directory, soname).is_file():
                        found[soname] = str(Path(directory, soname).resolve())
    return found


@pytest.mark.skipif(
    f"{release().get('ID')}-{release().get('VERSION_ID')}" not in {"debian-12", "debian-13"}
    or platform.machine() not in {"x86_64", "aarch64"},
    reason="measures the libraries of a Debian that has a profile",
)
def test_profile_is_what_this_debian_has(recipes: Recipes) -> None:
    machine = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}[platform.machine()]
    host = recipes.host(f"debian-{release()['VERSION_ID']}").on(machine)
    files = installed(host, r"libc6|libgcc-s1|libstdc\+\+6|zlib1g|liblzma5")
    assert {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libz.so.1"} <= files.keys()
    for package in host.packages:
        mine = [files[soname] for soname in package.sonames if soname in files]
        if mine:
            assert ROWS["highest"](defined(mine)) == package.versions, package.title


def defined(files: list[str]) -> set[str]:
    """The symbol versions that readelf finds defined in the files, the files' own names left out."""
    names: set[str] = set()
    for file in files:
        told = subprocess.run(["readelf", "-VW", file], check=True, capture_output=True, text=True).stdout
        section = told.partition("Version definition section")[2].partition("Version needs section")[0]
        rows = re.findall(r"Rev: 1  Flags: (\S+).*?Name: (\S+)", section)
        names.update(name for flags, name in rows if flags != "BASE")
    return names


def test_rows_that_the_script_prints(tmp_path: Path) -> None:
    row = ROWS["Row"](
        "libc6",
        "2.31-1",
        ("libc.so.6", "libm.so.6"),
        ROWS["highest"]({"GLIBC_2.9", "GLIBC_2.31", "GLIBC_2.30", "GLIBC_PRIVATE"}),
    )
    text = HOST[: HOST.index("[[package]]")] + ROWS["rendered"](row, ["linux/arm64"])
    host = load([write(tmp_path, FILES | {"hosts/box-os.toml": text})]).host("box-os")
    (package,) = host.packages
    assert (package.name, package.version, package.sonames) == ("libc6", "2.31-1", ("libc.so.6", "libm.so.6"))
    assert package.versions == ("GLIBC_2.31", "GLIBC_PRIVATE")
