"""The names of kernels in cubins and PTX, damaged ones included."""

import pytest
from builders.fatbin import cubin, ptx
from hypothesis import given
from hypothesis import strategies as st

from packager.arch import Kind
from packager.cuda.kernels import names_in

CUBIN = cubin("sm_90a", ("_Z3addPf", "mul"))


@pytest.mark.parametrize(
    ("content", "kind", "names"),
    [
        (CUBIN, Kind.CUBIN, ("_Z3addPf", "mul")),
        (cubin("sm_120", ()), Kind.CUBIN, ()),
        (ptx("compute_80", ("_Z3addPf", "mul$1")), Kind.PTX, ("_Z3addPf", "mul$1")),
        (b"BC\xc0\xde", Kind.LTO, ()),
        (b"", Kind.CUBIN, ()),
        (b"", Kind.PTX, ()),
        (CUBIN[:-1], Kind.CUBIN, ()),
        (b"\0" * 200, Kind.CUBIN, ()),
    ],
)
def test_names(content, kind, names):
    assert names_in(content, kind) == names


@given(st.lists(st.tuples(st.integers(0, len(CUBIN) - 1), st.integers(0, 255)), max_size=8))
def test_a_damaged_cubin_has_names_or_none(damage):
    content = bytearray(CUBIN)
    for at, value in damage:
        content[at] = value
    assert all(names_in(bytes(content), Kind.CUBIN))
