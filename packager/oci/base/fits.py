"""Whether what a plan keeps runs on a base: the loader, the C library, and every symbol version."""

from __future__ import annotations

from collections.abc import Iterator

from packager.oci.base.reference import Base
from packager.plan import Action, Conflict, Decision, Plan
from packager.resolve.closure import Object
from packager.resolve.provided import C_LIBRARY_GROUP
from packager.resolve.versions import Defined, Unmet, defined_versions, highest, unmet


def conflicts(plan: Plan, base: Base) -> tuple[Conflict, ...]:
    """What stands in the way of ``plan`` on ``base``; nothing on scratch, where the plan has all of it.

    Raises ElfError where a library is damaged.
    """
    if base.root is None:
        return ()
    missing = tuple(_no_loader(plan, base)) or tuple(_no_c_library(plan, base))
    return (*missing, *_too_old(plan, base))


def _no_loader(plan: Plan, base: Base) -> Iterator[Conflict]:
    program = plan.program.object
    if program is None or program.elf.interp is None or base.sysroot().is_file(program.elf.interp):
        return
    has = base.provided(program.elf.machine).c_library
    yield Conflict(
        f"{program.name} does not start on {base.reference}",
        f"it is started by {program.elf.interp}, which the base has not; the base's C library: {has}",
        ("choose a base with the same C library", "bundle the C library too: --base scratch"),
    )


def _no_c_library(plan: Plan, base: Base) -> Iterator[Conflict]:
    parts = [d for d in plan.of(Action.HOST) if d.group == C_LIBRARY_GROUP]
    absent = [d.name for d in parts if not (d.object and base.has(d.object.host))]
    if absent:
        yield Conflict(
            f"{base.reference} has no {', '.join(absent)}",
            "a base must have the C library whole",
            ("choose another base", "bundle the C library too: --base scratch"),
        )


def _too_old(plan: Plan, base: Base) -> Iterator[Conflict]:
    """One conflict for each library that is too old; all files that want more of it stand in the reason."""
    loaded = [d for d in plan.decisions if d.object is not None and d.action is not Action.DROP]
    provider = Defined({name: versions for d in loaded for name, versions in _defined(d)})
    by_library: dict[str, list[Unmet]] = {}
    for lack in unmet([d.object for d in loaded if d.object], provider):
        by_library.setdefault(lack.library, []).append(lack)
    for library, lacks in by_library.items():
        best = highest(provider.versions[library])
        newest = ", ".join(f"{family}_{number}" for family, number in best.items())
        yield Conflict(
            f"{_whose(library, loaded, base)} is too old",
            f"{'; '.join(map(str, lacks))}; its newest: {newest}",
            (
                "choose a newer base",
                f"build {lacks[0].file} on a system as old as the base",
                "bundle the C library too: --base scratch",
            ),
        )


def _defined(d: Decision) -> Iterator[tuple[str, frozenset[str]]]:
    o: Object | None = d.object
    if o is not None and d.edges:
        versions = defined_versions(o.host)
        for name in {d.name, *d.file_names}:
            yield name, versions


def _whose(library: str, loaded: list[Decision], base: Base) -> str:
    own = any(d.object and base.has(d.object.host) for d in loaded if library in {d.name, *d.file_names})
    return f"{library} of {base.reference}" if own else f"the bundled {library}"
