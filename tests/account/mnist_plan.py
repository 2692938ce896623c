"""A plan made by hand: a small convolution network over cuDNN 9, with round sizes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from packager.account.licence import LicenceText
from packager.account.manifest import Contents, Placed
from packager.account.origin import Origin, OriginKind
from packager.emit.item import Entry
from packager.plan import Action, Choice, Decision, Plan
from packager.recipes import Component, Family, Footprint, Framework, Licence, Model
from packager.resolve.closure import Edge, Evidence, Kind, Mention, Need, Object, Source
from packager.resolve.elf import Elf, VersionNeed
from packager.resolve.machine import Machine, machine_named
from packager.resolve.search import How

LIBS = "/home/ann/cache/site/nvidia/lib"
PROGRAM = "/home/ann/build/mnist"
MACHINE: Machine = machine_named("x86_64")  # type: ignore[assignment]


def family(name: str, group: str, licence: str = "nvidia-cuda", provided_by: str = "bundle") -> Family:
    source = Path("libraries") / f"{name}.toml"
    return Family(
        name=name,
        title=group,
        about=group,
        group=group,
        files=(),
        licence=licence,
        provided_by=provided_by,  # type: ignore[arg-type]
        one_version=False,
        packages=(),
        components=(),
        source=source,
    )


CUDNN = family("cudnn9", "cuDNN", "nvidia-cudnn")
CUDART = family("cudart", "CUDA runtime")
CUBLAS = family("cublas", "cuBLAS")
GLIBC = family("glibc", "C library", "lgpl", "host")
DRIVER = family("driver", "driver", "nvidia-driver", "host")


def component(of: Family, name: str, without: str = "") -> Component:
    return Component(of.name, name, name, (), ("*",), "required", without, (), "", "", (), "")


def elf(path: str, size: int, soname: str | None, *versions: str, interp: str | None = None) -> Elf:
    needs = (VersionNeed("libc.so.6", versions),) if versions else ()
    return Elf(path, MACHINE, 3, size, interp, soname, dynamic=True, versions=needs)


def library(name: str, size: int, *versions: str, directory: str = LIBS, soname: str | None = "") -> Object:
    path = f"{directory}/{name}"
    return Object(
        path, path, path, elf(path, size, name if soname == "" else soname, *versions), How.LIBRARY_PATH
    )


def needed(asker: str, target: Object, name: str = "") -> Edge:
    name = name or target.name
    return Edge(asker, name, Kind.NEEDED, Evidence(Source.DYNAMIC), target.path, target.how)


def opened(asker: str, target: Object, evidence: Evidence) -> Edge:
    return Edge(asker, target.name, Kind.DLOPEN, evidence, target.path, target.how)


def by_recipe(of: Component) -> Evidence:
    return Evidence(Source.RECIPE, f"libraries/{of.family}.toml: {of.name}")


def keep(
    o: Object, edges: tuple[Edge, ...], reason: str, of: Family | None = None, name: str = ""
) -> Decision:
    rule = edges[0].evidence.rule if edges else ""
    part = component(of, name) if of and name else None
    return Decision(Action.KEEP, o.name, reason, rule, o.elf.size, o, part, of, edges)


PROGRAM_OBJECT = Object(
    PROGRAM,
    PROGRAM,
    PROGRAM,
    elf(
        PROGRAM,
        5_200_000,
        None,
        "GLIBC_2.9",
        "GLIBC_2.34",
        "GLIBCXX_3.4.9",
        interp="/lib64/ld-linux-x86-64.so.2",
    ),
    How.PROGRAM,
)
SHIM = library("libcudnn.so.9", 100_000, "GLIBC_2.17")
GRAPH = library("libcudnn_graph.so.9", 4_400_000, "GLIBC_2.17")
ADV = library("libcudnn_adv.so.9", 285_226_600, "GLIBC_2.99")
BLAS = library("libcublas.so.12", 105_100_000)
RUNTIME = library("libcudart.so.12", 700_000)
DIGITS = library("libdigits.so.1.2", 30_000, directory="/home/ann/build", soname="libdigits.so.1")
LIBC = library("libc.so.6", 1_900_000, "GLIBC_PRIVATE", directory="/usr/lib")


def mnist() -> Plan:
    graph, adv = component(CUDNN, "graph"), component(CUDNN, "adv", "cudnnRNN* abort")
    cuda = Edge(
        RUNTIME.path,
        "libcuda.so.1",
        Kind.DLOPEN,
        Evidence(Source.RECIPE, "libraries/driver.toml: cuda", Need.OPTIONAL),
        "",
        None,
    )
    return Plan(
        choice=Choice((Model("cnn", "CNN", "", frozenset({"convolution"}), (), Path("cnn.toml")),)),
        decisions=(
            keep(PROGRAM_OBJECT, (), "the program itself"),
            keep(SHIM, (needed(PROGRAM, SHIM),), "needed by mnist", CUDNN, "shim"),
            keep(BLAS, (needed(PROGRAM, BLAS),), "needed by mnist", CUBLAS, "cublas"),
            keep(DIGITS, (needed(PROGRAM, DIGITS, "libdigits.so"),), "needed by mnist"),
            Decision(
                Action.HOST,
                "libc.so.6",
                "provided by the host (GNU C library)",
                "libraries/glibc.toml",
                LIBC.elf.size,
                LIBC,
                None,
                GLIBC,
                (needed(PROGRAM, LIBC),),
            ),
            keep(
                GRAPH,
                (opened(SHIM.path, GRAPH, by_recipe(graph)),),
                "opened by libcudnn.so.9",
                CUDNN,
                "graph",
            ),
            Decision(
                Action.DROP,
                "libcudnn_adv.so.9",
                "serves rnn; the model cnn has none of them",
                "libraries/cudnn9.toml: adv",
                ADV.elf.size,
                ADV,
                adv,
                CUDNN,
                (opened(SHIM.path, ADV, by_recipe(adv)),),
            ),
            keep(RUNTIME, (needed(GRAPH.path, RUNTIME),), "needed by libcudnn_graph.so.9", CUDART, "cudart"),
            Decision(
                Action.HOST,
                "libcuda.so.1",
                "provided by the host (NVIDIA driver); not seen here",
                "libraries/driver.toml",
                0,
                None,
                None,
                DRIVER,
                (cuda,),
            ),
        ),
        mentions=(Mention(DIGITS.path, "libplugin.so"),),
        warnings=("libnew.so is recommended and was not found",),
    )


STRIPPED = 4_000_000


def placed(plan: Plan) -> tuple[Placed, ...]:
    """bin/ and lib/ as dpack lays them out, the program stripped."""
    program, *libraries = plan.of(Action.KEEP)
    return (
        Placed("bin/mnist", program, ("stripped", "rpath")),
        *(Placed(f"lib/{decision.name}", decision) for decision in libraries),
    )


def contents(plan: Plan) -> Contents:
    hosts = [d.object.host for d in plan.decisions if d.object]
    wheel = Origin(OriginKind.WHEEL, "nvidia-all-cu12", "12.9", "nvidia/lib", Path("/home/ann/cache/site"))
    origins = {
        host: replace(wheel, path=f"nvidia/lib/{host.rpartition('/')[2]}")
        if host.startswith(LIBS)
        else Origin(OriginKind.FILE, host.rpartition("/")[2], "", host.rpartition("/")[2], Path(host).parent)
        for host in hosts
    }
    text = LicenceText("share/licenses/nvidia-all-cu12/License.txt", Path("/home/ann/License.txt"), wheel)
    return Contents(placed(plan), (text,), origins, LICENCES)


def entries(plan: Plan) -> tuple[Entry, ...]:
    """What the writer would return for these contents."""
    rows = [(one.path, STRIPPED if one.changes else one.decision.size) for one in placed(plan)]
    rows.append(("share/licenses/nvidia-all-cu12/License.txt", 50_000))
    return tuple(Entry(path, 0o644, size, hashlib.sha256(path.encode()).hexdigest()) for path, size in rows)


LICENCES = tuple(
    Licence(name, name.upper(), modify=name == "mit", redistribute=True, note="note", source="License.txt")
    for name in ("nvidia-cudnn", "mit", "nvidia-cuda")
)


def framework(name: str, gpu: int | None, cpu: int) -> Framework:
    def footprint(size: int) -> Footprint:
        return Footprint(size, f"all of {name}", "a table", "2026-06", ())

    title = f"{name.title()} | Co"
    return Framework(name, title, "", footprint(gpu) if gpu else None, footprint(cpu), Path(f"{name}.toml"))


FRAMEWORKS = (framework("big", 5_000_000_000, 442_000_000), framework("small", 90_000_000, 3_200_000))
