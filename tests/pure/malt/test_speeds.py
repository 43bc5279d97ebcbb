"""Rows dealt in proportion to speed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from malt.data import speeds
from malt.data.shards import bounds

pytestmark = pytest.mark.serial

SOME = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0, 1000)), min_size=1, max_size=9)


@given(st.integers(0, 10_000), SOME)
def test_each_row_is_dealt_and_all_end_at_the_same_time(count, some):
    fast, pending = map(np.array, zip(*some, strict=True))
    numbers = speeds.deal(count, fast, pending)
    assert numbers.sum() == count and (numbers >= 0).all() and (numbers == numbers.astype(int)).all()
    ends, slack = (pending + numbers) / fast, 1.01 / fast
    for rank in np.flatnonzero(numbers > 1):
        assert (ends[rank] - slack[rank] <= ends + slack).all()


@given(st.integers(0, 10_000), st.integers(1, 9))
def test_equal_ranks_get_what_shard_deals(count, size):
    parts = [bounds(count, rank, size) for rank in range(size)]
    assert speeds.parts(speeds.even(count, size)) == parts
    assert speeds.parts(speeds.deal(count, [0.3] * size)) == parts
    assert speeds.parts(speeds.deal(count, [0.0] * size, [7.0] * size)) == parts


def test_a_failed_rank_gets_no_rows_and_an_unknown_one_the_mean():
    assert speeds.guessed([2.0, None, 0.0, 4.0]) == [2.0, 0.0, 3.0, 4.0]
    assert speeds.deal(90, speeds.guessed([2.0, None, 0.0, 4.0]), [0, 50, 0, 0]).tolist() == [20, 0, 30, 40]


def test_a_rank_with_too_much_to_do_gets_nothing():
    assert speeds.deal(100, [1, 1, 1], [0, 50, 300]).tolist() == [75, 25, 0]
