"""Strip and rpath: the result runs, is smaller, and every fact that the loader acts on is the same."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from packager.errors import DpackError
from packager.resolve.elf import read_elf
from packager.transform.rpath import set_rpath
from packager.transform.strip import strip
from packager.transform.verify import verify

SOURCE = """
#include <cstdio>
#include <stdexcept>
#include <thread>
thread_local int seen = 3;
struct Early { Early() { std::puts("early"); } } early;
int main() {
    std::thread([] { seen = 4; }).join();
    try { throw std::runtime_error("caught"); } catch (const std::exception& e) { std::puts(e.what()); }
    std::printf("%d\\n", seen);
}
"""

BUILDS = {
    "position-independent": [],
    "fixed address": ["-no-pie"],
    "with a runpath": ["-Wl,-rpath,/opt/somewhere,--enable-new-dtags"],
    "with an rpath": ["-Wl,-rpath,/opt/somewhere,--disable-new-dtags"],
    "packed relocations": ["-Wl,-z,pack-relative-relocs"],
    "separate code, full relro": ["-Wl,-z,relro,-z,now,-z,separate-code"],
    "one segment for all": ["-Wl,-z,noseparate-code"],
    "optimised, sections collected": ["-O2", "-ffunction-sections", "-Wl,--gc-sections"],
}


@pytest.fixture(scope="module", params=BUILDS, ids=lambda name: name.replace(" ", "-"))
def built(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    source, out = folder / "a.cpp", folder / "app"
    source.write_text(SOURCE)
    made = subprocess.run(
        ["g++", "-g", source, "-o", out, *BUILDS[request.param]], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"this compiler cannot build it: {made.stderr.splitlines()[-1]}")
    return out


@pytest.fixture
def program(built, tmp_path):
    return Path(shutil.copy(built, tmp_path / "app"))


def run(path):
    return subprocess.run([path], capture_output=True, text=True, check=True, timeout=20).stdout


def test_a_stripped_program_does_the_same_with_fewer_bytes(program, tmp_path):
    out = tmp_path / "out"
    strip(program, out)
    verify(program, out, None)
    assert run(out) == run(program) == "early\ncaught\n3\n"
    assert out.stat().st_size < program.stat().st_size


def test_strip_leaves_no_more_than_gnu_strip(program, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    strip(program, ours)
    subprocess.run(["strip", "-o", theirs, program], check=True)
    assert ours.stat().st_size <= theirs.stat().st_size


def test_readelf_finds_nothing_wrong_with_a_stripped_program(program, tmp_path):
    out = tmp_path / "out"
    strip(program, out)
    told = subprocess.run(["readelf", "-aW", out], capture_output=True, text=True, check=True)
    assert not told.stderr
    assert ".symtab" not in told.stdout
    assert ".debug_info" not in told.stdout


def test_stripping_twice_changes_nothing(program, tmp_path):
    once, twice = tmp_path / "once", tmp_path / "twice"
    strip(program, once)
    strip(once, twice)
    assert once.read_bytes() == twice.read_bytes()


def test_the_rpath_is_the_only_search_path_and_the_program_runs(program, tmp_path):
    stripped, out = tmp_path / "stripped", tmp_path / "out"
    strip(program, stripped)
    set_rpath(stripped, out, "$ORIGIN/../lib")
    verify(program, out, "$ORIGIN/../lib")
    elf = read_elf(out)
    assert (elf.rpath, elf.runpath) == ("$ORIGIN/../lib", None)
    assert run(out) == run(program)


def test_the_same_input_gives_the_same_bytes(program, tmp_path):
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        set_rpath(program, out, "$ORIGIN/../lib")
    assert outs[0].read_bytes() == outs[1].read_bytes()


def test_a_static_program_is_stripped(tmp_path):
    source, app, out = tmp_path / "a.c", tmp_path / "app", tmp_path / "out"
    source.write_text("int main(void) { return 7; }")
    subprocess.run(["gcc", "-g", "-static", source, "-o", app], check=True)
    strip(app, out)
    assert out.stat().st_size < app.stat().st_size
    verify(app, out, None)
    assert subprocess.run([out], check=False).returncode == 7


def test_a_program_with_something_behind_it_is_left_alone(program, tmp_path):
    with program.open("ab") as file:
        file.write(b"an archive that the program reads from its own end")
    with pytest.raises(DpackError, match="50 bytes follow its ELF image") as caught:
        strip(program, tmp_path / "out")
    assert "--no-strip" in caught.value.next
    assert not (tmp_path / "out").exists()


def tamper_code(path: Path) -> None:
    entry = int.from_bytes(path.read_bytes()[24:32], "little")
    with path.open("r+b") as file:
        offset = entry % 0x400000 if entry > 0x400000 else entry
        file.seek(offset)
        file.write(b"\xcc")


def tamper_needed(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"libc.so.6\0", b"libd.so.6\0", 1))


@pytest.mark.parametrize(
    ("tamper", "message"), [(tamper_code, "its code changed"), (tamper_needed, "its needed changed")]
)
def test_verify_finds_what_should_not_have_changed(tamper, message, tmp_path):
    source, app, out = tmp_path / "a.c", tmp_path / "app", tmp_path / "out"
    source.write_text("int main(void) { return 0; }")
    subprocess.run(["gcc", source, "-o", app, "-Wl,-z,noseparate-code"], check=True)
    shutil.copy(app, out)
    tamper(out)
    with pytest.raises(DpackError, match=message):
        verify(app, out, None)


def test_verify_refuses_what_another_reader_cannot_read(tmp_path):
    app, out = Path("/bin/true"), tmp_path / "out"
    out.write_bytes(os.urandom(300))
    with pytest.raises(DpackError, match="cannot read out back"):
        verify(app, out, None)
