"""Which form, which top directory, which time, which level."""

from __future__ import annotations

import pytest

from packager.emit import EPOCH, Format, epoch_of, format_of, top_of
from packager.emit.format import level_of
from packager.errors import DpackError


@pytest.mark.parametrize(
    ("name", "option", "expected"),
    [
        ("mnist", None, "tar.zst"),
        ("mnist-1.2", None, "tar.zst"),
        ("mnist.tar", None, "tar"),
        ("mnist.tar.gz", None, "tar.gz"),
        ("mnist.tgz", None, "tar.gz"),
        ("mnist.tar.zst", None, "tar.zst"),
        ("mnist.tzst", None, "tar.zst"),
        ("MNIST.TAR.GZ", None, "tar.gz"),
        ("mnist/", None, "dir"),
        ("mnist.tar/", None, "dir"),
        ("mnist.tar.gz", "dir", "dir"),
        ("mnist.zip", "tar", "tar"),
        ("mnist.zip", None, "cannot write mnist.zip: dpack does not write .zip files"),
        ("mnist.tar.xz", None, "cannot write mnist.tar.xz: dpack does not write .xz files"),
        ("mnist.oci", None, "cannot write mnist.oci: the name alone makes no image"),
        ("mnist.layer", None, "cannot write mnist.layer: the name alone makes no image"),
        ("mnist.oci", "tar", "tar"),
        ("mnist", "rar", "cannot write a bundle as rar: unknown format"),
    ],
)
def test_format(name, option, expected):
    if expected in set(Format):
        assert format_of(name, option) == expected
        return
    with pytest.raises(DpackError) as caught:
        format_of(name, option)
    assert str(caught.value) == expected
    assert caught.value.exit == 2
    assert caught.value.next == {
        "rar": "choose one of dir, tar, tar.gz, tar.zst",
        "mnist.oci": "add --format oci",
        "mnist.layer": "add --format layer",
    }.get(option or name, "choose one of dir, tar, tar.gz, tar.zst, oci, oci-archive, layer with --format")


def test_a_directory_that_exists_means_a_directory(tmp_path):
    assert format_of(tmp_path) is Format.DIR


@pytest.mark.parametrize(
    ("name", "top"),
    [
        ("out/mnist.tar.zst", "mnist"),
        ("mnist-1.2.TGZ", "mnist-1.2"),
        ("mnist", "mnist"),
        ("mnist.so", "mnist.so"),
        (".tar.zst", "bundle"),
    ],
)
def test_top(name, top):
    assert top_of(name) == top


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, EPOCH),
        ("", EPOCH),
        ("0", 0),
        ("1700000000", 1_700_000_000),
        ("8589934591", 8_589_934_591),
        ("8589934592", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("now", None),
        ("1" * 5000, None),
    ],
)
def test_source_date_epoch(value, expected):
    environment = {} if value is None else {"SOURCE_DATE_EPOCH": value}
    if expected is not None:
        assert epoch_of(environment) == expected
        return
    with pytest.raises(DpackError, match="cannot use SOURCE_DATE_EPOCH") as caught:
        epoch_of(environment)
    assert caught.value.exit == 2


@pytest.mark.parametrize(
    ("form", "level", "expected"),
    [
        (Format.TAR_ZST, None, 3),
        (Format.TAR_ZST, 19, 19),
        (Format.TAR_ZST, 20, "tar.zst has no such level"),
        (Format.TAR_GZ, None, 6),
        (Format.TAR_GZ, 0, "tar.gz has no such level"),
        (Format.TAR, None, 0),
        (Format.DIR, 3, "dir is not compressed"),
    ],
)
def test_level(form, level, expected):
    if isinstance(expected, int):
        assert level_of(form, level) == expected
        return
    with pytest.raises(DpackError, match=expected) as caught:
        level_of(form, level)
    assert caught.value.exit == 2
