"""The options that every command about a program has, and the request they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from packager.analysis import Analysis, analyse
from packager.cli.sections import (
    DESTINATION_SECTION,
    GPU_SECTION,
    LIBRARIES_SECTION,
    PROGRAM_SECTION,
    option,
)
from packager.errors import usage
from packager.request import Aim, Request, Slicing, Supply

F = TypeVar("F", bound=Callable[..., Any])


_DIRECTORY = click.Path(path_type=Path, file_okay=False)


def _models(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from packager import recipes

    return [m.name for m in recipes.load().models if m.name.startswith(incomplete)]


def _targets(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from packager.cli.targets import target_names

    return target_names(context, parameter, incomplete)


def _hosts(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from packager.cli.targets import host_names

    return host_names(context, parameter, incomplete)


PROGRAM = click.argument("program", type=click.Path(path_type=Path, readable=False), metavar="APP")

_OPTIONS = (
    option(
        PROGRAM_SECTION,
        "-m",
        "--model",
        "models",
        multiple=True,
        metavar="TYPE",
        shell_complete=_models,
        help="Type of model in the program: cnn, rnn, transformer, mlp. Repeat for a program that holds several. "
        "Without it nothing is dropped.",
    ),
    option(
        PROGRAM_SECTION,
        "--include",
        multiple=True,
        metavar="GLOB",
        help="Keep what matches (soname or path). Repeatable.",
    ),
    option(
        PROGRAM_SECTION,
        "--exclude",
        multiple=True,
        metavar="GLOB",
        help="Leave out what matches (soname or path), unless --include matches it too. Repeatable.",
    ),
    option(
        PROGRAM_SECTION,
        "--recipes",
        "recipe_directories",
        multiple=True,
        type=_DIRECTORY,
        metavar="DIR",
        help="Add recipes from DIR; one of the same name replaces dpack's.",
    ),
    option(
        PROGRAM_SECTION, "--no-strip", is_flag=True, help="Keep the symbols and debug information of APP."
    ),
    option(PROGRAM_SECTION, "--strict", is_flag=True, help="Treat names that no recipe knows as missing."),
    option(
        LIBRARIES_SECTION,
        "-L",
        "--library-path",
        multiple=True,
        type=_DIRECTORY,
        metavar="DIR",
        help="Search DIR where the loader searches LD_LIBRARY_PATH. Repeatable.",
    ),
    option(
        LIBRARIES_SECTION,
        "-R",
        "--root",
        type=_DIRECTORY,
        default=Path("/"),
        metavar="DIR",
        help="Read the target's file system from DIR (a sysroot) instead of this machine's. "
        "APP stays a path of this machine.",
    ),
    option(
        LIBRARIES_SECTION,
        "--cudnn",
        type=click.Choice(["full", "jit"]),
        default="full",
        help="Which distribution of cuDNN: jit is a seventh of the size, for programs on its graph API alone and "
        "GPUs of compute capability 8.0 and above. Refused where the imports show that it will not do.",
    ),
    option(
        LIBRARIES_SECTION,
        "--fetch",
        is_flag=True,
        help="Fetch missing NVIDIA libraries from the package index.",
    ),
    option(
        LIBRARIES_SECTION,
        "--require",
        "pins",
        multiple=True,
        metavar="REQUIREMENT",
        help="With --fetch: which version, as in nvidia-cudnn-cu12==9.10.2.21. Repeatable; implies --fetch.",
    ),
    option(
        LIBRARIES_SECTION,
        "--offline",
        is_flag=True,
        help="With --fetch: use the package cache alone. Implies --fetch.",
    ),
    option(
        LIBRARIES_SECTION,
        "--index-url",
        metavar="URL",
        help="With --fetch: the package index, instead of pip's.",
    ),
    option(
        DESTINATION_SECTION,
        "--cpu",
        default="",
        metavar="LEVEL",
        help="glibc-hwcaps level of the target, e.g. x86-64-v3.",
    ),
    option(
        DESTINATION_SECTION,
        "-t",
        "--target",
        default="",
        metavar="NAME",
        shell_complete=_targets,
        help="The device that it is for: jetson-orin, l4, rtx-4090, … `dpack targets` lists them. Sets --platform, "
        "--gpu, --host and the compression of images.",
    ),
    option(
        DESTINATION_SECTION,
        "--platform",
        default="",
        metavar="OS/ARCH",
        help="The platform, e.g. linux/arm64.",
    ),
    option(
        DESTINATION_SECTION,
        "--gpu",
        "gpus",
        multiple=True,
        metavar="SM",
        help="The GPU, e.g. sm_86 or 8.6: every library must have code for it, and other code may go. Repeatable.",
    ),
    option(
        DESTINATION_SECTION,
        "--host",
        default="",
        metavar="NAME",
        shell_complete=_hosts,
        help="The system there, e.g. ubuntu-22.04: what it has is left out. `dpack targets --hosts` lists them.",
    ),
    option(
        DESTINATION_SECTION,
        "--host-csv",
        type=_DIRECTORY,
        metavar="DIR",
        help="A copy of a Jetson's lists of what its container runtime mounts.",
    ),
    option(
        DESTINATION_SECTION,
        "--base",
        default="",
        metavar="IMAGE",
        help="Resolve against an image, and build on it: oci:DIR, oci-archive:FILE, docker-archive:FILE, "
        "HOST/REPOSITORY:TAG, or scratch for none: then the C library goes in too.",
    ),
    option(
        DESTINATION_SECTION,
        "--plain-http",
        multiple=True,
        metavar="HOST",
        help="Pull the base from HOST without TLS. Repeatable.",
    ),
    option(
        GPU_SECTION,
        "--slice",
        "slicing",
        type=click.Choice(["auto", "vendor", "no"]),
        default="auto",
        help="With --gpu or --target: cut the GPU code of other GPUs out of files whose licence allows it (auto), "
        "out of NVIDIA's too (vendor), or out of none (no).",
    ),
    option(
        GPU_SECTION,
        "--ptx",
        type=click.Choice(["auto", "keep", "drop"]),
        default="auto",
        help="PTX in sliced files: where no machine code fits (auto), all that fits (keep), none (drop).",
    ),
)


def request_options(command: F) -> F:
    """Add the options; the command gets them as keyword arguments for :func:`analysis_of`."""
    for add in reversed(_OPTIONS):
        command = add(command)
    return command


def analysis_of(program: Path, **options: Any) -> Analysis:
    """Resolve and plan what the options ask for, with progress bars on stderr while something is fetched."""
    from packager.cli.progress import Bars

    with Bars() as bars:
        return analyse(request_of(program, **options), bars)


def request_of(program: Path, **options: Any) -> Request:
    """The request that the options make. Raises DpackError (exit 2) for options that say nothing."""
    _check(options)
    fetching = options["fetch"] or options["offline"] or options["pins"]
    supply = Supply(options["pins"], options["offline"], options["index_url"]) if fetching else None
    return Request(
        program=program,
        models=options["models"],
        root=options["root"],
        library_path=options["library_path"],
        cpu=options["cpu"],
        recipes=options["recipe_directories"],
        include=options["include"],
        exclude=options["exclude"],
        strict=options["strict"],
        strip=not options["no_strip"],
        supply=supply,
        cudnn=options["cudnn"],
        aim=Aim(
            target=options["target"],
            platform=options["platform"],
            gpus=options["gpus"],
            host=options["host"],
            host_csv=options["host_csv"],
            base=options["base"],
            plain_http=options["plain_http"],
            image=bool(options["base"] or (options.get("layer") and not options["host"])),
        ),
        slicing=Slicing(options["slicing"], options["ptx"]),
    )


def _check(options: dict[str, Any]) -> None:
    for name in ("include", "exclude"):
        if "" in options[name]:
            raise usage(
                f"cannot use --{name} ''",
                "it names nothing",
                next=f"check the variable that it came from, or leave --{name} out",
            )
    for name, value in (("slice", options["slicing"]), ("ptx", options["ptx"])):
        if value in {"vendor", "drop"} and not (options["gpus"] or options["target"]):
            raise usage(
                f"cannot use --{name} {value} here",
                "GPU code is cut out only for a GPU that is named",
                next="name it: --gpu SM or --target NAME",
            )


def fail_unless_complete(analysis: Analysis) -> None:
    """Raise the DpackError that names every conflict and every miss of the plan; nothing for a complete one."""
    from packager.account.missing import incomplete

    error = incomplete(analysis.plan, fetching=analysis.request.supply is not None)
    if error is not None:
        raise error
