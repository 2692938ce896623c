"""Which distributions hold the libraries that are missing: from sonames to requirements, by the recipes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from packager.errors import DpackError, usage
from packager.recipes import Package, Recipes, normalised


def requirements(
    missing: Sequence[str],
    present: Sequence[str],
    recipes: Recipes,
    pins: Sequence[str] = (),
    have: Collection[str] = (),
) -> tuple[str, ...]:
    """Requirement strings for the distributions that hold ``missing`` (sonames), sorted.

    The CUDA major version is the one that the names which are ``present`` imply, or else the missing ones:
    libcublas.so.12 belongs to CUDA 12 alone, libcudnn.so.9 to any. ``pins`` replace the plain name of the
    distributions that they are about; ``have`` were fetched already, and are not asked for again.

    Raises DpackError where a library comes in builds for several CUDA versions and nothing tells which, and
    (exit 2) where two pins for one distribution differ.
    """
    pinned = _pinned(pins)
    majors = recipes.cuda_majors(present) or recipes.cuda_majors(missing)
    found = set()
    for soname in missing:
        package = _choose(soname, recipes.packages_for(soname), majors, pinned)
        if package is not None and package.name not in have:
            found.add(pinned.get(package.name, package.requirement))
    return tuple(sorted(found))


def unused(pins: Sequence[str], have: Collection[str]) -> tuple[str, ...]:
    """Those of ``pins`` that are about none of the distributions ``have``."""
    return tuple(pin for pin in pins if _name(pin) not in have)


def _pinned(pins: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pin in pins:
        name = _name(pin)
        if found.setdefault(name, pin) != pin:
            raise usage(
                f"cannot use --require {pin} here",
                f"--require {found[name]} chooses {name} already",
                next="leave one of them out",
            )
    return found


def _name(pin: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - start-up time

    try:
        return normalised(Requirement(pin).name)
    except InvalidRequirement as error:
        raise usage(
            f"cannot read the requirement {pin!r}",
            str(error),
            next="write it as in: nvidia-cudnn-cu12==9.10.2.21",
        ) from error


def _choose(
    soname: str, packages: Sequence[Package], majors: Collection[int], pinned: Collection[str]
) -> Package | None:
    fitting = [p for p in packages if p.cuda is None or not majors or p.cuda in majors]
    first = list({p.cuda: p for p in reversed(fitting)}.values())[::-1]
    preferred = [p for p in fitting if p.name in pinned] or first
    if len(preferred) > 1:
        listed = " or ".join(package.name for package in preferred)
        raise DpackError(
            f"cannot choose a package for {soname}",
            f"it comes in builds for CUDA {', '.join(str(p.cuda) for p in preferred)}, and nothing tells which",
            next=f"name one: --require {preferred[-1].name} ({listed})",
        )
    return preferred[0] if preferred else None
