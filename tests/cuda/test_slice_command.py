"""``dpack slice``: what is written, what is printed, and what it refuses."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest
from builders.fatbin import container, cubin, elf_file, member, shared_object
from click.testing import CliRunner

from packager import slicing
from packager.account.size import human
from packager.cli.slice import slice as command
from packager.cuda.scan import read_gpu_code
from packager.errors import DpackError

ARCHES = ("sm_50", "sm_80", "sm_86", "sm_90a", "compute_120")


def big(name):
    return member(name, cubin(name, code=bytes(range(1, 251)) * 200) if name.startswith("sm") else None)


@pytest.fixture
def library(tmp_path, monkeypatch):
    blobs = [container(*map(big, ARCHES)), container(*map(big, ("sm_80", "sm_90a")))]
    shared_object(tmp_path, {".nv_fatbin": blobs, ".ldata": [b"data" * 9, cubin("sm_100")]}, flags=["-s"])
    monkeypatch.chdir(tmp_path)
    return tmp_path / "libgpu.so"


def ran(*arguments):
    done = CliRunner().invoke(command, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def arches(path):
    return [[str(m.arch) for m in each.members] for each in read_gpu_code(path).containers]


def test_a_smaller_file_is_written_and_accounted_for(library, tmp_path):
    done = ran("libgpu.so", "--gpu", "sm_86", "-o", "small.so", "--json")
    document = json.loads(done.output)
    [told] = document["files"]
    assert (done.exit_code, told["after"]) == (0, (tmp_path / "small.so").stat().st_size)
    assert told["before"] == library.stat().st_size > told["after"] + 190_000
    assert arches(tmp_path / "small.so") == [["sm_86"], ["sm_80"]]
    assert document["gpus"] == ["sm_86"]
    assert [(row["name"], row["technique"]) for row in told["sections"]] == [
        (".nv_fatbin", "packed"),
        (".ldata", "in place"),
    ]
    assert {row["arch"]: row["after"] > 0 for row in told["arches"]} == {
        "sm_50": False,
        "sm_80": True,
        "sm_86": True,
        "sm_90a": False,
        "sm_100": False,
        "compute_120": False,
    }
    assert next(row for row in told["arches"] if row["arch"] == "sm_86")["after"] > 50_000


@pytest.mark.usefixtures("library")
def test_text_has_both_tables():
    lines = ran("libgpu.so", "--gpu", "8.6", "-n").output.splitlines()
    assert lines[0].startswith("libgpu.so for sm_86: 3")
    assert [line.split()[0] for line in lines if line] == [
        "libgpu.so",
        "section",
        ".nv_fatbin",
        ".ldata",
        "everything",
        "architecture",
        "sm_50",
        "sm_80",
        "sm_86",
        "sm_90a",
        "sm_100",
        "compute_120",
    ]


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("options", "kept"),
    [
        (["--gpu", "8.6", "--all-minors"], [["sm_80", "sm_86"], ["sm_80"]]),
        (["--gpu", "8.6", "--gpu", "9.0"], [["sm_86", "sm_90a"], ["sm_80", "sm_90a"]]),
        (["--gpu", "8.6", "--exact"], [["sm_86"], []]),
        (["--gpu", "12.0"], [["compute_120"], []]),
    ],
    ids=["minors", "two", "exact", "ptx"],
)
def test_options_choose_what_stays(tmp_path, options, kept):
    assert ran("libgpu.so", "-o", "out.so", *options).exit_code == 0
    stays = [[name.replace("compute", "sm") for name in names] for names in kept]
    assert arches(tmp_path / "out.so") == stays


def test_the_rule_of_cublas_holds_for_its_files(library, tmp_path):
    (tmp_path / "libcublasMine.so").write_bytes(library.read_bytes())
    ran("libcublasMine.so", "--gpu", "8.6", "-o", "all.so")
    ran("libcublasMine.so", "--gpu", "8.6", "--best", "-o", "best.so")
    assert arches(tmp_path / "all.so") == [["sm_80", "sm_86"], ["sm_80"]]
    assert arches(tmp_path / "best.so") == [["sm_86"], ["sm_80"]]


@pytest.mark.usefixtures("library")
def test_a_dry_run_writes_nothing(tmp_path):
    before = sorted(tmp_path.iterdir())
    assert ran("libgpu.so", "--gpu", "8.6", "-n", "-o", "out.so").exit_code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_what_stays_is_named_with_the_reason(library, tmp_path):
    with library.open("ab") as file:
        file.write(b"appended")
    done = ran("libgpu.so", "--gpu", "8.6", "-o", "out.so")
    assert "nothing to cut" in done.output
    assert ".nv_fatbin keeps" in done.output
    assert (tmp_path / "out.so").read_bytes() == library.read_bytes()


def test_nvidia_s_files_need_a_word(library, tmp_path):
    (tmp_path / "libcublas.so.12").write_bytes(library.read_bytes())
    with pytest.raises(DpackError, match=r"cannot slice libcublas\.so\.12: ") as refused:
        ran("libcublas.so.12", "--gpu", "8.6", "-o", "out.so")
    assert refused.value.exit == 1
    assert "only as NVIDIA shipped it" in refused.value.tried[0]
    assert "--vendor" in refused.value.next
    assert not (tmp_path / "out.so").exists()
    done = ran("libcublas.so.12", "--gpu", "8.6", "-o", "out.so", "--vendor")
    assert done.exit_code == 0
    assert "only as NVIDIA shipped it" in done.stderr
    assert arches(tmp_path / "out.so") == [["sm_80", "sm_86"], ["sm_80"]]


def test_every_licence_in_the_way_is_named_at_once(library, tmp_path):
    names = ("libcublas.so.12", "libcublasLt.so.12", "libcudnn_ops.so.9")
    for name in names:
        (tmp_path / name).write_bytes(library.read_bytes())
    with pytest.raises(DpackError, match=r"cannot slice 3 of these files") as refused:
        ran(*names, "libgpu.so", "--gpu", "8.6", "-o", "out/")
    assert [line.split(" under ")[0] for line in refused.value.tried] == [
        "libcublas.so.12, libcublasLt.so.12 are",
        "libcudnn_ops.so.9 is",
    ]
    assert not (tmp_path / "out").exists()


REFUSED = {
    "no code for it": (["--gpu", "7.0", "-o", "out.so"], "no code that runs there", 1),
    "not an architecture": (["--gpu", "large", "-o", "out.so"], "not a compute capability", 2),
    "the file itself": (
        ["--gpu", "8.6", "-o", "libgpu.so", "--force"],
        "it is libgpu.so, a file to slice",
        2,
    ),
    "something is there": (["--gpu", "8.6", "-o", "answer.c"], "exists already", 2),
    "several into a file": (["other.so", "--gpu", "8.6", "-o", "answer.c"], "it is no directory", 2),
    "two of one name": (
        ["sub/libgpu.so", "--gpu", "8.6", "-o", "out.so"],
        "two of the files have that name",
        2,
    ),
    "one has no code for it": (["other.so", "--gpu", "5.0", "-o", "out.so"], "other.so for sm_50", 1),
    "into a broken link": (["other.so", "--gpu", "8.6", "-o", "nothing", "-f"], "it is no directory", 2),
    "to a stream": (["other.so", "--gpu", "8.6", "-o", "-"], "does not write to standard output", 2),
    "two links of one name": (
        ["other.so", "sub/l.so", "l.so", "--gpu", "8.6", "-o", "out.so"],
        "l.so: two of the files have that name",
        2,
    ),
    "over another input": (
        ["link.so", "--gpu", "8.6", "-o", "sub", "-f"],
        "sub/libgpu.so: it is link.so, a file to slice",
        2,
    ),
    "a directory": (["sub", "--gpu", "8.6", "-o", "out.so"], "cannot read sub", 2),
    "a name too long": (["--gpu", "8.6", "-o", "a" * 300], "File name too long", 1),
    "a vendor's file that is not there": (
        ["libcublas.so.12", "--gpu", "8.6", "-o", "o"],
        "cannot read lib",
        2,
    ),
    "one is no ELF file": (["answer.c", "--gpu", "8.6", "-o", "out.so"], "cannot read answer.c", 2),
    "one is not there": (["none.so", "--gpu", "8.6", "-o", "out.so"], "cannot read none.so", 2),
    "its own directory": (["--gpu", "8.6", "-o", ".", "--force"], "a file to slice", 2),
}


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("why", REFUSED)
def test_refused(tmp_path, why):
    arguments, message, code = REFUSED[why]
    (tmp_path / "other.so").write_bytes(elf_file({".rodata": container(*map(big, ("sm_80", "sm_90a")))}))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/libgpu.so").write_bytes((tmp_path / "other.so").read_bytes())
    (tmp_path / "link.so").symlink_to("sub/libgpu.so")
    (tmp_path / "l.so").symlink_to("other.so")
    (tmp_path / "sub/l.so").symlink_to("../libgpu.so")
    (tmp_path / "nothing").symlink_to("none")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DpackError, match=message) as refused:
        ran("libgpu.so", *arguments)
    assert refused.value.exit == code
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("made", [True, False])
def test_several_files_go_into_a_directory(library, tmp_path, made):
    plain = tmp_path / "libplain.so"
    plain.write_bytes(elf_file({".rodata": b"no GPU code"}))
    (tmp_path / "libother.so").write_bytes(library.read_bytes())
    if made:
        (tmp_path / "out").mkdir()
    done = ran("libgpu.so", "libother.so", "libplain.so", "--gpu", "8.6", "-o", "out")
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == ["libgpu.so", "libother.so", "libplain.so"]
    assert arches(out / "libgpu.so") == arches(out / "libother.so") == [["sm_86"], ["sm_80"]]
    assert (out / "libplain.so").read_bytes() == plain.read_bytes()
    words = [line.split() for line in done.output.splitlines()]
    assert [row[0] for row in words] == ["file", "libgpu.so", "libother.so", "libplain.so", "together"]
    assert [row[-1] for row in words[1:]] == ["less", "less", "code", "less"]
    whole, size = 2 * library.stat().st_size, 2 * (out / "libgpu.so").stat().st_size
    assert words[-1][-3:] == [*human(whole - size).split(), "less"]


def test_a_slash_makes_a_directory_for_one_file(library, tmp_path):
    assert ran("libgpu.so", "--gpu", "8.6", "-o", "out/").exit_code == 0
    assert (tmp_path / "out/libgpu.so").stat().st_size < library.stat().st_size


@pytest.mark.parametrize("way", ["link", "hard link"])
def test_a_file_with_several_names_is_sliced_once(library, tmp_path, way):
    names = ["libgpu.so", "libgpu.so.1", "libgpu.so.1.2"]
    library.rename(tmp_path / names[2])
    for name in names[:2]:
        if way == "link":
            (tmp_path / name).symlink_to(names[2])
        else:
            (tmp_path / name).hardlink_to(tmp_path / names[2])
    done = ran(*names, names[0], "--gpu", "8.6", "-o", "out", "--json")
    told = json.loads(done.output)
    [file] = [path for path in (tmp_path / "out").iterdir() if not path.is_symlink()]
    assert [each["path"] for each in told["files"]] == [file.name]
    assert told["links"] == {
        path.name: file.name for path in sorted((tmp_path / "out").iterdir()) if path != file
    }
    assert sorted([file.name, *told["links"]]) == names
    assert {(tmp_path / "out" / name).resolve() for name in names} == {file}
    assert file.name == names[2] or way == "hard link"
    again = ran(*names, "--gpu", "8.6", "-n")
    assert again.output.count(" is a link to ") == 2
    assert "together" not in again.output


def test_links_alone_keep_their_order(library, tmp_path):
    """As `dpack fetch --sdk` makes them: the last of the names leads to a file elsewhere."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/libgpu.so.1").symlink_to(library)
    (tmp_path / "lib/libgpu.so").symlink_to("libgpu.so.1")
    assert ran("lib/libgpu.so", "lib/libgpu.so.1", "--gpu", "8.6", "-o", "out").exit_code == 0
    assert not (tmp_path / "out/libgpu.so.1").is_symlink()
    assert (tmp_path / "out/libgpu.so").readlink() == Path("libgpu.so.1")


@pytest.mark.usefixtures("library")
def test_a_long_name_that_may_be_is_written(tmp_path):
    assert ran("libgpu.so", "--gpu", "8.6", "-o", 120 * "é").exit_code == 0
    assert (tmp_path / (120 * "é")).is_file()


@pytest.mark.parametrize("fails", ["rename", "mkdir", "symlink_to"])
def test_an_output_that_fails_leaves_nothing(library, tmp_path, monkeypatch, fails):
    (tmp_path / "other.so").symlink_to("libgpu.so")

    def refuse(self, *_, **__):
        raise OSError(errno.EBUSY, "Device or resource busy", str(self))

    monkeypatch.setattr(Path, fails, refuse)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(DpackError, match="Device or resource busy") as refused:
        ran("libgpu.so", "other.so", "--gpu", "8.6", "-o", "out")
    assert (refused.value.exit, bool(refused.value.next)) == (1, True)
    assert sorted(tmp_path.iterdir()) == before
    assert library.exists()


def test_an_output_that_appears_meanwhile_stops_all_of_them(library, tmp_path, monkeypatch):
    (tmp_path / "other.so").write_bytes(library.read_bytes())
    (tmp_path / "out").mkdir()
    made = slicing._sliced

    def somebody_else_writes(jobs):
        done = made(jobs)
        (tmp_path / "out/libgpu.so").write_text("theirs")
        return done

    monkeypatch.setattr(slicing, "_sliced", somebody_else_writes)
    with pytest.raises(DpackError, match=r"out/libgpu\.so: it exists already"):
        ran("libgpu.so", "other.so", "--gpu", "8.6", "-o", "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["libgpu.so"]
    assert (tmp_path / "out/libgpu.so").read_text() == "theirs"


def test_an_interrupt_among_the_renames_waits_for_the_last(library, tmp_path, monkeypatch):
    (tmp_path / "other.so").write_bytes(library.read_bytes())
    rename = Path.rename

    def interrupted(self, target):
        os.kill(os.getpid(), signal.SIGINT)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    assert ran("libgpu.so", "other.so", "--gpu", "8.6", "-o", "out").exit_code == 1
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["libgpu.so", "other.so"]


def test_one_file_goes_into_a_directory_that_is_there(library, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "dpack.json").write_text(
        "{}"
    )  # a bundle: what is in it stays, whatever --force allows
    assert ran("libgpu.so", "--gpu", "8.6", "-o", "out", "--force").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["dpack.json", "libgpu.so"]
    assert (tmp_path / "out/libgpu.so").stat().st_size < library.stat().st_size


def test_a_notice_names_the_changed_files_alone(library, tmp_path):
    for name in ("libcublas.so.12", "libcublasLt.so.12", "libcudnn_ops.so.9"):
        (tmp_path / name).write_bytes(library.read_bytes())
    (tmp_path / "libnvrtc.so.12").write_bytes(elf_file({".rodata": b"no GPU code"}))
    names = sorted(path.name for path in tmp_path.glob("libc*.so.*"))
    done = ran(*names, "libnvrtc.so.12", "libgpu.so", "--gpu", "8.6", "-n")
    cublas, cudnn = done.stderr.splitlines()
    assert cublas.startswith("libcublas.so.12, libcublasLt.so.12 are under the NVIDIA CUDA Toolkit EULA")
    assert cudnn.startswith("libcudnn_ops.so.9 is under the NVIDIA cuDNN")


@pytest.mark.usefixtures("library")
def test_a_place_to_write_is_asked_for():
    done = ran("libgpu.so", "--gpu", "8.6")
    assert done.exit_code == 2
    assert "-o" in done.output


@pytest.mark.usefixtures("library")
def test_force_replaces(tmp_path):
    (tmp_path / "out.so").write_text("old")
    assert ran("libgpu.so", "--gpu", "8.6", "-o", "out.so", "--force").exit_code == 0
    assert arches(tmp_path / "out.so") == [["sm_86"], ["sm_80"]]
