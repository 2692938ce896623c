"""Items: what may go into a bundle, and files that are not what they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders.bundles import manifest

from packager.emit import Format, Item, write
from packager.emit.pipeline import BUFFER
from packager.errors import DpackError


@pytest.mark.parametrize("form", list(Format))
@pytest.mark.parametrize("change", ["shrinks", "grows", "is rewritten"])
def test_a_file_that_changes_while_it_is_read_is_named(tmp_path, form, change):
    source = tmp_path / "lib.so"
    source.write_bytes(b"a" * (2 * BUFFER))
    changes = {
        "shrinks": lambda: source.write_bytes(b""),
        "grows": lambda: source.write_bytes(b"b" * (3 * BUFFER)),
    }
    changes["is rewritten"] = lambda: source.write_bytes(b"c" * (2 * BUFFER))

    def progress(_count: int) -> None:
        changes.pop(change, lambda: None)()

    with pytest.raises(DpackError, match=r"cannot read .*lib\.so: it changed while it was read"):
        write([Item("lib/a", 0o755, source)], manifest, tmp_path / "out", format=form, progress=progress)
    assert [path.name for path in tmp_path.iterdir()] == ["lib.so"]


@pytest.mark.parametrize(
    ("name", "why"), [("none", "No such file or directory"), ("folder", "Is a directory")]
)
def test_a_source_that_cannot_be_read_is_named(tmp_path, name, why):
    (tmp_path / "folder").mkdir()
    with pytest.raises(DpackError, match=rf"cannot read .*/{name}: {why}"):
        write([Item("lib/a", 0o755, tmp_path / name)], manifest, tmp_path / "out", format=Format.TAR)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        (["/etc/passwd"], "not a path inside"),
        (["../up"], "not a path inside"),
        (["lib/../../up"], "not a path inside"),
        (["lib//a"], "not a path inside"),
        (["./a"], "not a path inside"),
        (["a/"], "not a path inside"),
        ([""], "not a path inside"),
        (["a", "a"], "twice in the bundle: a"),
        (["a", "a/b"], "both a file and a directory in the bundle: a"),
        (["dpack.json"], "twice in the bundle: dpack.json"),
    ],
)
@pytest.mark.parametrize("form", [Format.DIR, Format.TAR_ZST])
def test_paths_that_no_bundle_can_hold(tmp_path, form, paths, message):
    items = [Item(path, 0o644, b"") for path in paths]
    with pytest.raises(ValueError, match=message):
        write(items, manifest, tmp_path / "out", format=form)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_manifest_leaves_nothing(tmp_path):
    def last(_entries: object) -> Item:
        raise DpackError("cannot account for it")

    with pytest.raises(DpackError, match="cannot account"):
        write([Item("a", 0o644, b"")], last, tmp_path / "out", format=Format.TAR_GZ)
    assert list(Path(tmp_path).iterdir()) == []
