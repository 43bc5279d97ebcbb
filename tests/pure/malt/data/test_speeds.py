"""Rows dealt in proportion to speed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from malt.data import speeds
from malt.data.shards import bounds


@given(st.integers(0, 10_000), st.lists(st.floats(0.01, 100), min_size=1, max_size=9))
def test_each_row_is_dealt_and_all_end_at_the_same_time(count, some):
    fast = np.array(some)
    numbers = speeds.deal(count, fast)
    assert numbers.sum() == count and (numbers >= 0).all() and (numbers == numbers.astype(int)).all()
    assert (np.abs(numbers - count * fast / fast.sum()) < 1.01).all()


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_equal_ranks_get_what_shard_deals(count, size):
    parts = [bounds(count, rank, size) for rank in range(size)]
    assert speeds.parts(speeds.deal(count, [0.3] * size)) == parts
    assert speeds.parts(speeds.deal(count, [0.0] * size)) == parts


def test_a_failed_rank_gets_no_rows_and_an_unknown_one_the_mean():
    assert speeds.guessed([2.0, None, 0.0, 4.0]) == [2.0, 0.0, 3.0, 4.0]
    assert speeds.deal(90, speeds.guessed([2.0, None, 0.0, 4.0])).tolist() == [20, 0, 30, 40]
