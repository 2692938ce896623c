"""Relocations found by two bytes of their addresses are those that a look at each would find."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packager.cuda.relocations import ADDEND_AT, ENTRY_SIZE, Relocations

EDGES = [
    0,
    1,
    0xFFFF,
    0x10000,
    0xFFFFFF,
    0x1000000,
    0x1FF0000,
    0xFFFFFFFF,
    0x100000000,
    0x1_0203_0405,
    (1 << 64) - 1,
]
addresses = st.one_of(st.sampled_from(EDGES), st.integers(0, 1 << 26), st.integers(0, (1 << 64) - 1))
ranges = st.lists(
    st.tuples(addresses, st.integers(1, 1 << 27)).map(lambda each: (each[0], sum(each))), max_size=4
)


def table(rows):
    return Relocations(b"".join(struct.pack("<QQQ", *row) for row in rows))


@given(st.lists(st.tuples(addresses, st.just(8), addresses), max_size=40), ranges)
def test_what_is_in_some_ranges_is_found(rows, within):
    found = table(rows)
    for column, numbers in ((0, found.at(within)), (2, found.into(within))):
        expected = [n for n, row in enumerate(rows) if any(low <= row[column] < high for low, high in within)]
        assert numbers == expected


def test_columns_are_the_fields_of_an_entry():
    found = table([(1, 8, 2), (3, 5 << 32 | 6, 4)])
    assert (len(found), ENTRY_SIZE, ADDEND_AT) == (2, 24, 16)
    assert [list(each) for each in (found.places, found.kinds, found.addends)] == [
        [1, 3],
        [8, 5 << 32 | 6],
        [2, 4],
    ]


@pytest.mark.parametrize("end", [0x20000, 0x3000000, 1 << 40])
def test_a_range_ends_before_its_end(end):
    found = table([(end - 1, 8, end), (end, 8, end - 1)])
    assert found.at([(0x100, end)]) == [0]
    assert found.into([(0x100, end)]) == [1]
