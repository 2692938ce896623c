"""Same input, same output, byte for byte."""

from __future__ import annotations

import gzip
import hashlib
import os
import platform
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from builders.bundles import EPOCH, dump, expected, manifest
from builders.oracle import require

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
    assert written.sha256 == "8034e3de88afe87babc3324caa9fb7b2e5c7d25c9018e5a8dacc0d4b27136891"


def test_gzip_is_members_without_name_or_time(tmp_path):
    items = [Item("lib/a", 0o644, random.Random(2).randbytes(3_000_000))]
    output = tmp_path / "a.tgz"
    write(items, manifest, output, format=Format.TAR_GZ, top="t", epoch=EPOCH)
    plain = tmp_path / "a.tar"
    write(items, manifest, plain, format=Format.TAR, top="t", epoch=EPOCH)
    raw = output.read_bytes()
    assert gzip.decompress(raw) == plain.read_bytes()
    members = 0
    while raw:
        stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert raw[:8] == b"\x1f\x8b\x08\0\0\0\0\0"
        assert len(stream.decompress(raw)) <= 1 << 20
        assert stream.eof
        raw = stream.unused_data
        members += 1
    assert members == 3


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the CPUs that qemu plays here are x86_64's")
@pytest.mark.parametrize("cpu", ["qemu64", "max"])
def test_gzip_and_zstd_have_the_same_bytes_on_every_cpu(tmp_path, cpu):
    """The compressors choose code by what the CPU can do; qemu plays CPUs with and without vector units."""
    source = tmp_path / "source"
    source.write_bytes(Path(sys.executable).resolve().read_bytes()[:1_500_000])
    script = SCRIPT.replace("import os, sys", f"import os, sys; sys.path[:0] = {sys.path!r}")
    arguments = ["022", str(source)]
    found = {}
    for form in (Format.TAR_GZ, Format.TAR_ZST):
        for number, prefix in enumerate([[], [require("qemu-x86_64"), "-cpu", cpu]]):
            output = tmp_path / f"{number}.{form}"
            command = [os.path.realpath(sys.executable), "-c", script, *arguments, str(output), form]
            subprocess.run([*prefix, *command], check=True, capture_output=True)
            found[form, number] = digest(output)
        assert found[form, 0] == found[form, 1]


def test_a_directory_has_exact_modes_and_times(tmp_path, items):
    written = write(items, manifest, tmp_path / "out", format=Format.DIR, epoch=EPOCH)
    assert dump(tmp_path / "out") == expected(written.entries)
    assert written.sha256 is None
    assert written.size == sum(entry.size for entry in written.entries)
    assert [entry.path for entry in written.entries][-1] == "dpack.json"
