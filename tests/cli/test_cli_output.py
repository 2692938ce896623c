"""What is written, where it cannot be written, and that nothing half-written is ever left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest


def test_the_default_output_is_named_after_the_program(dpack, plain):
    result = dpack("bundle", plain).done()
    assert dpack.written == {"hello.tar.zst"}
    assert "wrote hello.tar.zst" in result.err


@pytest.mark.parametrize("option", ["dir", "tar", "tar.gz", "tar.zst"])
def test_each_format_is_written(option, dpack, plain):
    dpack("bundle", plain, "--format", option).done()
    assert dpack.written == {f"hello.{option}"}


def test_the_bundle_runs_anywhere_with_an_empty_environment(dpack, cnn, cuda, tmp_path):
    dpack("bundle", cnn, "-L", cuda, "--model", "cnn", "-o", "out/").done()
    moved = tmp_path / "some where"
    (dpack.cwd / "out").rename(moved)
    ran = subprocess.run([moved / "bin/mnist"], cwd="/", env={}, capture_output=True, text=True, check=False)
    assert ran.stdout == "started\ncudnnConvolutionForward 7\ncublasCreate_v2 7\ncudaMalloc 7\n", ran.stderr
    for path in (moved / "lib").iterdir():
        assert path.read_bytes() == (cuda / path.name).read_bytes()


def test_an_output_that_exists_is_not_replaced_without_force(dpack, plain):
    output = dpack.cwd / "hello.tar.zst"
    output.write_text("precious")
    dpack("bundle", plain).refused(2, "hello.tar.zst", "exists", "--force")
    assert output.read_text() == "precious"
    dpack("bundle", plain, "--force").done()
    assert output.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"
    assert dpack.written == {"hello.tar.zst"}


def test_a_bundle_in_a_directory_is_replaced_by_force_whole(dpack, cnn, cuda, plain):
    dpack("bundle", cnn, "-L", cuda, "-o", "out/").done()
    dpack("bundle", plain, "-o", "out/").refused(2, "out", "exists", "--force")
    dpack("bundle", plain, "-o", "out/", "--force").done()
    assert not (dpack.cwd / "out/bin/mnist").exists()


def test_a_directory_with_a_manifest_and_more_is_never_replaced(dpack, plain):
    (dpack.cwd / "t").mkdir()
    (dpack.cwd / "t/dpack.json").write_text(dpack("bundle", plain, "--json").done().out)
    (dpack.cwd / "t/keep.me").write_text("mine")
    dpack("bundle", plain, "-o", "t", "-f").refused(2, "cannot write t: it holds keep.me", "-o")
    assert (dpack.cwd / "t/keep.me").read_text() == "mine"


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
def test_a_directory_that_is_no_bundle_is_never_replaced(force, dpack, plain):
    home = dpack.cwd / "home"
    home.mkdir()
    (home / "thesis.tex").write_text("years")
    dpack("bundle", plain, "-o", "home", "--format", "dir", *force).refused(2, "home", "not a bundle")
    assert (home / "thesis.tex").read_text() == "years"


PLACES = {
    "no such directory": (
        ("-o", "nowhere/x.tar.zst"),
        ("nowhere/x.tar.zst", "no directory nowhere", "mkdir -p nowhere"),
    ),
    "a file for a directory": (("-o", "file/x.tar.zst"), ("file/x.tar.zst", "not a directory")),
    "foreign suffix": (("-o", "x.zip"), ("x.zip", ".zip", "tar.zst")),
    "an image by its name": (("-o", "x.oci"), ("x.oci", "the name alone", "--format oci")),
    "an image without a name": (("--format", "oci", "--name", ""), ("reference ''", "names no repository")),
    "capital letters": (("--format", "oci", "--name", "Foo"), ("'Foo'", "capital letters", "mnist:1.0")),
    "a name with a space": (
        ("--format", "oci-archive", "--name", "a b:1"),
        ("'a b:1'", "lower case letters"),
    ),
    "no tag": (("-o", "x.oci.tar", "--name", "foo:"), ("'foo:'", "'' is not a tag")),
    "a digest": (("--format", "oci", "--name", "foo@sha256:00"), ("foo@sha256:00", "the digest")),
    "a name for no image": (("--name", ""), ("cannot use --name here", "it is for images")),
    "level out of range": (("--level", "77"), ("77", "1 to 19")),
    "level of a plain tar": (("-o", "x.tar", "--level", "3"), ("tar is not compressed",)),
    "no name": (("-o", ".."), ("no name of its own",)),
    "standard output": (("-o", "-"), ("standard output", "name a file")),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_wrong_output_is_refused_before_any_work(name, dpack, plain):
    options, words = PLACES[name]
    (dpack.cwd / "file").write_text("")
    result = dpack("bundle", plain, *options).refused(2, *words)
    assert not result.out, "nothing was resolved yet"
    assert dpack.written == {"file"}


def test_the_default_name_of_an_image_is_one(dpack, plain):
    program = dpack.cwd / "My App"
    program.write_bytes(plain.read_bytes())
    dpack("bundle", program, "--format", "oci-archive", "-o", "x.oci.tar").done()
    with tarfile.open(dpack.cwd / "x.oci.tar") as archive:
        (told,) = json.load(archive.extractfile("manifest.json"))
    assert told["RepoTags"] == ["my-app:latest"]


def test_a_wrong_epoch_is_refused(dpack, plain):
    dpack("bundle", plain, SOURCE_DATE_EPOCH="yesterday").refused(2, "SOURCE_DATE_EPOCH=yesterday")
    assert not dpack.written


@pytest.mark.parametrize("form", ["dir", "tar.zst"])
def test_an_output_that_may_not_be_written_is_refused(form, dpack, unprivileged, plain):
    closed = dpack.cwd / "closed"
    closed.mkdir(mode=0o555)
    unprivileged("bundle", plain, "-o", f"closed/x.{form}", "--format", form).refused(
        2, "closed", "permission"
    )
    assert not list(closed.iterdir())


@pytest.mark.parametrize("form", ["dir", "tar", "tar.zst"])
def test_a_full_disk_leaves_nothing(form, dpack, peer, cnn, cuda):
    """64 KiB of tmpfs in a mount namespace of its own; incompressible bytes, so that no format fits."""
    noise = dpack.cwd / "lib/libcudart.so.12"
    noise.parent.mkdir()
    noise.write_bytes((cuda / noise.name).read_bytes() + os.urandom(300_000))
    (dpack.cwd / "small").mkdir()
    command = dpack.command("bundle", cnn, "-L", "lib", "-L", cuda, "-o", f"small/x.{form}", "--format", form)
    mount = "mount -t tmpfs -o size=64k none small || exit 99"
    script = f'{mount}; "$@"; code=$?; echo "left: $(ls -A small)"; exit $code'
    done = subprocess.run(
        [peer("unshare"), "-rm", "sh", "-c", script, "sh", *command],
        cwd=dpack.cwd, env=dpack.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("left: \n"), done.stdout
    assert f"dpack: cannot write small/x.{form}: No space left on device" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("  next: make room")


@pytest.fixture
def huge(dpack, cuda) -> Path:
    """A directory whose libcudart ends in a hole of 4 GB: seconds to hash, no bytes on disk."""
    directory = dpack.cwd / "lib"
    directory.mkdir()
    for library in cuda.iterdir():
        (directory / library.name).write_bytes(library.read_bytes())
    os.truncate(directory / "libcudart.so.12", 4 << 30)
    return directory


@pytest.mark.parametrize("form", ["dir", "tar.zst"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leaves_nothing(number, form, dpack, huge, cnn):
    output = dpack.cwd / f"x.{form}"
    old = b"an earlier bundle"
    if form != "dir":
        output.write_bytes(old)
    before = dpack.written
    command = dpack.command("bundle", cnn, "-L", huge, "-o", output, "--format", form, "--force")
    with subprocess.Popen(
        command,
        cwd=dpack.cwd,
        env=dpack.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        deadline = time.monotonic() + 30
        while dpack.written == before and running.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        assert dpack.written - before, "it was at work when the signal came"
        running.send_signal(number)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 128 + number
    assert err.splitlines()[-1] == "dpack: interrupted"
    assert "Traceback" not in err
    assert dpack.written == before
    assert form == "dir" or output.read_bytes() == old


NOHUP = """
import signal
from packager.cli import interrupt
signal.signal(signal.SIGHUP, signal.SIG_IGN)
interrupt.install()
signal.raise_signal(signal.SIGHUP)
interrupt.check()
"""


def test_nohup_is_respected():
    subprocess.run([sys.executable, "-c", NOHUP], check=True)


def printing_to(stdout, dpack, *arguments):
    """What becomes of a command whose stdout is this descriptor."""
    return subprocess.run(
        dpack.command(*arguments), cwd=dpack.cwd, env=dpack.environment, stdout=stdout,
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip


@pytest.fixture
def unread():
    """The end of a pipe that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


def test_a_reader_that_goes_away_is_no_error(dpack, unread, cnn, cuda):
    done = printing_to(unread, dpack, "plan", cnn, "-L", cuda)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("form", [(), ("--json",), ("--markdown",)], ids=["", "json", "markdown"])
def test_a_bundle_is_written_though_nobody_reads_the_plan(form, dpack, unread, plain):
    done = printing_to(unread, dpack, "bundle", plain, *form)
    assert (done.returncode, "Error" in done.stderr) == (0, False), done.stderr
    assert dpack.written == {"hello.tar.zst"}


@pytest.mark.parametrize("command", ["plan", "bundle"])
def test_a_stdout_that_is_full_is_told(command, dpack, plain):
    with Path("/dev/full").open("w") as full:
        done = printing_to(full, dpack, command, plain)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "dpack: cannot write the output: No space left on device",
        "  next: make room where the output goes",
    ]
    assert not dpack.written


LONG = "n" * 300


@pytest.mark.parametrize(
    "command",
    [
        ("bundle", "APP", "-o", LONG),
        ("bundle", "APP", "-o", f"{LONG}/x"),
        ("plan", "APP", "-L", LONG),
        ("plan", "APP", "-R", LONG),
        ("plan", "APP", "--base", LONG),
        ("push", LONG, "h.x/a"),
        ("recipes", "check", LONG),
        ("plan", LONG),
    ],
    ids=lambda command: " ".join(command).replace(LONG, "LONG"),
)
def test_names_that_are_too_long_are_told(command, dpack, plain):
    result = dpack(*(plain if word == "APP" else word for word in command))
    assert result.code in {1, 2}
    assert "dpack: cannot " in result.err
    assert "Traceback" not in result.err
    assert not dpack.written


def test_a_default_name_that_is_too_long_is_told(dpack, plain):
    program = dpack.cwd / ("n" * 250)
    program.write_bytes(plain.read_bytes())
    dpack("bundle", program).refused(2, "cannot write nnn", "File name too long", "-o")


def test_without_a_network_fetching_says_so(dpack, cnn):
    result = dpack("bundle", cnn, "--model", "cnn", "--fetch").refused(1, "127.0.0.1:9", "onnection refused")
    assert not dpack.written
    assert not result.out


def test_offline_with_an_empty_cache_says_what_to_fetch(dpack, cnn):
    dpack("bundle", cnn, "--model", "cnn", "--offline").refused(1, "nvidia-cudnn-cu12", "--offline")
    assert not dpack.written


def test_a_fetch_without_a_network_says_so(dpack):
    dpack("fetch", "nvidia-cudnn-cu12==9.10.2.21").refused(1, "nvidia-cudnn-cu12", "127.0.0.1:9")


def test_one_bundle_after_another_has_the_same_bytes(dpack, cnn, cuda):
    written = []
    for _ in range(2):
        dpack("bundle", cnn, "-L", cuda, "--model", "cnn", "--force").done()
        written.append((dpack.cwd / "mnist.tar.zst").read_bytes())
    assert written[0] == written[1]


@pytest.mark.parametrize("form", ["tar", "tar.zst"])
def test_what_goes_into_the_bundle_is_never_written_over(form, dpack, plain):
    program = dpack.cwd / "hello"
    program.write_bytes(plain.read_bytes())
    dpack("bundle", program, "-o", program, "--format", form, "--force").refused(2, "goes into the bundle")
    assert program.read_bytes() == plain.read_bytes()


def test_a_dry_run_as_json_is_the_plan_as_json(dpack, cnn, cuda):
    dry = dpack("bundle", cnn, "-L", cuda, "-n", "--json").done()
    assert dry.json == dpack("plan", cnn, "-L", cuda, "--json").done().json


def test_a_scratch_directory_without_room_is_told(dpack, peer, plain):
    script = 'mkdir full && mount -t tmpfs -o size=4k none full || exit 99; TMPDIR=$PWD/full exec "$@"'
    done = subprocess.run(
        [peer("unshare"), "-rm", "sh", "-c", script, "sh", *dpack.command("bundle", plain, "-o", "x.tar")],
        cwd=dpack.cwd, env=dpack.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "dpack: cannot prepare hello in" in done.stderr
    assert "TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["dir", "tar.zst"])
def test_a_library_with_two_names_is_written_once(form, dpack, tmp_path):
    (tmp_path / "f.c").write_text("int f(void) { return 7; }\n")
    (tmp_path / "main.c").write_text(
        '#include <dlfcn.h>\nint f(void);\nint main(void) { return f() == 7 && dlopen("libf.so", 2) ? 0 : 1; }\n'
    )
    gcc = ["gcc", "-o"]
    subprocess.run(
        [*gcc, tmp_path / "libf.so.1", "-shared", "-Wl,-soname,libf.so.1", tmp_path / "f.c"], check=True
    )
    (tmp_path / "libf.so").symlink_to("libf.so.1")
    linked = ["-L", tmp_path, "-lf", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run([*gcc, tmp_path / "main", tmp_path / "main.c", *linked], check=True)
    output = "out/" if form == "dir" else "out.tar.zst"
    told = dpack("bundle", tmp_path / "main", "--include", "libf.so", "-o", output, "--json").done().json
    assert told["links"] == [{"path": "lib/libf.so", "target": "libf.so.1"}]
    if form != "dir":
        subprocess.run(["tar", "-xf", dpack.cwd / output, "-C", dpack.cwd], check=True)
    assert (dpack.cwd / "out/lib/libf.so").readlink() == Path("libf.so.1")
    (tmp_path / "libf.so.1").unlink()
    subprocess.run([dpack.cwd / "out/bin/main"], check=True, env={})
