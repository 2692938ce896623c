"""Requirement strings, for a chosen machine."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from packager.errors import DpackError, usage
from packager.source.wheelname import canonical_machine


@dataclass(frozen=True, slots=True)
class Want:
    """What is wanted of one project. ``text`` is for messages: the requirements as they were written."""

    name: str
    specifier: SpecifierSet
    text: str


def wants(requirements: Iterable[str], machine: str) -> tuple[Want, ...]:
    """Requirement strings as one Want a project, in their order.

    One whose marker is false on ``machine`` is left out. Usage error for a string that is no requirement,
    or one that names an address.
    """
    merged: dict[str, Want] = {}
    for text in requirements:
        requirement = _parsed(text)
        if not _applies(requirement, machine):
            continue
        want = _want(requirement)
        merged[want.name] = _both(merged[want.name], want) if want.name in merged else want
    return tuple(merged.values())


def _parsed(text: str) -> Requirement:
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise usage(
            f"cannot read the requirement {text!r}",
            str(error).splitlines()[0],
            next="write it as pip does: nvidia-cudnn-cu12==9.10.2.21",
        ) from None
    if requirement.url:
        raise usage(
            f"cannot fetch {requirement.name}",
            "the requirement names an address, and dpack fetches from package indexes",
            next=f"name a version: {requirement.name}==VERSION",
        )
    return requirement


def _want(requirement: Requirement) -> Want:
    bare = f"{requirement.name}{requirement.specifier}"
    return Want(canonicalize_name(requirement.name), requirement.specifier, bare)


def _both(first: Want, second: Want) -> Want:
    return Want(
        name=first.name,
        specifier=first.specifier & second.specifier,
        text=first.text if first.text == second.text else f"{first.text} and {second.text}",
    )


def _applies(requirement: Requirement, machine: str) -> bool:
    if requirement.marker is None:
        return True
    target: dict[str, str | AbstractSet[str]] = {
        **{key: str(value) for key, value in default_environment().items()},
        "platform_machine": canonical_machine(machine),
        "platform_system": "Linux",
        "sys_platform": "linux",
        "os_name": "posix",
        "extra": "",
    }
    try:
        return requirement.marker.evaluate(target)
    except UndefinedEnvironmentName as error:
        raise DpackError(f"cannot read the requirement {str(requirement)!r}", str(error)) from None
