"""What arrays of several ranks come to, element by element, in rank order."""

import numpy as np
import pytest

from dstorm.reduction import OPERATIONS, accumulator, counting, reduce_into


def reduced(parts, op="mean", weights=None, dtype=None):
    arrays = {rank: np.asarray(part) for rank, part in parts.items()}
    result = np.empty_like(next(iter(arrays.values())), dtype=dtype)
    reduce_into(result, arrays, op, weights)
    return result


@pytest.mark.parametrize("op", OPERATIONS)
def test_what_numpy_makes_of_them(op):
    arrays = np.random.default_rng(3).normal(size=(5, 40))
    expected = getattr(np, op)(arrays, axis=0)
    assert np.allclose(reduced(dict(enumerate(arrays)), op), expected, rtol=1e-15)


def test_ranks_are_combined_in_their_order():
    parts = {2: [1.0], 0: [1e16], 1: [-1e16]}
    assert reduced(parts, "sum").tolist() == [1.0]  # 1e16 + 1 - 1e16 is 0


def test_a_weighted_mean():
    assert reduced({0: [3.0], 4: [7.0]}, weights={0: 3, 4: 1, 5: 9}).tolist() == [4.0]


def test_equal_weights_are_none():
    arrays = dict(enumerate(np.random.default_rng(1).normal(size=(3, 9)).astype(np.float32)))
    assert reduced(arrays, weights=dict.fromkeys(range(3), 0.3)).tobytes() == reduced(arrays).tobytes()


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_weights_of_any_size(scale):
    parts = {0: np.ones(2, np.float32), 1: np.full(2, 5, np.float32)}
    assert reduced(parts, weights={0: scale, 1: 3 * scale}) == pytest.approx(4)


def test_arrays_are_left_as_they_are():
    parts = {0: np.ones(3), 1: np.ones(3)}
    reduced(parts, "sum")
    reduced(parts, weights={0: 1, 1: 2})
    assert all((part == 1).all() for part in parts.values())


def test_float16_is_combined_in_float32():
    assert accumulator(np.float16) == np.float32 and accumulator(">f8") == ">f8"
    wide = {rank: np.array([value], np.float32) for rank, value in enumerate([60000, 60000, -60000])}
    assert reduced(wide, "sum", dtype=np.float16).tolist() == [60000]
    assert np.isinf(reduced({0: wide[0], 1: wide[1]}, "sum", dtype=np.float16)).all()


def test_no_error_comes_out_of_numbers():
    """It would be raised on the rank alone whose block it is in."""
    parts = {0: np.array([np.inf, 1e308, np.nan, 0.0]), 1: np.array([-np.inf, 1e308, 1.0, -0.0])}
    with np.errstate(all="raise"):
        made = reduced(parts, "sum")
        assert np.isnan(reduced(parts, "max"))[2]
    assert np.isnan(made[0]) and np.isinf(made[1]) and np.isnan(made[2])


def test_truth_values_as_in_numpy():
    parts = {0: np.array([True, False]), 1: np.array([True, False])}
    assert [reduced(parts, op).tolist() for op in ("sum", "max", "min")] == [[True, False]] * 3


def test_who_counts():
    assert counting(None, {3, 1}) == [1, 3]
    assert counting({0: 1, 1: 0.0, 3: 2}, range(3)) == [0]
    with pytest.raises(ValueError, match="all weights are zero"):
        counting({0: 0.0, 3: 1.0}, range(3))
