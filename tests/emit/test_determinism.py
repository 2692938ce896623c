"""Same input, same output, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from builders.bundles import EPOCH, dump, expected, manifest

from packager.emit import Format, Item, write

ARCHIVES = [Format.TAR, Format.TAR_GZ, Format.TAR_ZST]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("form", ARCHIVES)
def test_any_number_of_threads_and_any_order_give_the_same_bytes(tmp_path, form):
    # 9.5 MB: more than two of zstd's blocks and nine of gzip's.
    large = random.Random(1).randbytes(6_000_000) + b"abcdefgh" * 437_501
    items = [Item("lib/b", 0o755, large), Item("lib/a", 0o644, b"a"), Item("bin/c", 0o755, b"c" * 4096)]
    found = set()
    for number, threads in enumerate([1, 2, 4, 7]):
        random.Random(number).shuffle(items)
        output = tmp_path / f"{number}.{form}"
        written = write(items, manifest, output, format=form, top="top", epoch=EPOCH, threads=threads)
        assert written.sha256 == digest(output)
        assert written.size == output.stat().st_size
        found.add(written.sha256)
    assert len(found) == 1


SCRIPT = """
import os, sys
from pathlib import Path
from packager.emit import Format, Item, write
os.umask(int(sys.argv[1], 8))
source, output, form = Path(sys.argv[2]), Path(sys.argv[3]), Format(sys.argv[4])
items = [Item("lib/libx.so", 0o755, source), Item("lib/\\u00e9", 0o644, b"e")]
write(items, lambda entries: Item("dpack.json", 0o644, b"{}"), output, format=form, top="top")
"""


@pytest.mark.parametrize("form", list(Format))
def test_umask_cwd_time_zone_and_locale_change_nothing(tmp_path, form):
    source = tmp_path / "libx.so"
    source.write_bytes(b"x" * 100_000)
    found = []
    for number, (umask, cwd, zone, locale) in enumerate(
        [
            ("022", "/", "UTC", "C.UTF-8"),
            ("077", str(tmp_path), "Asia/Tokyo", "C"),
            ("000", "/usr", "EST5", "POSIX"),
        ]
    ):
        os.utime(source, (number, number))
        output = tmp_path / f"{number}.{form}"
        environment = {**os.environ, "TZ": zone, "LC_ALL": locale, "PYTHONHASHSEED": str(number)}
        command = [sys.executable, "-c", SCRIPT, umask, str(source), str(output), form]
        subprocess.run(command, cwd=cwd, env=environment, check=True)
        found.append(dump(output) if form is Format.DIR else digest(output))
    assert found[0] == found[1] == found[2]


def test_the_bytes_of_a_plain_tar_are_what_this_table_says(tmp_path):
    """A golden digest: a change of the tar's form is a change that users see, so it must be meant."""
    items = [Item("lib/libx.so", 0o755, b"x" * 1000), Item("bin/app", 0o755, b"app")]
    written = write(
        items, lambda _: Item("dpack.json", 0o644, b"{}\n"), tmp_path / "a.tar", format=Format.TAR
    )
    assert written.size == 10_240
    assert written.sha256 == "38e9b0cae7ce800f1b7e804c762dc02fc7f5a4b0f4b98632440e999a8778d036"


def test_gzip_is_one_member_without_name_or_time(tmp_path, items):
    output = tmp_path / "a.tgz"
    write(items, manifest, output, format=Format.TAR_GZ, top="t", epoch=EPOCH)
    plain = tmp_path / "a.tar"
    write(items, manifest, plain, format=Format.TAR, top="t", epoch=EPOCH)
    raw = output.read_bytes()
    assert raw[:10] == b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
    assert gzip.decompress(raw) == plain.read_bytes()


def test_gzip_uses_the_block_before_as_dictionary(tmp_path):
    """32 KiB that cannot be compressed, repeated, must be found again across every block's border."""
    data = random.Random(2).randbytes(32_000) * 120
    written = write([Item("a", 0o644, data)], manifest, tmp_path / "a.tgz", format=Format.TAR_GZ)
    assert written.size < 80_000


def test_a_directory_has_exact_modes_and_times(tmp_path, items):
    written = write(items, manifest, tmp_path / "out", format=Format.DIR, epoch=EPOCH)
    assert dump(tmp_path / "out") == expected(written.entries)
    assert written.sha256 is None
    assert written.size == sum(entry.size for entry in written.entries)
    assert [entry.path for entry in written.entries][-1] == "dpack.json"
