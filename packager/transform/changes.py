"""Which kept files are changed on their way into the bundle, and how. Pure: it only decides.

The program itself is stripped and gets the rpath to lib/. A library is changed only where it would not find
its neighbours otherwise: its own DT_RUNPATH hides the program's rpath from it (ld.so(8)) and does not name its
own directory. A file whose licence forbids changes is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from packager.plan import Action, Decision, Plan
from packager.recipes import Recipes

PROGRAM_RPATH = "$ORIGIN/../lib"
LIBRARY_RPATH = "$ORIGIN"


@dataclass(frozen=True, slots=True)
class Change:
    """What is done to one file: whether it is stripped, and the rpath that it gets (None: it keeps its own)."""

    strip: bool = False
    rpath: str | None = None

    def __bool__(self) -> bool:
        return self.strip or self.rpath is not None

    @property
    def words(self) -> tuple[str, ...]:
        """As the manifest lists it: ("stripped", "rpath $ORIGIN/../lib")."""
        stripped = ("stripped",) if self.strip else ()
        return stripped if self.rpath is None else (*stripped, f"rpath {self.rpath}")


@dataclass(frozen=True, slots=True)
class Changes:
    """The change of each kept file that has one, by its path; ``stuck`` are the names that would need one and
    may not be changed.
    """

    by_path: dict[str, Change]
    stuck: tuple[str, ...] = ()

    def of(self, decision: Decision) -> Change:
        """The change of one file; an empty one for most."""
        return self.by_path.get(decision.path, Change())


def changes_of(plan: Plan, recipes: Recipes, *, strip: bool = True) -> Changes:
    """Decide the changes of every kept file of ``plan``."""
    kept = plan.of(Action.KEEP)
    program, *libraries = kept
    elf = program.object.elf if program.object else None
    rpath = PROGRAM_RPATH if libraries and elf is not None and elf.dynamic and not elf.static else None
    changes = {program.path: Change(strip, rpath)}
    stuck = []
    for d in libraries:
        if _blind(d, kept):
            if d.family is None or recipes.licence(d.family).modify:
                changes[d.path] = Change(rpath=LIBRARY_RPATH)
            else:
                stuck.append(d.name)
    return Changes({path: change for path, change in changes.items() if change}, tuple(stuck))


def _blind(d: Decision, kept: tuple[Decision, ...]) -> bool:
    """True when ``d`` asks for another kept file, and its own search path leads it elsewhere."""
    elf = d.object.elf if d.object else None
    if elf is None or elf.runpath is None or _sees_its_own_directory(elf.runpath):
        return False
    return any(edge.source == d.path for other in kept for edge in other.edges)


def _sees_its_own_directory(runpath: str) -> bool:
    own = {"$ORIGIN", "${ORIGIN}"}
    return any(entry.rstrip("/.") in own or entry in own for entry in runpath.split(":"))
