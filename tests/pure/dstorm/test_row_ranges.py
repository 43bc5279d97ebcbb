"""Rows of another host's memory are read as few ranges, which hold each of them where it is said."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstorm.transports.mpi.rows import GAP_NBYTES, ranges

pytestmark = pytest.mark.serial


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.sampled_from([1, 8, 36, 400]))
def test_the_ranges_hold_the_rows_that_are_wanted(places, width):
    found = ranges(np.array(places, np.int64), width)
    each = zip(found.starts, found.counts, strict=True)
    held = np.concatenate([np.arange(start, start + count) for start, count in each])
    np.testing.assert_array_equal(held[found.wanted], places)
    gaps = found.starts[1:] - found.starts[:-1] - found.counts[:-1]
    assert (gaps * width > GAP_NBYTES).all()


def test_what_is_read_beside_them_is_little():
    one = ranges(np.arange(0, 10_000, 2), 8)
    assert one.starts.tolist() == [0] and one.counts.tolist() == [9_999]
    apart = ranges(np.arange(0, 10_000, 100), 8)
    assert apart.counts.tolist() == [1] * 100
