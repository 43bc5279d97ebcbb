"""Rows of another host's memory are read as few ranges, which hold each of them where it is said."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dstorm.transports.mpi.rows import GAP_NBYTES, MOST_NBYTES, pieces, ranges


def held(found):
    each = zip(found.starts, found.counts, strict=True)
    return np.concatenate([np.arange(start, start + count) for start, count in each])


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.sampled_from([1, 8, 36, 400]))
def test_the_ranges_hold_the_rows_that_are_wanted(places, width):
    found = ranges(np.array(places, np.int64), width)
    np.testing.assert_array_equal(held(found)[found.wanted], places)
    gaps = found.starts[1:] - found.starts[:-1] - found.counts[:-1]
    assert (gaps * width > GAP_NBYTES).all()


def test_what_is_read_beside_them_is_little():
    one = ranges(np.arange(0, 10_000, 2), 8)
    assert one.starts.tolist() == [0] and one.counts.tolist() == [9_999]
    apart = ranges(np.arange(0, 10_000, 100), 8)
    assert apart.counts.tolist() == [1] * 100


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=60), st.sampled_from([8, 400, 9_000, MOST_NBYTES, 100_000]))
def test_a_get_reads_no_more_than_it_may_and_all_of_them_read_the_rows(places, width):
    found = ranges(np.array(places, np.int64), width)
    read = list(pieces(found, width))
    assert all((one.counts > 0).all() for _, one in read)
    sizes = [one.counts.sum() for _, one in read]
    assert all(size * width <= MOST_NBYTES or size == 1 for size in sizes)
    ends = np.cumsum(sizes).tolist()
    assert [rows for rows, _ in read] == [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    np.testing.assert_array_equal(np.concatenate([held(one) for _, one in read]), held(found))
