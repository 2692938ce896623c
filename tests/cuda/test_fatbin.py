"""One container: what is read from it, and that nothing makes the reader believe, crash or loop."""

import struct

import pytest
from builders.fatbin import container, cubin, member, ptx
from hypothesis import find, given
from hypothesis import strategies as st

from packager.arch import Kind, spelling
from packager.cuda.code import Section
from packager.cuda.fatbin import MAGIC, container_at

WHOLE = container("sm_50", member("sm_90a", compression="lz4"), member("compute_120f", header_size=80))


def parse(content, offset=0):
    """The container at this offset of a section that is all of ``content``."""
    whole = Section("", 0, 0, len(content), 0, 0)
    return container_at(lambda start, size: content[start : start + size], whole, offset)


def rows(found):
    return [
        (spelling(m.kind, m.arch), m.offset, m.header_size, m.payload_size, m.compressed)
        for m in found.members
    ]


def test_members_are_listed_in_order_with_their_places():
    found = parse(b"\0" * 8 + WHOLE + b"more", 8)
    first = len(cubin("sm_50"))
    second = found.members[1]
    assert (found.offset, found.size, found.end) == (8, len(WHOLE), 8 + len(WHOLE))
    assert rows(found) == [
        ("sm_50", 24, 64, first, ""),
        ("sm_90a", 24 + 64 + first, 64, second.payload_size, "lz4"),
        ("compute_120f", second.end, 80, -(-len(ptx("compute_120f")) // 8) * 8, ""),
    ]
    assert second.uncompressed_size == len(cubin("sm_90a"))
    assert second.stored_size == second.compressed_size <= second.payload_size
    assert found.members[0].uncompressed_size == found.members[0].stored_size == first
    assert found.members[-1].end == found.end


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        ("sm_80", Kind.CUBIN),
        ("compute_80", Kind.PTX),
        ("lto_80", Kind.LTO),
        (member("sm_80", kind=16), Kind.OTHER),
    ],
)
def test_each_kind_is_known_and_the_others_are_kept_apart(made, kind):
    assert parse(container(made)).members[0].kind is kind


def test_an_unknown_compression_is_called_so():
    (found,) = parse(changed("<Q", 16 + 40, 0x11, container(member("sm_80", compression="zstd")))).members
    assert found.compressed == "unknown"


def test_a_container_may_be_empty():
    found = parse(container())
    assert (found.size, found.members) == (16, ())


def changed(form, at, value, content=WHOLE):
    content = bytearray(content)
    struct.pack_into(form, content, at, value)
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        MAGIC,
        WHOLE[:-8],
        WHOLE[:40],
        changed("<I", 0, 0x466243B1),
        changed("<H", 4, 2),
        changed("<H", 6, 24),
        changed("<Q", 8, len(WHOLE) - 16 - 8),
        changed("<Q", 8, len(WHOLE) - 16 + 8) + bytes(8),
        changed("<Q", 8, len(WHOLE) - 16 + 64) + bytes(64),
        changed("<Q", 8, 2**64 - 16),
        changed("<Q", 8, 2**64 - 1),
        changed("<H", 16, 0),
        changed("<H", 16 + 2, 0x0100),
        changed("<I", 16 + 4, 0),
        changed("<I", 16 + 4, 56),
        changed("<I", 16 + 4, 2**32 - 8),
        changed("<Q", 16 + 8, 0),
        changed("<Q", 16 + 8, 2**64 - 64),
        changed("<Q", 16 + 8, 2**63),
        changed("<I", 16 + 16, 2**32 - 1),
        changed("<I", 16 + 28, 0),
        changed("<I", 16 + 28, 70_000),
    ],
)
def test_a_container_that_does_not_hold_together_is_none(content):
    assert parse(WHOLE) is not None
    assert parse(content) is None


def test_a_container_stands_at_a_multiple_of_eight():
    assert parse(b"\0" * 4 + WHOLE, 4) is None


def fits(content, found):
    ends = [found.offset + 16, *(m.end for m in found.members)]
    assert [m.offset for m in found.members] == ends[:-1]
    assert ends[-1] == found.end <= len(content)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=6))
def test_a_damaged_container_is_read_soundly_or_not_at_all(damage):
    content = bytearray(WHOLE)
    for at, value in damage:
        content[at] = value
    found = parse(bytes(content))
    if found is not None:
        fits(content, found)


FIELDS = (("<H", 0), ("<H", 2), ("<I", 4), ("<Q", 8), ("<I", 16), ("<I", 28), ("<Q", 40), ("<Q", 56))
"""Of a member's header: kind, version, header size, payload, compressed size, SM number, flags, size."""


def with_fields(name, content, fields):
    made = member(name, content)
    for (form, at), value in fields:
        made = changed(form, at, value, made)
    return made


ODD_MEMBERS = st.builds(
    with_fields,
    st.sampled_from(["sm_80", "compute_90", "lto_50"]),
    st.binary(max_size=100),
    st.lists(st.tuples(st.sampled_from(FIELDS), st.integers(0, 1200)), max_size=2),
)
ODD = st.builds(
    lambda members, more: container(*members) + more, st.lists(ODD_MEMBERS), st.binary(max_size=20)
)


@given(ODD)
def test_members_of_random_fields_are_read_soundly_or_not_at_all(content):
    found = parse(content)
    if found is not None:
        fits(content, found)


@pytest.mark.parametrize("members", [None, 1, 3])
def test_random_fields_make_containers_that_are_read_and_others(members):
    find(ODD, lambda content: members == ((found := parse(content)) and len(found.members)))
