"""Resolve: walk from the program to everything that it loads, as the dynamic loader would, without running it.

DT_NEEDED is followed breadth-first, which decides what "already loaded" means, as in glibc's
``_dl_map_object_deps``. Then each object's dlopen edges are followed in loading order, each with its own needed
objects. A name that nothing answers becomes a miss, never an exception.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from packager.recipes import Component, Recipes
from packager.recipes.globs import is_glob
from packager.resolve.closure import Closure, Edge, Evidence, Kind, Mention, Miss, Need, Object, Source
from packager.resolve.dlopen import Wanted, mentions, strings_of, wanted
from packager.resolve.elf import Elf
from packager.resolve.imports import uses
from packager.resolve.search import Asker, Attempt, Found, How, Loader, NotFound


def resolve(program: str, loader: Loader, recipes: Recipes, include: Sequence[str] = ()) -> Closure:
    """The closure of ``program`` (its path as the target sees it).

    ``include`` are globs of names: what an object merely mentions becomes an edge where one matches, and a
    plain soname that nothing mentions is opened by the program itself. Raises ElfError for the program alone.
    """
    walk = _Walk(loader, recipes)
    walk.start(program)
    walk.open_all()
    walk.include(include)
    objects = tuple(walk.objects.values())
    return Closure(
        objects, tuple(walk.edges), tuple(walk.misses), walk.mentions(), tuple(uses(objects, recipes))
    )


class _Walk:
    def __init__(self, loader: Loader, recipes: Recipes) -> None:
        self.loader = loader
        self.recipes = recipes
        self.objects: dict[str, Object] = {}
        self.edges: list[Edge] = []
        self.misses: list[Miss] = []
        self._names: dict[str, str] = {}
        self._files: dict[tuple[int, int] | None, str] = {}
        self._opened = 0
        self._deferred: list[tuple[Object, Wanted]] = []
        self._looked: set[tuple[str, str]] = set()
        self._strings: dict[str, tuple[str, ...]] = {}
        self._mentions: dict[str, tuple[Mention, ...]] = {}

    def start(self, program: str) -> None:
        elf = self.loader.read(program)
        self._load(Found(program, elf, How.PROGRAM), "", self._interpreter(elf, program))

    def open_all(self) -> None:
        """Follow the dlopen edges. What could be one of several versions waits until the rest tells which."""
        while self._opened < len(self.objects) or self._deferred:
            if self._opened < len(self.objects):
                asker = list(self.objects.values())[self._opened]
                self._opened += 1
                if not self._on_host(asker.name):
                    for want in (*wanted(asker, self.recipes, self._strings_of), *self._unknown_parts(asker)):
                        self._open_or_wait(asker, want)
            else:
                self._open(*self._deferred.pop(0))

    def _unknown_parts(self, asker: Object) -> list[Wanted]:
        """Files beside ``asker`` that belong to its family and that no component claims: a new release may
        have brought them, and nobody knows yet what opens them.
        """
        family, directory = self.recipes.family_of(asker.name), posixpath.dirname(asker.path)
        if family is None or (family.name, directory) in self._looked:
            return []
        self._looked.add((family.name, directory))
        evidence = Evidence(Source.RECIPE, str(family.source), Need.OPTIONAL)
        return [
            Wanted((name,), evidence)
            for name in self.loader.sysroot.names(directory)
            if self.recipes.family_of(name) is family and self.recipes.component(name) is None
        ]

    def include(self, patterns: Sequence[str]) -> None:
        """Add what the user asks for: names that are mentioned, or any soname that can be found."""
        for pattern in patterns:
            evidence = Evidence(Source.USER, pattern)
            hits = [m for m in self.mentions() if fnmatchcase(m.name, pattern) and m.name not in self._names]
            for hit in hits:
                self._open(self.objects[hit.source], Wanted((hit.name,), evidence))
            loaded = any(
                fnmatchcase(name, pattern) for o in self.objects.values() for name in (o.name, o.path, o.real)
            )
            if not hits and not loaded and not is_glob(pattern):
                self._include_named(pattern, evidence)
        self.open_all()

    def _include_named(self, name: str, evidence: Evidence) -> None:
        """Open one library for each object that mentions it, and for the program where none does. What the user
        names by a path is opened by the name that the mention gives, or else by the file's own.
        """
        file = posixpath.basename(name)
        openers = [(m.source, m.name) for m in self.mentions() if posixpath.basename(m.name) == file]
        for source, called in openers or [(next(iter(self.objects)), file)]:
            self._open(self.objects[source], Wanted((name,), evidence, called=called))

    def mentions(self) -> tuple[Mention, ...]:
        """The strings of every object that is not the host's, without those that an edge answers."""
        found = [self._mentioned(o) for o in self.objects.values() if not self._on_host(o.name)]
        asked = {(edge.source, edge.name.partition(".so")[0]) for edge in self.edges}
        return tuple(
            mention
            for of_object in found
            for mention in of_object
            if (mention.source, mention.name.partition(".so")[0]) not in asked
        )

    def _on_host(self, name: str) -> bool:
        family = self.recipes.family_of(name)
        return family is not None and family.provided_by == "host"

    def _interpreter(self, elf: Elf, program: str) -> Found | None:
        """The dynamic loader itself, which the kernel maps: whoever needs its soname gets it from there."""
        answer = self.loader.take(elf.interp, How.INTERPRETER, program) if elf.interp else None
        return answer if isinstance(answer, Found) else None

    def _load(self, found: Found, loader: str, interpreter: Found | None = None) -> Object:
        """Map one object and, breadth-first, all that it needs."""
        first = self._add(found, loader)
        if interpreter is not None:
            base = posixpath.basename(interpreter.path)
            self._add(interpreter, first.path, base)
            if base.startswith("ld-musl-"):  # musl's loader is its C library too, and answers to that name
                self._names["libc.so"] = interpreter.path
            self._record(first, interpreter.path, Kind.NEEDED, Evidence(Source.INTERPRETER), interpreter)
        queue = [first]
        for asker in queue:
            for name, evidence in _linked(asker.elf):
                answer = self._find(name, asker)
                if isinstance(answer, Found) and answer.how is not How.LOADED:
                    queue.append(self._add(answer, asker.path, name))
                self._record(asker, name, Kind.NEEDED, evidence, answer)
        return first

    def _add(self, found: Found, loader: str, name: str = "") -> Object:
        sysroot = self.loader.sysroot
        real = sysroot.real(found.path) or found.path
        new = Object(
            path=found.path,
            real=real,
            host=sysroot.host(found.path) or found.path,
            elf=found.elf,
            how=found.how,
            of=found.of,
            loader=loader,
            passed_over=found.passed_over,
        )
        self.objects[found.path] = new
        self._files.setdefault(sysroot.identity(found.path), found.path)
        for known in (found.elf.soname, name):
            if known:
                self._names.setdefault(known, found.path)
        return new

    def _find(self, name: str, asker: Object) -> Found | NotFound:
        """The object that answers to ``name``: one already loaded under it, or what the search finds."""
        if name in self._names:
            path = self._names[name]
            return Found(path, self.objects[path].elf, How.LOADED)
        answer = self.loader.search(name, self._chain(asker))
        return self._same(answer, name) if isinstance(answer, Found) else answer

    def _same(self, found: Found, name: str) -> Found:
        """``found``, or the object that is already loaded from the same file under another path."""
        path = self._files.get(self.loader.sysroot.identity(found.path))
        if path is None:
            return found
        self._names.setdefault(name, path)
        return Found(path, self.objects[path].elf, How.LOADED)

    def _chain(self, asker: Object) -> list[Asker]:
        chain = []
        at: Object | None = asker
        while at is not None:
            # The kernel tells a program its path with links resolved (/proc/self/exe); for the rest, $ORIGIN
            # is the directory of the path at which the object was found.
            origin = posixpath.dirname(at.real if at.how is How.PROGRAM else at.path)
            chain.append(Asker(at.path, origin, at.elf))
            at = self.objects.get(at.loader)
        return chain

    def _record(self, asker: Object, name: str, kind: Kind, why: Evidence, answer: Found | NotFound) -> None:
        if isinstance(answer, Found):
            self.edges.append(Edge(asker.path, name, kind, why, answer.path, answer.how))
            return
        self.edges.append(Edge(asker.path, name, kind, why, "", None))
        self.misses.append(Miss(name, asker.path, kind, why, answer.attempts, (name,)))

    def _open_or_wait(self, asker: Object, want: Wanted) -> None:
        several = len(self.recipes.cuda_majors(want.names)) > 1
        if want.component and several and not self._cuda_in_use():
            self._deferred.append((asker, want))
        else:
            self._open(asker, want)

    def _open(self, asker: Object, want: Wanted) -> None:
        """Follow one dlopen edge: a recipe's names are each taken where found, a note's are alternatives."""
        names = self._of_this_cuda(want.names) if want.component else want.names
        attempts: list[Attempt] = []
        hits: list[tuple[str, Found]] = []
        for name in names:
            for candidate in self._matching(name, asker):
                answer = self._find(candidate, asker)
                if isinstance(answer, NotFound):
                    answer = self._nearby(candidate, asker, answer)
                if isinstance(answer, NotFound):
                    attempts += answer.attempts
                elif answer.path not in {found.path for _, found in hits}:
                    hits.append((candidate, answer))
            if hits and want.component is None:
                break
        for name, found in hits:
            if found.path not in self.objects:
                self._load(found, asker.path)
                self._names.setdefault(name, found.path)
            self._record(asker, want.called or name, Kind.DLOPEN, want.evidence, found)
        if not hits and not (want.component and self._of_another_version(want.component, asker)):
            self.edges.append(Edge(asker.path, names[0], Kind.DLOPEN, want.evidence, "", None))
            self.misses.append(
                Miss(names[0], asker.path, Kind.DLOPEN, want.evidence, tuple(dict.fromkeys(attempts)), names)
            )

    def _of_another_version(self, component: Component, asker: Object) -> bool:
        """True for a part that only some releases have, where the opener's strings show that it is not of one."""
        if not component.since and not component.until:
            return False
        stems = {mention.name.partition(".so")[0] for mention in self._mentioned(asker)}
        return not any(
            fnmatchcase(stem, name.partition(".so")[0]) for stem in stems for name in component.files
        )

    def _strings_of(self, o: Object) -> tuple[str, ...]:
        if o.path not in self._strings:
            self._strings[o.path] = strings_of(o)
        return self._strings[o.path]

    def _mentioned(self, o: Object) -> tuple[Mention, ...]:
        if o.path not in self._mentions:
            self._mentions[o.path] = mentions(o, self.recipes, self._strings_of)
        return self._mentions[o.path]

    def _matching(self, pattern: str, asker: Object) -> list[str]:
        """The names that ``pattern`` stands for: itself, or what matches beside the opener or else in reach."""
        if not is_glob(pattern):
            return [pattern]
        for directory in self._reach(asker):
            names = self.loader.sysroot.names(directory)
            hits = [name for name in names if fnmatchcase(name, pattern)]
            if hits:
                return hits
        return [pattern]

    def _nearby(self, name: str, asker: Object, missed: NotFound) -> Found | NotFound:
        """Beside the opener, or beside another object that was found: in the bundle all stand in one directory."""
        attempts = list(missed.attempts)
        for directory in self._reach(asker):
            answer = self.loader.take(posixpath.join(directory, name), How.BESIDE, asker.path)
            if isinstance(answer, Found):
                return self._same(answer, name)
            attempts += answer.attempts
        return NotFound(tuple(attempts))

    def _reach(self, asker: Object) -> list[str]:
        """Directories that a glob is matched in: the opener's own, the library path, those of other objects."""
        own = [posixpath.dirname(asker.path), posixpath.dirname(asker.real)]
        others = [posixpath.dirname(o.path) for o in self.objects.values() if not self._on_host(o.name)]
        loader = self.loader
        return list(dict.fromkeys([*own, *loader.library_path, *loader.lent, *loader.store, *others[1:]]))

    def _cuda_in_use(self) -> frozenset[int]:
        return self.recipes.cuda_majors([*self._names, *(miss.name for miss in self.misses)])

    def _of_this_cuda(self, names: tuple[str, ...]) -> tuple[str, ...]:
        in_use = self._cuda_in_use()
        majors = self.recipes.cuda_majors
        fitting = tuple(n for n in names if not majors([n]) or majors([n]) & in_use)
        return fitting or names


def _linked(elf: Elf) -> Iterator[tuple[str, Evidence]]:
    """What the loader maps with an object: what it needs, what it stands in for, and what may stand in for it."""
    yield from ((name, Evidence(Source.DYNAMIC)) for name in elf.needed)
    yield from ((name, Evidence(Source.FILTER)) for name in elf.filters)
    yield from ((name, Evidence(Source.AUXILIARY, need=Need.OPTIONAL)) for name in elf.auxiliaries)
