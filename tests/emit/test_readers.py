"""Other programs read what dpack writes, and find in it what dpack says is there."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest
import zstandard
from builders.bundles import EPOCH, dump, expected, manifest
from builders.oracle import require
from hypothesis import given, settings
from hypothesis import strategies as st

from packager.emit import Entry, Format, Item, write

UNPACK = {
    Format.TAR: ["cat"],
    Format.TAR_GZ: ["gzip", "-dc"],
    Format.TAR_ZST: ["zstd", "-dc"],
}


@pytest.mark.parametrize("form", UNPACK)
@pytest.mark.parametrize(
    ("reader", "options"),
    [("tar", ["-x"]), ("bsdtar", ["-x", "-f", "-"]), ("busybox", ["tar", "-x", "-f", "-"])],
)
def test_unpacked_files_are_the_entries(tmp_path, items, form, reader, options):
    program = require(reader)
    unpack = [require(UNPACK[form][0]), *UNPACK[form][1:]]
    written = write(items, manifest, tmp_path / "a", format=form, top="top", epoch=EPOCH)
    into = tmp_path / "into"
    into.mkdir()
    with (tmp_path / "a").open("rb") as file:
        tar = subprocess.run(unpack, stdin=file, capture_output=True, check=True).stdout
    command = [program, *options, *(["-p"] if reader != "busybox" else [])]
    subprocess.run(command, cwd=into, input=tar, check=True, umask=0o022)
    assert [path.name for path in into.iterdir()] == ["top"]
    found, wanted = dump(into / "top"), expected(written.entries)
    if reader == "busybox":  # it leaves directories with the time at which it filled them
        found, wanted = without_directory_times(found), without_directory_times(wanted)
    assert found == wanted


def without_directory_times(lines: dict[str, str]) -> dict[str, str]:
    return {path: text if text.count(" ") > 1 else text.split()[0] for path, text in lines.items()}


@pytest.mark.parametrize(("form", "tool"), [(Format.TAR_ZST, "zstd"), (Format.TAR_GZ, "gzip")])
def test_the_compressor_itself_finds_no_fault(tmp_path, items, form, tool):
    output = tmp_path / f"a.{form}"
    write(items, manifest, output, format=form)
    subprocess.run([require(tool), "-tq", str(output)], check=True)
    broken = bytearray(output.read_bytes())
    broken[-3] ^= 1  # in the checksum of either format
    output.write_bytes(broken)
    assert subprocess.run([tool, "-tq", str(output)], check=False, capture_output=True).returncode != 0


def test_gnu_tar_lists_each_directory_before_what_it_holds(tmp_path):
    items = [Item(path, 0o755, b"x") for path in ("lib/b", "lib/B", "lib-x/a", "bin/a", "lib/a/c")]
    write(items, manifest, tmp_path / "a.tar", format=Format.TAR, top="mnist", epoch=0)
    command = [require("tar"), "--utc", "--full-time", "-tvf", str(tmp_path / "a.tar")]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == [
        "mnist/", "mnist/lib/", "mnist/lib/B", "mnist/lib/a/", "mnist/lib/a/c", "mnist/lib/b",
        "mnist/lib-x/", "mnist/lib-x/a", "mnist/bin/", "mnist/bin/a", "mnist/dpack.json",
    ]  # fmt: skip
    assert {line.split()[1] for line in lines} == {"0/0"}
    assert {tuple(line.split()[3:5]) for line in lines} == {("1970-01-01", "00:00:00")}


def test_no_top_directory_for_an_empty_top(tmp_path):
    write([Item("bin/a", 0o755, b"")], manifest, tmp_path / "a.tar", format=Format.TAR, top="")
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames() == ["bin", "bin/a", "dpack.json"]


def test_the_manifest_sees_every_other_entry(tmp_path, items):
    seen: list[tuple[Entry, ...]] = []

    def last(entries: tuple[Entry, ...]) -> Item:
        seen.append(entries)
        return Item("share/deep/dpack.json", 0o644, b"{}")

    written = write(items, last, tmp_path / "a.tar", format=Format.TAR, top="t")
    assert seen == [written.entries[:-1]]
    with tarfile.open(tmp_path / "a.tar") as tar:
        assert tar.getnames()[-2:] == ["t/share/deep", "t/share/deep/dpack.json"]


def test_progress_adds_up_to_every_byte_read(tmp_path, items):
    counts: list[int] = []
    written = write(items, manifest, tmp_path / "a.tar", format=Format.TAR, progress=counts.append)
    assert sum(counts) == sum(entry.size for entry in written.entries)


NAMES = st.text(
    st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=60
)
PATHS = st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=4).map("/".join)


@given(
    tree=st.dictionaries(
        PATHS, st.tuples(st.sampled_from([0o755, 0o644]), st.binary(max_size=2000)), max_size=8
    ),
    form=st.sampled_from(list(UNPACK)),
)
@settings(max_examples=60, deadline=None)
def test_any_tree_comes_back(tmp_path_factory, tree, form):
    tree = {
        path: value
        for path, value in tree.items()
        if path != "dpack.json"
        and not path.startswith("dpack.json/")
        and not any(other.startswith(path + "/") for other in tree)
    }
    items = [Item(path, mode, source) for path, (mode, source) in tree.items()]
    output = tmp_path_factory.mktemp("tree") / "out"
    written = write(items, manifest, output, format=form, top="t", epoch=EPOCH)
    raw = output.read_bytes()
    if form is Format.TAR_ZST:
        raw = zstandard.ZstdDecompressor().decompressobj().decompress(raw)
    with tarfile.open(fileobj=io.BytesIO(raw)) as tar:
        found = {
            member.name.removeprefix("t/"): (member.mode, tar.extractfile(member).read())
            for member in tar.getmembers()
            if member.isfile()
        }
        assert {(member.uid, member.gid, member.uname, member.mtime) for member in tar} == {(0, 0, "", EPOCH)}
    assert found.pop("dpack.json")[1] == manifest(written.entries[:-1]).source
    assert found == tree
    order = [entry.path.encode().split(b"/") for entry in written.entries[:-1]]
    assert order == sorted(order)
