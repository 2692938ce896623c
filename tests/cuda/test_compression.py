"""Frames and blocks: their length from the headers alone, and what is in them."""

from random import Random

import pytest
import zstandard
from builders.fatbin import compressed
from hypothesis import given
from hypothesis import strategies as st

from packager.cuda.compression import decompressed, zstd_frame, zstd_head

TEXT = bytes(range(256)) * 2000


def frame(**options):
    return zstandard.ZstdCompressor(**options).compress(TEXT)


def streamed(content):
    each = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    return each.compress(content) + each.flush()


def measured(content, offset=0, end=None):
    return zstd_frame(lambda at, size: content[at : at + size], offset, len(content) if end is None else end)


@pytest.mark.parametrize(
    ("made", "content"),
    [
        (frame(), len(TEXT)),
        (frame(write_checksum=True), len(TEXT)),
        (frame(write_content_size=False), 0),
        (streamed(TEXT), 0),
        (zstandard.ZstdCompressor().compress(b""), 0),
        (zstandard.ZstdCompressor().compress(b"a" * 300), 300),
        (zstandard.ZstdCompressor().compress(bytes(1 << 20)), 1 << 20),
    ],
)
def test_a_frame_is_measured_without_decompressing(made, content):
    found = measured(made + b"behind")
    assert found == measured(b"before" + made, 6)
    assert found[:2] == (len(made), content)
    assert measured(made[:-1]) is None
    assert measured(made + b"behind", 0, len(made) - 1) is None


@given(st.binary(max_size=60))
def test_anything_behind_a_magic_is_a_frame_that_fits_or_none(tail):
    content = b"\x28\xb5\x2f\xfd" + tail
    found = measured(content)
    assert found is None or 0 < found.first <= found.size <= len(content)
    assert len(zstd_head(content, 64)) <= 64


@pytest.mark.parametrize("compression", ["", "lz4", "zstd"])
def test_content_comes_back(compression):
    assert decompressed(compressed(TEXT, compression), compression, len(TEXT)) == TEXT


@pytest.mark.parametrize("compression", ["lz4", "zstd", "unknown"])
def test_damaged_content_comes_back_as_nothing(compression):
    assert decompressed(b"\xff" * 40, compression, 1000) == b""


def test_the_head_of_a_frame_needs_only_its_first_block():
    content = bytes(Random(4).choices(b"acgt", k=400_000))
    made = compressed(content, "zstd")
    assert zstd_head(made[: measured(made).first], 64) == content[:64]
    assert zstd_head(made[: measured(made).first - 1], 64) != content[:64]
