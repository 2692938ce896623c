"""ld.so.cache against ldconfig -p, damaged caches, and ld.so.conf."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from builders import table
from builders.elf import write_tree
from builders.oracle import missing, require
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.resolve.cache import CacheEntry, conf_directories, parse_cache
from packager.resolve.sysroot import Sysroot

MACHINE_CACHE = Path("/etc/ld.so.cache")


def cache(*entries: CacheEntry, levels: tuple[str, ...] = (), old: int = 0) -> bytes:
    """An ld.so.cache as ldconfig lays it out; ``old`` rows of the format before it stand in front.

    ``entries`` whose hwcaps are not among ``levels`` get a bit of the legacy capabilities instead.
    """
    strings, rows = bytearray(), []
    start = 48 + 24 * len(entries)

    def add(text: str) -> int:
        at = start + len(strings)
        strings.extend(text.encode() + b"\0")
        return at

    for entry in entries:
        capability = 0
        if entry.hwcaps:
            capability = 1 << 62 | levels.index(entry.hwcaps) if entry.hwcaps in levels else 1 << 5
        rows.append(struct.pack("<iIIIQ", entry.flags, add(entry.name), add(entry.path), 0, capability))
    indexes = [add(level) for level in levels]
    strings.extend(bytes(-len(strings) % 8))
    extension = start + len(strings) if levels else 0
    header = b"glibc-ld.so.cache1.1" + struct.pack("<IIB3xI12x", len(entries), len(strings), 2, extension)
    content = header + b"".join(rows) + strings
    if levels:
        content += struct.pack("<IIIIII", 0xEAA42174, 1, 1, 0, extension + 24, 4 * len(levels))
        content += struct.pack(f"<{len(levels)}I", *indexes)
    if not old:
        return content
    front = b"ld.so-1.7.0\0" + struct.pack("<I", old) + bytes(12 * old)
    return front.ljust(-(-len(front) // 8) * 8, b"\0") + content


PLAIN = CacheEntry("libx.so.1", "/lib/libx.so.1", 0x0303)
V2 = CacheEntry("libx.so.1", "/lib/glibc-hwcaps/x86-64-v2/libx.so.1", 0x0303, "x86-64-v2")
V3 = CacheEntry("libx.so.1", "/lib/glibc-hwcaps/x86-64-v3/libx.so.1", 0x0303, "x86-64-v3")
OTHER = CacheEntry("libx.so.1", "/lib32/libx.so.1", 0x0003)
LEGACY = CacheEntry("libx.so.1", "/lib/tls/libx.so.1", 0x0303, "tls")
LEVELS = ("x86-64-v2", "x86-64-v3")

LAYOUTS = (
    ("none", cache(), ()),
    ("one entry", cache(PLAIN), (PLAIN,)),
    ("of several machines", cache(PLAIN, OTHER), (PLAIN, OTHER)),
    ("with glibc-hwcaps", cache(V3, V2, PLAIN, levels=LEVELS), (V3, V2, PLAIN)),
    ("behind the format before it", cache(V2, PLAIN, levels=LEVELS, old=3), (V2, PLAIN)),
    ("behind an odd count of old rows", cache(PLAIN, old=1), (PLAIN,)),
    ("a legacy capability, which glibc 2.37 left out", cache(LEGACY, PLAIN), (PLAIN,)),
)

DAMAGED = (
    ("empty", b""),
    ("text", b"INPUT(libx.so)"),
    ("the magic alone", b"glibc-ld.so.cache1.1"),
    ("more entries than bytes", cache(PLAIN)[:60]),
    ("the old format alone", b"ld.so-1.7.0\0" + struct.pack("<I", 2) + bytes(24)),
    ("the old format with a count that is too large", b"ld.so-1.7.0\0" + b"\xff" * 64),
)


@table("content entries", LAYOUTS)
def test_a_cache_is_read(content, entries):
    assert parse_cache(content) == entries


@table("content", DAMAGED)
def test_what_is_no_cache_has_no_entries(content):
    assert parse_cache(content) == ()


@pytest.mark.parametrize("extension", [1, 40, 1 << 31, 0xFFFFFFFF])
def test_entries_of_a_level_that_cannot_be_named_are_left_out(extension):
    content = bytearray(cache(V3, PLAIN, levels=LEVELS))
    struct.pack_into("<I", content, 32, extension)
    assert parse_cache(bytes(content)) == (PLAIN,)


def test_the_cache_of_this_machine_is_what_ldconfig_prints():
    if not MACHINE_CACHE.is_file():
        missing("this machine has no ld.so.cache")
    told = subprocess.run([require("ldconfig"), "-p"], capture_output=True, text=True, check=True).stdout
    theirs = [
        (line.split(" (", 1)[0].strip(), line.split(" => ", 1)[1])
        for line in told.splitlines()
        if " => " in line
    ]
    assert [(entry.name, entry.path) for entry in parse_cache(MACHINE_CACHE.read_bytes())] == theirs


SEED = cache(V3, V2, PLAIN, OTHER, levels=LEVELS, old=1)


@settings(max_examples=500, deadline=2000)
@given(
    edits=st.lists(st.tuples(st.integers(0, len(SEED) - 1), st.binary(min_size=1, max_size=8)), max_size=6),
    size=st.integers(0, len(SEED)) | st.none(),
)
def test_a_damaged_cache_gives_entries_or_none_and_never_fails(edits, size):
    content = bytearray(SEED)
    for at, piece in edits:
        content[at : at + len(piece)] = piece
    for entry in parse_cache(bytes(content[:size])):
        assert entry.hwcaps.isprintable() or entry.hwcaps


CONF = (
    ("directories in their order", {"/etc/ld.so.conf": "/b\n/a\n/b\n"}, ("/b", "/a")),
    ("comments and blanks", {"/etc/ld.so.conf": "# none\n\n  /a   # here\n\t/b\n"}, ("/a", "/b")),
    ("a slash at the end", {"/etc/ld.so.conf": "/a/\n/\n"}, ("/a", "/")),
    (
        "hwcap lines and =type are no directories",
        {"/etc/ld.so.conf": "hwcap 1 nosegneg\n/a=libc6\n"},
        ("/a",),
    ),
    ("no file", {}, ()),
    (
        "includes, sorted, relative to the file that includes",
        {
            "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n/last\n",
            "/etc/ld.so.conf.d/2.conf": "/two\n",
            "/etc/ld.so.conf.d/1.conf": "/one\n",
            "/etc/ld.so.conf.d/.hidden.conf": "/hidden\n",
            "/etc/ld.so.conf.d/3.other": "/other\n",
        },
        ("/one", "/two", "/last"),
    ),
    (
        "two patterns in a line, tabs between them",
        {
            "/etc/ld.so.conf": "include\t/x/1.conf\t/x/[2-9].conf\n",
            "/x/1.conf": "/one\n",
            "/x/2.conf": "/two\n",
        },
        ("/one", "/two"),
    ),
    (
        "a glob over directories",
        {"/etc/ld.so.conf": "include /x/*/ld.conf\n", "/x/b/ld.conf": "/two\n", "/x/a/ld.conf": "/one\n"},
        ("/one", "/two"),
    ),
    (
        "an include of an include",
        {"/etc/ld.so.conf": "include /x/1\n", "/x/1": "include 2\n/one\n", "/x/2": "/two\n"},
        ("/two", "/one"),
    ),
    ("a file that includes itself", {"/etc/ld.so.conf": "/a\ninclude /etc/ld.so.conf\n/b\n"}, ("/a", "/b")),
    (
        "files that include each other, many times over",
        {
            "/etc/ld.so.conf": "include /x/*\n" * 9,
            "/x/1": "include /x/*\n/one\n" * 9,
            "/x/2": "include ../x/?\n" * 9,
        },
        ("/one",),
    ),
)


@table("files directories", CONF)
def test_the_directories_of_an_ld_so_conf(files, directories, tmp_path):
    write_tree(tmp_path, [(name, text.encode()) for name, text in files.items()])
    assert conf_directories(Sysroot.at(tmp_path)) == directories
