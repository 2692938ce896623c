"""Layers become a sysroot: what resolving asks for is in it, whiteouts are applied, and nothing lands outside."""

import os
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.base_images import COMPRESSIONS, DIRECTORY, LIBRARY, Hard, Layout, Special, digest, layer, tree
from builders.elf import ET_EXEC, ET_REL, Tiny, big_endian, elf32
from builders.oracle import require

from packager.errors import DpackError
from packager.oci.base import open_image, sysroot_of
from packager.oci.base.tree import OutsideError, Tree

OTHER = Tiny(soname="libother.so.1").build()
X = f"file {digest(LIBRARY)[7:15]}"
Y = f"file {digest(OTHER)[7:15]}"


def unpacked(tmp_path, *layers, **options):
    layout = Layout()
    layout.add(*layers, **options)
    image = open_image(layout.write(tmp_path / "layout"))
    return sysroot_of(image, tmp_path / "cache")


# Each row: layers, lowest first, and what stands in the root afterwards. With libraries alone for files, so that
# umoci, which keeps everything, must come to the same.
ROWS = {
    "files, directories, links": (
        [layer(("lib", "usr/lib"), ("usr", DIRECTORY), ("usr/lib", DIRECTORY), ("lib/a", LIBRARY))],
        {"lib": "-> usr/lib", "usr": "directory", "usr/lib": "directory", "usr/lib/a": X},
    ),
    "parents that no entry names": (
        [layer(("a/b/c", LIBRARY))],
        {"a": "directory", "a/b": "directory", "a/b/c": X},
    ),
    "names with and without a dot": (
        [layer(("./a/", DIRECTORY), ("./a/b", LIBRARY), ("a//./c", OTHER))],
        {"a": "directory", "a/b": X, "a/c": Y},
    ),
    "a later layer replaces a file": (
        [layer(("a", LIBRARY), ("b", LIBRARY)), layer(("a", OTHER))],
        {"a": Y, "b": X},
    ),
    "a whiteout removes a file": (
        [layer(("d/a", LIBRARY), ("d/b", LIBRARY)), layer(("d/.wh.a", b""))],
        {"d": "directory", "d/b": X},
    ),
    "a whiteout removes a directory": (
        [layer(("d/e/a", LIBRARY), ("b", LIBRARY)), layer((".wh.d", b""))],
        {"b": X},
    ),
    "a whiteout removes a link and not what it leads to": (
        [layer(("d/a", LIBRARY), ("l", "d")), layer((".wh.l", b""))],
        {"d": "directory", "d/a": X},
    ),
    "a whiteout below a link to a directory": (
        [layer(("usr/lib/a", LIBRARY), ("lib", "usr/lib")), layer(("lib/.wh.a", b""))],
        {"usr": "directory", "usr/lib": "directory", "lib": "-> usr/lib"},
    ),
    "an opaque directory loses what was below": (
        [layer(("d/a", LIBRARY), ("d/e/b", LIBRARY)), layer(("d/.wh..wh..opq", b""), ("d/c", OTHER))],
        {"d": "directory", "d/c": Y},
    ),
    "an opaque whiteout at the end of its layer": (
        [
            layer(("d/a", LIBRARY), ("d/e/b", LIBRARY)),
            layer(("d/c", OTHER), ("d/e/f", OTHER), ("d/.wh..wh..opq", b"")),
        ],
        {"d": "directory", "d/c": Y, "d/e": "directory", "d/e/f": Y},
    ),
    "a file becomes a directory and a directory a file": (
        [layer(("a", LIBRARY), ("b/c", LIBRARY)), layer(("a", DIRECTORY), ("a/x", OTHER), ("b", OTHER))],
        {"a": "directory", "a/x": Y, "b": Y},
    ),
    "a file becomes a link": (
        [layer(("a", LIBRARY), ("b", LIBRARY)), layer(("a", "b"))],
        {"a": "-> b", "b": X},
    ),
    "a link is replaced, not written through": (
        [layer(("a", LIBRARY), ("l", "a")), layer(("l", OTHER))],
        {"a": X, "l": Y},
    ),
    "a directory comes again": (
        [layer(("d", DIRECTORY), ("d/a", LIBRARY)), layer(("d", DIRECTORY), ("d/b", OTHER))],
        {"d": "directory", "d/a": X, "d/b": Y},
    ),
    "a hard link": ([layer(("a", LIBRARY), ("d/b", Hard("a")))], {"a": X, "d": "directory", "d/b": X}),
    "a hard link to a lower layer": ([layer(("a", LIBRARY)), layer(("b", Hard("./a")))], {"a": X, "b": X}),
    "a hard link outlives its target": (
        [layer(("a", LIBRARY), ("b", Hard("a"))), layer((".wh.a", b""))],
        {"b": X},
    ),
    "a hard link through a link to a directory": (
        [layer(("usr/lib/a", LIBRARY), ("lib", "usr/lib"), ("b", Hard("lib/a")))],
        {"usr": "directory", "usr/lib": "directory", "usr/lib/a": X, "lib": "-> usr/lib", "b": X},
    ),
    "an absolute link is the root's own": (
        [layer(("usr/lib", DIRECTORY), ("lib", "/usr/lib"), ("lib/a", LIBRARY))],
        {"usr": "directory", "usr/lib": "directory", "usr/lib/a": X, "lib": "-> /usr/lib"},
    ),
    "long names, as pax writes them": (
        [layer(("d" * 120 + "/" + "n" * 200, LIBRARY))],
        {"d" * 120: "directory", "d" * 120 + "/" + "n" * 200: X},
    ),
    "long names, as GNU tar writes them": (
        [layer(("d" * 120 + "/" + "n" * 200, LIBRARY), ("l", "t" * 180), tar_format=tarfile.GNU_FORMAT)],
        {"d" * 120: "directory", "d" * 120 + "/" + "n" * 200: X, "l": "-> " + "t" * 180},
    ),
    "no entry": ([layer(), layer(("a", LIBRARY)), layer()], {"a": X}),
    "no layer": ([], {}),
}


@pytest.mark.parametrize("row", ROWS)
def test_layers_make_a_root(tmp_path, row):
    layers, expected = ROWS[row]
    assert tree(unpacked(tmp_path, *layers)) == expected


@pytest.mark.parametrize("row", ROWS)
def test_umoci_makes_the_same_root(tmp_path, row):
    umoci, (layers, expected) = require("umoci"), ROWS[row]
    layout = Layout()
    layout.add(*layers, ref="x", compression="gzip")
    layout.write(tmp_path / "layout")
    command = [
        umoci,
        "unpack",
        *([] if os.geteuid() == 0 else ["--rootless"]),
        "--image",
        "layout:x",
        "bundle",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert tree(tmp_path / "bundle/rootfs") == expected


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_compression_is_read(tmp_path, compression):
    root = unpacked(tmp_path, layer(("a", LIBRARY)), layer(("b", OTHER)), compression=compression)
    assert tree(root) == {"a": X, "b": Y}


def test_what_resolving_asks_for_is_kept_and_nothing_else(tmp_path):
    kept = {
        "lib/libx.so": LIBRARY,
        "lib/32.so": elf32(),
        "lib/big.so": big_endian(),
        "etc/ld.so.conf.d/x.conf": b"/opt/lib\n",
        "etc/os-release": b"ID=x\n",
        "usr/lib/os-release": b"ID=x\n",
    }
    left = {
        "bin/static": Tiny(type=ET_EXEC).build(),
        "lib/x.o": Tiny(type=ET_REL).build(),
        "lib/libc.so": b"GROUP ( libc.so.6 )\n",
        "usr/share/doc/x": b"text",
        "lib/short": b"\x7fELF",
        "lib/empty": b"",
        "etc/huge": bytes((4 << 20) + 1),
        "dev/null": Special(tarfile.CHRTYPE),
        "run/pipe": Special(tarfile.FIFOTYPE),
    }
    entries = {**kept, **left, "lib/again": Hard("usr/share/doc/x"), "etc/link": "/nowhere"}
    found = tree(unpacked(tmp_path, layer(*entries.items())))
    files = {path for path, what in found.items() if what != "directory"}
    assert files == {*kept, "etc/link"}
    assert {"bin", "dev", "usr/share/doc"} <= set(found)


def test_what_is_not_kept_replaces_what_was(tmp_path):
    below = layer(("a", LIBRARY), ("b", LIBRARY), ("c", LIBRARY), ("d", LIBRARY))
    above = layer(("a", b"text"), ("b", Special(tarfile.CHRTYPE)), ("t", b""), ("c", Hard("t")))
    assert tree(unpacked(tmp_path, below, above)) == {"d": X}


def test_a_sparse_file_is_whole(tmp_path):
    content = LIBRARY + bytes(1 << 20) + b"end"
    (tmp_path / "sparse.so").write_bytes(LIBRARY)
    with (tmp_path / "sparse.so").open("r+b") as file:
        file.seek(len(content) - 3)
        file.write(b"end")
    done = subprocess.run(
        [require("tar"), "-cSf", "-", "sparse.so"], cwd=tmp_path, capture_output=True, check=True
    )
    assert len(done.stdout) < 1 << 20
    root = unpacked(tmp_path, done.stdout)
    assert (root / "sparse.so").read_bytes() == content


def test_modes_and_owners_do_not_lock_us_out(tmp_path):
    root = unpacked(tmp_path, layer(("d", DIRECTORY), ("d/a", LIBRARY)))
    assert os.access(root / "d", os.R_OK | os.W_OK | os.X_OK)
    assert (root / "d/a").stat().st_uid == os.geteuid()


HOSTILE = {
    "dots": [("../evil", LIBRARY)],
    "dots inside": [("a/../../evil", LIBRARY)],
    "a directory of dots": [("..", DIRECTORY)],
    "a link at dots": [("../evil", "x")],
    "a hard link to dots": [("a", Hard("../../../etc/passwd"))],
    "a whiteout of dots": [("a/b", LIBRARY), ("a/.wh...", b"")],
    "a whiteout of one dot": [("a/b", LIBRARY), ("a/.wh..", b"")],
    "a whiteout of no name": [("a/b", LIBRARY), ("a/.wh.", b"")],
    "the root as a file": [("/", LIBRARY)],
    "a circle of links": [("a", "b"), ("b", "a"), ("a/evil", LIBRARY)],
    "endless depth": [("d/" * 300 + "evil", LIBRARY)],
    "a link that grows": [("a", "a/" * 700), ("a/evil", LIBRARY)],
    "a hard link to a directory": [("d", DIRECTORY), ("a", Hard("d"))],
    "a link to nothing": [("a", "")],
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE)
def test_a_layer_that_leads_out_is_refused(tmp_path, entries):
    with pytest.raises(DpackError, match="cannot unpack the layer sha256:"):
        unpacked(tmp_path, layer(*entries))
    assert not list(tmp_path.rglob("*evil*"))
    assert not [path for path in (tmp_path / "cache/roots").iterdir() if path.is_dir()]


HARMLESS = {
    "an absolute name": [("/evil", LIBRARY)],
    "through a link up": [("up", "../../../.."), ("up/evil", LIBRARY)],
    "through an absolute link": [("out", "/tmp"), ("out/evil", LIBRARY)],
    "through a link in a lower layer": None,
    "through a hard link to a link": [("out", "/tmp"), ("again", Hard("out")), ("again/evil", LIBRARY)],
    "through a link that replaces a directory": [("d", DIRECTORY), ("d", "/tmp"), ("d/evil", LIBRARY)],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_links_that_lead_out_stay_inside(tmp_path, name):
    entries = HARMLESS[name]
    layers = [layer(*entries)] if entries else [layer(("out", "/tmp")), layer(("out/evil", LIBRARY))]
    root = unpacked(tmp_path, *layers)
    inside = [path for path in tmp_path.rglob("evil") if path.is_file() and not path.is_symlink()]
    assert [path.resolve().is_relative_to(root) for path in inside] == [True]
    assert not Path("/tmp/evil").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[: len(content) // 2], "damaged"),
        (lambda content: b"x" * len(content), "damaged"),
        (lambda content: content[:100] + b"x" + content[101:], "damaged|is sha256"),
    ],
)
def test_a_damaged_layer_is_refused(tmp_path, change, message):
    content = layer(("usr/lib/a", LIBRARY), ("usr/lib/b", OTHER))
    layout = Layout()
    # The blob has the digest that the manifest says, and other contents than the config says.
    config = layout.manifest([content])
    manifest = layout.files.pop(f"blobs/sha256/{config['digest'][7:]}")
    bad = change(content)
    layout.blob("", bad)
    manifest = manifest.replace(digest(content).encode(), digest(bad).encode())
    manifest = manifest.replace(f'"size": {len(content)}'.encode(), f'"size": {len(bad)}'.encode())
    layout.manifests.append(layout.blob(config["mediaType"], manifest))
    with pytest.raises(DpackError, match=message):
        sysroot_of(open_image(layout.write(tmp_path / "layout")), tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache/roots").iterdir() if path.is_dir()]


def test_a_root_is_made_once(tmp_path):
    root = unpacked(tmp_path, layer(("a", LIBRARY)))
    (root / "mark").touch()
    for blob in (tmp_path / "layout/blobs/sha256").iterdir():
        if blob.read_bytes() == layer(("a", LIBRARY)):
            blob.unlink()  # what is cached is not read again
    image = open_image(tmp_path / "layout")
    assert sysroot_of(image, tmp_path / "cache") == root
    assert (root / "mark").exists()


def test_two_at_once_make_one_root(tmp_path):
    layout = Layout()
    layout.add(*[layer((f"usr/lib/{number}", LIBRARY)) for number in range(40)])
    layout.write(tmp_path / "layout")

    def unpack(_):
        root = sysroot_of(open_image(tmp_path / "layout"), tmp_path / "cache")
        return root, root.stat().st_ino

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(unpack, range(4)))) == 1


def test_what_a_killed_process_left_is_replaced(tmp_path):
    root = unpacked(tmp_path, layer(("a", LIBRARY)))
    root.rename(root.with_name(f".{root.name}"))
    (root.with_name(f".{root.name}") / "root").mkdir()
    assert tree(unpacked(tmp_path, layer(("a", LIBRARY)))) == {"a": X}
    assert [path.name for path in root.parent.iterdir()] == [root.name]


def test_images_of_the_same_layers_share_a_root(tmp_path):
    one, two = layer(("a", LIBRARY)), layer(("b", LIBRARY))
    roots = []
    for number, layers in enumerate([(one, two), (one, two), (two, one), (one,)]):
        layout = Layout()
        layout.add(*layers, compression=list(COMPRESSIONS)[number])
        image = open_image(layout.write(tmp_path / str(number)))
        roots.append(sysroot_of(image, tmp_path / "cache"))
    assert len(set(roots)) == 3
    assert roots[0] == roots[1]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "cache").write_bytes(b"")
    with pytest.raises(DpackError) as caught:
        unpacked(tmp_path, layer(("a", LIBRARY)))
    assert "DPACK_CACHE" in caught.value.next


def test_whiteouts_spare_what_the_same_layer_brings():
    made = Tree()
    made.layer = 1
    made.file("d/old", 1)
    made.layer = 2
    made.file("d/new", 2)
    made.whiteout(".wh.d")
    assert [path for path, _ in made.walk()] == ["d", "d/new"]


def test_a_tree_says_which_path_leads_out():
    with pytest.raises(OutsideError, match=r"'a/\.\./b' leads out of the root"):
        Tree().file("a/../b", 1)
