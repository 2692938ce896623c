"""The same image everywhere; whole or not at all."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from builders.layouts import LAYERS, OPTIONS, files, form, image, last

from packager.emit import Item
from packager.errors import DpackError
from packager.oci.layer import LayerSpec
from packager.oci.write import ImageForm, write_layer_file, write_oci

COMPRESSIONS = ["zstd", "gzip", "none"]
TESTS = str(Path(__file__).resolve().parent.parent)


def names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_any_number_of_threads_and_either_form_give_the_same_image(tmp_path, compression):
    large = random.Random(1).randbytes(5_000_000) + b"abcdefgh" * 437_501
    found = set()
    for number, threads in enumerate([1, 2, 5]):
        items = [Item("opt/b", 0o755, large), *LAYERS[0].items]
        random.Random(number).shuffle(items)
        for kind in ImageForm:
            written = image(
                tmp_path / f"{number}.{kind}",
                kind,
                layers=[LayerSpec("all", tuple(items))],
                layer_form=form(compression, threads=threads),
            )
            found.add((written.manifest, written.config, written.account))
    assert len(found) == 1


SCRIPT = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from builders.layouts import image
os.umask(int(sys.argv[1], 8))
output = Path(sys.argv[2])
image(output, "oci")
image(output.with_suffix(".tar"), "oci-archive")
"""


def test_umask_cwd_time_zone_and_locale_change_nothing(tmp_path):
    found = []
    for number, (umask, cwd, zone, locale) in enumerate(
        [
            ("022", "/", "UTC", "C.UTF-8"),
            ("077", str(tmp_path), "Asia/Tokyo", "C"),
            ("000", "/usr", "EST5", "POSIX"),
        ]
    ):
        output = tmp_path / str(number)
        environment = {**os.environ, "TZ": zone, "LC_ALL": locale, "PYTHONHASHSEED": str(number)}
        command = [sys.executable, "-c", SCRIPT, umask, str(output), TESTS]
        subprocess.run(command, cwd=cwd, env=environment, check=True)
        modes = {path.stat().st_mode for path in output.rglob("*")} | {output.stat().st_mode}
        found.append((files(output), modes, output.with_suffix(".tar").read_bytes()))
    assert found[0] == found[1] == found[2]
    assert found[0][1] == {0o100644, 0o40755}


def test_the_digest_of_a_plain_image_is_what_this_line_says(tmp_path):
    """A golden digest: it changes only when the form of an image is meant to change."""
    written = image(tmp_path / "out", compression="none")
    assert (
        written.manifest.digest == "sha256:e8a645cfb4bd4dd84c6e7c577461745bc9fb8d383fd4ebcfe64b491ff8a68cfc"
    )


@pytest.mark.parametrize("kind", list(ImageForm))
def test_an_error_leaves_nothing_but_the_old_output(tmp_path, kind):
    output = tmp_path / "out"
    old = image(output, kind)

    def fails(_entries):
        raise DpackError("cannot account for it")

    for force in (True, False):
        with pytest.raises(DpackError, match="cannot account" if force else "it exists already"):
            write_oci(output, LAYERS, fails, OPTIONS, form=kind, layer_form=form(), force=force)
        assert names(tmp_path) == ["out"]
        assert f"blobs/sha256/{old.manifest.hex}" in files(output)


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from builders.layouts import image
from packager.emit import Item
from packager.oci.layer import LayerSpec
specs = [LayerSpec(name, (Item(name, 0o755, os.urandom(6_000_000)),)) for name in "ab"]
done = 0
def progress(count):
    global done
    done += count
    if done > 7_000_000:
        os.kill(os.getpid(), signal.SIGINT)
image(Path(sys.argv[2]), sys.argv[3], layers=specs, progress=progress)
"""


@pytest.mark.parametrize("kind", list(ImageForm))
def test_an_interrupt_leaves_nothing(tmp_path, kind):
    command = [sys.executable, "-c", INTERRUPTED, TESTS, str(tmp_path / "out"), kind]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "KeyboardInterrupt" in result.stderr
    assert result.returncode in (-signal.SIGINT, 130)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", list(ImageForm))
def test_force_replaces_an_image_of_ours_and_nobody_elses(tmp_path, kind):
    output = tmp_path / "out"
    image(output, "oci")
    image(output, kind, force=True)
    assert names(tmp_path) == ["out"]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (foreign / "index.json").write_text('{"schemaVersion":2,"manifests":[]}')
    with pytest.raises(DpackError, match="is not a bundle"):
        image(foreign, kind, force=True)
    assert names(foreign) == ["index.json", "oci-layout"]


@pytest.mark.parametrize("kind", list(ImageForm))
@pytest.mark.parametrize(
    ("specs", "message"),
    [
        (
            [LayerSpec("a", (Item("x", 0o644, b""),)), LayerSpec("b", (Item("x", 0o644, b""),))],
            "twice in the bundle: x",
        ),
        (
            [LayerSpec("a", (Item("x", 0o644, b""),)), LayerSpec("b", (Item("x/y", 0o644, b""),))],
            "both a file and",
        ),
        (
            [LayerSpec("a", (Item("opt/app/dpack.json", 0o644, b""),)), LayerSpec("b", ())],
            "twice in the bundle",
        ),
        ([LayerSpec("a", (Item("/etc/passwd", 0o644, b""),))], "not a path inside"),
    ],
)
def test_layers_that_do_not_go_together(tmp_path, kind, specs, message):
    with pytest.raises(ValueError, match=message):
        image(tmp_path / "out", kind, layers=specs)
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", list(ImageForm))
def test_a_file_that_is_not_there_is_named(tmp_path, kind):
    missing = LayerSpec("a", (Item("x", 0o644, tmp_path / "none"),))
    with pytest.raises(DpackError, match=r"cannot read .*/none: No such file"):
        image(tmp_path / "out", kind, layers=[missing])
    assert names(tmp_path) == []


def test_a_layer_file_is_whole_or_not_there(tmp_path):
    (tmp_path / "out.json").write_text("mine")
    with pytest.raises(DpackError, match=r"out\.json: it exists already"):
        write_layer_file(tmp_path / "out", LAYERS[0].items, last, layer_form=form())
    assert names(tmp_path) == ["out.json"]


@pytest.mark.parametrize(("compression", "level"), [("none", 3), ("gzip", 10), ("zstd", 20)])
def test_levels_that_there_are_not(tmp_path, compression, level):
    with pytest.raises(DpackError, match=f"cannot compress with level {level}") as caught:
        image(tmp_path / "out", layer_form=form(compression, level=level))
    assert caught.value.exit == 2
    assert names(tmp_path) == []
