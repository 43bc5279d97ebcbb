"""Sets of rows: checked row numbers, and unions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vol.sparse.rows import checked_rows, is_set_of_rows, union


@pytest.mark.parametrize(
    "rows",
    [[4, 0, 2], (0, 2, 4), np.array([2, 4, 0], np.uint8), {0, 2, 4}, range(0, 5, 2), (r for r in (0, 2, 4)),
     np.array([True, False, True, False, True, False]), [True, False, True, False, True, False], np.uint64([4, 2, 0])],
    ids=lambda rows: f"{type(rows).__name__} {getattr(rows, 'dtype', '')}",
)  # fmt: skip
def test_row_numbers_and_masks(rows):
    named = checked_rows(rows, 6)
    assert named.dtype == np.intp and named.tolist() == [0, 2, 4]


def test_one_row_and_no_row():
    assert checked_rows(3, 6).tolist() == [3]
    for empty in ([], (), np.array([]), np.zeros(6, bool), np.empty(0, int)):
        assert checked_rows(empty, 6).tolist() == []
    assert checked_rows([], 0).tolist() == []


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([1, 6, 2, 9], "from 0 to 5: got 6, 9"),
        ([1, -1, -7], "from 0 to 5: got -1, -7"),
        ([2**70, 1], f"got {2**70}"),
        (np.array([2**63], np.uint64), f"got {2**63}"),
        ([1, 2.5, 3], "integers: got 2.5"),
        ([1.0, 2.0], "integers: got 1.0, 2.0"),
        ([float("nan")], "integers: got nan"),
        ([3, 1, 3, 2, 1], "named once: got 1, 3"),
        ([[1, 2]], r"flat list of row numbers, got shape \(1, 2\)"),
        ([True, False], r"shape \(6,\), got \(2,\)"),
        (range(10, 20), "got 10, 11, 12, 13, 14 and 5 more"),
    ],
)
def test_bad_rows_are_listed(rows, message):
    with pytest.raises(ValueError, match=message):
        checked_rows(rows, 6)


def test_objects_that_are_integers_or_marks():
    """As a column of a data frame may have them."""
    assert checked_rows(np.array([3, 1], object), 6).tolist() == [1, 3]
    assert checked_rows(np.array([True, False], object), 2).tolist() == [0]


@pytest.mark.parametrize("rows", ["3", ["a"], [None], [1, "a"], {"a": 1}, b"12", object(), [1, None], None])
def test_what_is_neither_numbers_nor_a_mask(rows):
    with pytest.raises(TypeError, match="rows must be integers or a mask, got"):
        checked_rows(rows, 6)


@given(st.integers(1, 400), st.lists(st.sets(st.integers(0, 399)), min_size=1, max_size=4))
def test_union(n, sets):
    sets = [sorted(row for row in rows if row < n) for rows in sets]
    united = union([np.array(rows, np.intp) for rows in sets], n)
    assert united.tolist() == sorted(set().union(*sets))
    assert is_set_of_rows(united, n)


@pytest.mark.parametrize("bad", [[1, 1], [2, 1], [-1, 2], [0, 3], [5]])
@pytest.mark.parametrize("dtype", [np.int64, np.uint32])
def test_what_is_not_a_set_of_rows(bad, dtype):
    assert not is_set_of_rows(np.array(bad).astype(dtype), 3)
    assert is_set_of_rows(np.array([0, 2], dtype), 3) and is_set_of_rows(np.array([], dtype), 3)
