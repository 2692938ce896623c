from __future__ import annotations

import io
import stat
import zipfile

import pytest
from local_index import wheel_file

from packager.errors import DpackError
from packager.source import fetch

pytestmark = pytest.mark.usefixtures("no_pip")

FILE = wheel_file()


def get():
    return fetch(["nvidia-demo-cu12"], machine="x86_64")


@pytest.mark.parametrize("member", ["../escape", "/tmp/escape", "a/../../escape", "a\\..\\escape"])
def test_a_member_that_leads_out_is_refused(index, cache, tmp_path, member):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("nvidia/first", b"good")
        archive.writestr(member, b"bad")
    index.add(FILE, out.getvalue())
    with pytest.raises(DpackError, match="would land outside"):
        get()
    assert [path for path in tmp_path.rglob("*") if "escape" in path.name or path.name == "first"] == []
    assert list((cache / "downloads").iterdir()) == []


def test_a_link_in_the_archive_becomes_a_plain_file(index):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        link = zipfile.ZipInfo("nvidia/link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc")
        program = zipfile.ZipInfo("nvidia/program")
        program.external_attr = 0o755 << 16
        archive.writestr(program, b"#!/bin/sh\n")
    index.add(FILE, out.getvalue())
    (got,) = get()
    assert not (got.root / "nvidia/link").is_symlink()
    assert (got.root / "nvidia/link").read_text() == "/etc"
    assert (got.root / "nvidia/program").stat().st_mode & 0o777 == 0o755


def flipped(content):
    """The archive with one byte of its first member changed, so that its CRC is wrong."""
    at = content.index(b"demo bytes")
    return content[:at] + b"D" + content[at + 1 :]


def stored(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"this is no zip file", "not a zip file"),
        (flipped(stored(first=b"demo bytes")), "CRC"),
        (stored(**{"a": b"", "a/b": b""}), "two members"),
    ],
)
def test_a_damaged_wheel_is_told_and_leaves_nothing(index, cache, content, reason):
    index.add(FILE, content)
    with pytest.raises(DpackError, match=reason):
        get()
    assert list((cache / "downloads").iterdir()) == []
    assert not (cache / "wheels").exists() or list((cache / "wheels").iterdir()) == []
