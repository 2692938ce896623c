"""ld.so's search, one rule a row: built in code, asked of the real loader, of dpack, of libtree and of lddtree.

Each tree is asked twice: as it stands in a directory of this machine, and as a root of its own (chroot for the
real loader, ``--root`` for dpack). The peers' answers are recorded; a row's ``peers`` names those that are known
to agree with ld.so on that rule.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import pytest
from builders import elf as build
from builders.elf import Tiny, write_tree
from builders.oracle import lddtree, libtree, ours, real_loader, trace, traced, walked

BOTH = ("libtree", "lddtree")
LIBTREE, LDDTREE, NEITHER = ("libtree",), ("lddtree",), ()

APP = "/bin/app"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. In paths, ``@`` stands for the tree's own root.

    ``expected``  path of each name, "" for a miss.
    ``peers``     the peers that agree with ld.so here.
    ``level``     the glibc-hwcaps sub-directories to search, None for those of this machine.
    """

    says: str
    program: Tiny
    files: tuple[tuple[str, Tiny | bytes | str], ...]
    expected: dict[str, str]
    peers: tuple[str, ...] = BOTH
    library_path: tuple[str, ...] = ()
    hwcaps: tuple[str, ...] | None = None


def program(*needed: str, rpath: str | None = None, runpath: str | None = None, flags_1: int = 0) -> Tiny:
    return Tiny(needed=needed, rpath=rpath, runpath=runpath, flags_1=flags_1)


def library(
    *needed: str, rpath: str | None = None, runpath: str | None = None, soname: str | None = None
) -> Tiny:
    return Tiny(needed=needed, rpath=rpath, runpath=runpath, soname=soname)


FOREIGN = Tiny(machine=build.AARCH64)

RULES = (
    Rule(
        "DT_RPATH of the program finds what the program needs",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library()),),
        {"libx.so": "@/a/libx.so"},
    ),
    Rule(
        "DT_RPATH of the program finds what its libraries need",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library("liby.so")), ("/a/liby.so", library())),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so"},
    ),
    Rule(
        "DT_RPATH of a library finds what its own libraries need",
        program("libx.so", rpath="@/a"),
        (
            ("/a/libx.so", library("liby.so", rpath="@/b")),
            ("/b/liby.so", library("libw.so")),
            ("/b/libw.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/b/liby.so", "libw.so": "@/b/libw.so"},
        LIBTREE,
    ),
    Rule(
        "the nearer DT_RPATH comes first in the chain",
        program("libx.so", rpath="@/a"),
        (
            ("/a/libx.so", library("liby.so", rpath="@/b")),
            ("/a/liby.so", library()),
            ("/b/liby.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/b/liby.so"},
    ),
    Rule(
        "the chain is that of loading, not every DT_RPATH: a sibling's does not count",
        program("libx.so", "liby.so", rpath="@/a"),
        (("/a/libx.so", library(rpath="@/b")), ("/a/liby.so", library("libw.so")), ("/b/libw.so", library())),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so", "libw.so": ""},
    ),
    Rule(
        "an object with DT_RUNPATH does not use the DT_RPATH of its loaders",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library("liby.so", runpath="@/none")), ("/a/liby.so", library())),
        {"libx.so": "@/a/libx.so", "liby.so": ""},
        LIBTREE,
    ),
    Rule(
        "an empty DT_RUNPATH counts as one",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library("liby.so", runpath="")), ("/a/liby.so", library())),
        {"libx.so": "@/a/libx.so", "liby.so": ""},
        LIBTREE,
    ),
    Rule(
        "DT_RPATH of a grand-loader reaches past a library with DT_RUNPATH",
        program("libx.so", rpath="@/a"),
        (
            ("/a/libx.so", library("liby.so", runpath="@/b")),
            ("/b/liby.so", library("libw.so")),
            ("/a/libw.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/b/liby.so", "libw.so": "@/a/libw.so"},
    ),
    Rule(
        "DT_RUNPATH is not inherited",
        program("libx.so", runpath="@/a"),
        (("/a/libx.so", library("liby.so")), ("/a/liby.so", library())),
        {"libx.so": "@/a/libx.so", "liby.so": ""},
        LIBTREE,
    ),
    Rule(
        "DT_RPATH is ignored beside a DT_RUNPATH of the same object",
        program("libx.so", rpath="@/a", runpath="@/b"),
        (("/a/libx.so", library()), ("/b/libx.so", library())),
        {"libx.so": "@/b/libx.so"},
    ),
    Rule(
        "and what the object loads does not see that DT_RPATH either",
        program("libx.so", rpath="@/a", runpath="@/b"),
        (("/b/libx.so", library("liby.so")), ("/a/liby.so", library())),
        {"libx.so": "@/b/libx.so", "liby.so": ""},
        LDDTREE,
    ),
    Rule(
        "DT_RPATH comes before LD_LIBRARY_PATH",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library()), ("/env/libx.so", library())),
        {"libx.so": "@/a/libx.so"},
        library_path=("@/env",),
    ),
    Rule(
        "LD_LIBRARY_PATH comes before DT_RUNPATH",
        program("libx.so", runpath="@/a"),
        (("/a/libx.so", library()), ("/env/libx.so", library())),
        {"libx.so": "@/env/libx.so"},
        library_path=("@/env",),
    ),
    Rule(
        "LD_LIBRARY_PATH is searched in its order, for every object",
        program("libx.so"),
        (("/one/libx.so", library("liby.so")), ("/two/libx.so", library()), ("/two/liby.so", library())),
        {"libx.so": "@/one/libx.so", "liby.so": "@/two/liby.so"},
        library_path=("@/one", "@/two"),
    ),
    Rule(
        "$ORIGIN is the directory of the object itself",
        program("libx.so", runpath="$ORIGIN/../a"),
        (("/a/libx.so", library("liby.so", runpath="$ORIGIN/b")), ("/a/b/liby.so", library())),
        {"libx.so": "@/bin/../a/libx.so", "liby.so": "@/bin/../a/b/liby.so"},
    ),
    Rule(
        "${ORIGIN} is the same",
        program("libx.so", runpath="${ORIGIN}/../a"),
        (("/a/libx.so", library()),),
        {"libx.so": "@/bin/../a/libx.so"},
    ),
    Rule(
        "$ORIGIN of a library is that of the path at which it was found, not of the file behind a link",
        program("libx.so", rpath="@/a"),
        (
            ("/a/libx.so", "../real/libx.so"),
            ("/real/libx.so", library("liby.so", runpath="$ORIGIN")),
            ("/a/liby.so", library()),
            ("/real/liby.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so"},
    ),
    Rule(
        "$ORIGIN keeps a linked directory",
        program("libx.so", rpath="@/link"),
        (
            ("/link", "real/sub"),
            ("/real/sub/libx.so", library("liby.so", runpath="$ORIGIN/../up")),
            ("/real/up/liby.so", library()),
            ("/up/liby.so", library()),
        ),
        {"libx.so": "@/link/libx.so", "liby.so": "@/link/../up/liby.so"},
        LIBTREE,
    ),
    Rule(
        ".. after a linked directory goes up from where the link leads",
        program("libx.so", rpath="@/link/../up"),
        (
            ("/link", "real/sub"),
            ("/real/sub/x", b""),
            ("/real/up/libx.so", library()),
            ("/up/libx.so", library()),
        ),
        {"libx.so": "@/link/../up/libx.so"},
        LIBTREE,
    ),
    Rule(
        "$ORIGIN of a token ends with it: $ORIGINAL and $ORIGIN_2 are plain text",
        program("libx.so", rpath="@/$ORIGINAL:@/$ORIGIN_2:@/${ORIGIN"),
        (("/$ORIGIN_2/libx.so", library()),),
        {"libx.so": "@/$ORIGIN_2/libx.so"},
        NEITHER,
    ),
    Rule(
        "$LIB is the loader's own library directory, $PLATFORM the kernel's platform",
        program("libx.so", "liby.so", rpath="@/p/$LIB:@/p/${PLATFORM}-x"),
        (("/p/%LIB%/libx.so", library()), ("/p/%PLATFORM%-x/liby.so", library())),
        {"libx.so": "@/p/%LIB%/libx.so", "liby.so": "@/p/%PLATFORM%-x/liby.so"},
        NEITHER,
    ),
    Rule(
        "a slash at the end of a directory changes nothing, several neither",
        program("libx.so", rpath="@/none/:@/a//"),
        (("/a/libx.so", library()),),
        {"libx.so": "@/a/libx.so"},
    ),
    Rule(
        "an entry that is a file, or missing, is skipped",
        program("libx.so", rpath="@/file:@/none:@/file/..:@/a"),
        (("/file", b"text"), ("/libx.so", library()), ("/a/libx.so", library())),
        {"libx.so": "@/a/libx.so"},
        LIBTREE,
    ),
    Rule(
        "glibc-hwcaps of the CPU come first in a directory, the best first",
        program("libx.so", "liby.so", rpath="@/a"),
        (
            ("/a/libx.so", library()),
            ("/a/glibc-hwcaps/%WORST%/libx.so", library()),
            ("/a/glibc-hwcaps/%BEST%/libx.so", library()),
            ("/a/glibc-hwcaps/%WORST%/liby.so", library()),
            ("/a/glibc-hwcaps/never/libx.so", library()),
        ),
        {"libx.so": "@/a/glibc-hwcaps/%BEST%/libx.so", "liby.so": "@/a/glibc-hwcaps/%WORST%/liby.so"},
        NEITHER,
    ),
    Rule(
        "glibc-hwcaps in LD_LIBRARY_PATH as well",
        program("libx.so"),
        (("/env/libx.so", library()), ("/env/glibc-hwcaps/%BEST%/libx.so", library())),
        {"libx.so": "@/env/glibc-hwcaps/%BEST%/libx.so"},
        NEITHER,
        library_path=("@/env",),
    ),
    Rule(
        "a CPU of the lowest level has no glibc-hwcaps",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library()), ("/a/glibc-hwcaps/%BEST%/libx.so", library())),
        {"libx.so": "@/a/libx.so"},
        hwcaps=(),
    ),
    Rule(
        "an earlier directory wins over glibc-hwcaps in a later one",
        program("libx.so", rpath="@/a:@/b"),
        (("/a/libx.so", library()), ("/b/glibc-hwcaps/%BEST%/libx.so", library())),
        {"libx.so": "@/a/libx.so"},
    ),
    Rule(
        "a name with a slash is a path and nothing is searched",
        program("@/deep/libx.so", "@/none/liby.so", rpath="@/a"),
        (("/deep/libx.so", library()), ("/a/liby.so", library())),
        {"@/deep/libx.so": "@/deep/libx.so", "@/none/liby.so": ""},
        LDDTREE,
    ),
    Rule(
        "$ORIGIN in a name with a slash",
        program("$ORIGIN/../deep/libx.so"),
        (("/deep/libx.so", library()),),
        {"@/bin/../deep/libx.so": "@/bin/../deep/libx.so"},
        NEITHER,
    ),
    Rule(
        "$PLATFORM in a name without a slash",
        program("libx-$PLATFORM.so", rpath="@/a"),
        (("/a/libx-%PLATFORM%.so", library()),),
        {"libx-%PLATFORM%.so": "@/a/libx-%PLATFORM%.so"},
        NEITHER,
    ),
    Rule(
        "a name that is the soname of a loaded object is not searched again",
        program("libx.so", "liby.so.1", rpath="@/a"),
        (("/a/libx.so", library(soname="liby.so.1")), ("/a/liby.so.1", library())),
        {"libx.so": "@/a/libx.so"},
        NEITHER,
    ),
    Rule(
        "needed names are followed level by level: a sibling is loaded before a grandchild",
        program("libx.so", "liby.so", rpath="@/a"),
        (
            ("/a/libx.so", library("libw.so", rpath="@/b")),
            ("/a/liby.so", library(soname="libw.so")),
            ("/b/libw.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so"},
        NEITHER,
    ),
    Rule(
        "one file under two names is one object",
        program("libx.so", "liby.so", rpath="@/a"),
        (("/a/libx.so", library()), ("/a/liby.so", "libx.so")),
        {"libx.so": "@/a/libx.so"},
    ),
    Rule(
        "the first name that asks decides the search of an object: later askers get the same",
        program("libx.so", "liby.so", rpath="@/a"),
        (
            ("/a/libx.so", library("libw.so", rpath="@/b")),
            ("/a/liby.so", library("libw.so", rpath="@/c")),
            ("/b/libw.so", library()),
            ("/c/libw.so", library()),
        ),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so", "libw.so": "@/b/libw.so"},
        LDDTREE,
    ),
    Rule(
        "a library of another machine is passed over",
        program("libx.so", rpath="@/a:@/b"),
        (("/a/libx.so", FOREIGN), ("/b/libx.so", library())),
        {"libx.so": "@/b/libx.so"},
    ),
    Rule(
        "a library of the other class is passed over",
        program("libx.so", rpath="@/a:@/b"),
        (("/a/libx.so", build.elf32()), ("/b/libx.so", library())),
        {"libx.so": "@/b/libx.so"},
    ),
    Rule(
        "a link that leads nowhere, or round in a circle, is no file",
        program("libx.so", "liby.so", rpath="@/a:@/b"),
        (
            ("/a/libx.so", "nowhere"),
            ("/b/libx.so", library()),
            ("/a/liby.so", "liby.so"),
        ),
        {"libx.so": "@/b/libx.so", "liby.so": ""},
        LIBTREE,
    ),
    Rule(
        "objects that need each other are loaded once",
        program("libx.so", rpath="@/a"),
        (("/a/libx.so", library("liby.so")), ("/a/liby.so", library("libx.so"))),
        {"libx.so": "@/a/libx.so", "liby.so": "@/a/liby.so"},
        LIBTREE,
    ),
)


def _tokens(text: str, at: str) -> str:
    """``text`` with this machine's $LIB, platform and glibc-hwcaps levels, and with the tree's root."""
    real = real_loader()
    lib = "lib" if not Path(f"/usr/lib/{real.machine.triplet}").is_dir() else f"lib/{real.machine.triplet}"
    lib = lib if lib != "lib" or real.machine.number == build.AARCH64 else "lib64"
    levels = real.hwcaps or ("none",)
    values = {"@": at, "%LIB%": lib, "%PLATFORM%": real.platform, "%BEST%": levels[0], "%WORST%": levels[-1]}
    for token, value in values.items():
        text = text.replace(token, value)
    return text


def _placed(tiny: Tiny, at: str) -> Tiny:
    """``tiny`` for this machine (a foreign one stays foreign), its paths under ``at``."""
    machine = tiny.machine if tiny is FOREIGN else real_loader().machine.number
    return replace(
        tiny,
        machine=machine,
        needed=tuple(_tokens(name, at) for name in tiny.needed),
        rpath=None if tiny.rpath is None else _tokens(tiny.rpath, at),
        runpath=None if tiny.runpath is None else _tokens(tiny.runpath, at),
    )


def _build(rule: Rule, root: Path, at: str) -> None:
    real = real_loader()
    write_tree(
        root,
        [
            (_tokens(name, at), _placed(what, at) if isinstance(what, Tiny) else what)
            for name, what in rule.files
        ],
    )
    _placed(rule.program, at).with_(interp=real.path).write(root / APP[1:])


def _as_sets(answer: dict[str, str]) -> tuple[frozenset[str], frozenset[str]]:
    found = frozenset(os.path.realpath(path) for path in answer.values() if path)
    return found, frozenset(name for name, path in answer.items() if not path)


def _id(rule: Rule) -> str:
    return rule.says


_TABLE = pytest.mark.parametrize("rule", RULES, ids=_id)


@_TABLE
def test_the_loader_and_dpack_agree_on_the_rule(rule, tmp_path):
    real, at = real_loader(), str(tmp_path)
    if "%BEST%" in str(rule.files) and not real.hwcaps:
        pytest.skip("this machine's CPU has no glibc-hwcaps level")
    _build(rule, tmp_path, at)
    library_path = [_tokens(path, at) for path in rule.library_path]
    expected = {_tokens(name, at): _tokens(path, at) for name, path in rule.expected.items()}
    command = [at + APP]
    if rule.hwcaps is not None:
        command = [real.path, "--glibc-hwcaps-mask", "", *command]
    told = trace(command, library_path=library_path)
    theirs = traced(told.stdout, real.path)
    assert theirs == expected, told.stderr
    mine = walked(ours(at + APP, library_path=library_path, hwcaps=rule.hwcaps))
    assert _renamed(mine, at) == expected


def _renamed(mine: dict[str, str], at: str) -> dict[str, str]:
    """An edge keeps the name as the file gives it; the loader shows it with its tokens replaced."""
    values = {"$ORIGIN": f"{at}/bin", "$PLATFORM": real_loader().platform}
    return {
        reduce(lambda text, token: text.replace(token, values[token]), values, n): p for n, p in mine.items()
    }


@_TABLE
def test_the_rule_holds_in_a_root_of_its_own(rule, tmp_path):
    real = real_loader()
    if "%BEST%" in str(rule.files) and not real.hwcaps:
        pytest.skip("this machine's CPU has no glibc-hwcaps level")
    _build(rule, tmp_path, "")
    loader = tmp_path / real.path[1:]
    loader.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(real.path, loader)
    library_path = [_tokens(path, "") for path in rule.library_path]
    expected = {_tokens(name, ""): _tokens(path, "") for name, path in rule.expected.items()}
    mask = [] if rule.hwcaps is None else ["--glibc-hwcaps-mask", ""]
    told = trace([real.path, *mask, APP], library_path=library_path, root=tmp_path)
    assert traced(told.stdout, real.path) == expected, told.stderr
    mine = walked(ours(APP, root=tmp_path, library_path=library_path, hwcaps=rule.hwcaps))
    assert _renamed(mine, "") == expected


@pytest.mark.parametrize("peer", BOTH)
@_TABLE
def test_the_peer_agrees_where_the_row_says_so(rule, peer, tmp_path):
    at = str(tmp_path)
    _build(rule, tmp_path, at)
    library_path = [_tokens(path, at) for path in rule.library_path]
    ask = {"libtree": libtree, "lddtree": lambda path, where: lddtree(str(path), where)}[peer]
    answer = ask(Path(at + APP), library_path)
    expected = _as_sets({_tokens(n, at): _tokens(p, at) for n, p in rule.expected.items()})
    print(f"{peer} {'agrees' if answer == expected else 'differs'}: {rule.says}")  # noqa: T201
    if peer in rule.peers:
        assert answer == expected
