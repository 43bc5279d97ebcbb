"""Error feedback: the rows sent and the residual sum to the increments given."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vol.sparse import error_feedback
from vol.sparse.error_feedback import Residual, nonzero_rows
from vol.sparse.wire import RowFormat


def residual(n, width, wire="f8"):
    return Residual(np.dtype("f8"), RowFormat(n, width, np.dtype(wire), n, scaled=wire == "i1"))


@given(
    st.integers(1, 20), st.integers(1, 3), st.integers(1, 6), st.sampled_from(["f2", "f8"]),
    st.integers(1, 12), st.integers(-2, 6), st.integers(0, 2**31),
)  # fmt: skip
def test_rows_sent_and_the_residual_sum_to_what_was_given(n, width, count, wire, steps, scale, seed):
    """They sum exactly: the increments are on a grid, and float64 holds every sum of these."""
    rng = np.random.default_rng(seed)
    left = residual(n, width, wire)
    given_sum, sent_sum = np.zeros((n, width)), np.zeros((n, width))
    for step in range(steps + 8 * n):
        source = np.ldexp(rng.integers(-(2**20), 2**20, (n, width)).astype(float), int(scale) - 20)
        rows = np.flatnonzero(rng.random(n) < 0.5) if step < steps else np.empty(0, int)
        left.give(rows, source)
        given_sum[rows] += source[rows]
        chosen = left.largest(count)
        assert len(chosen) <= count and (np.diff(chosen) > 0).all()
        sent_sum[chosen] += left.sent(chosen)
        assert (sent_sum + left.values == given_sum).all()
    if wire == "f8":
        assert (sent_sum == given_sum).all() and not left.largest(count).size, "scatters of nothing send out the rest"
    assert (np.abs(left.values) <= np.finfo(wire).smallest_subnormal).all()


@given(st.integers(1, 30), st.integers(1, 3), st.integers(1, 40), st.integers(0, 2**31))
def test_the_largest_rows_go_first(n, width, count, seed):
    rng = np.random.default_rng(seed)
    values = rng.integers(-2, 3, (n, width)).astype(float)
    left = residual(n, width)
    left.give(np.arange(n), values)
    norms = [sum(Fraction(x) ** 2 for x in row) for row in values.tolist()]
    order = sorted((row for row in range(n) if norms[row]), key=lambda row: (-norms[row], row))
    assert left.largest(count).tolist() == sorted(order[:count])


def test_blocks(monkeypatch):
    monkeypatch.setattr(error_feedback, "_BLOCK", 6)
    left = residual(10, 2)
    values = np.arange(20.0).reshape(10, 2)
    left.give(np.arange(10), values)
    assert (left.values == values).all() and left.largest(3).tolist() == [7, 8, 9]
    left.sent(np.array([7, 8, 9]))
    assert left.largest(2).tolist() == [5, 6]
    assert nonzero_rows(left.values).tolist() == list(range(7))


def test_restore_takes_back_the_increments_of_a_failed_scatter():
    left = residual(3, 1)
    left.give(np.array([1]), np.full((3, 1), 5.0))
    before = left.values[[0, 1]].copy()
    left.give(np.array([0, 1]), np.full((3, 1), 7.0))
    left.restore(np.array([0, 1]), before)
    assert left.values.tolist() == [[0], [5], [0]] and left.largest(3).tolist() == [1]


def test_numbers_at_the_limits_of_a_dtype():
    left = residual(6, 1)
    left.give(np.arange(6), np.array([[1e-300], [np.nan], [1e300], [np.inf], [-0.0], [5e-324]]))
    assert left.largest(3).tolist() == [1, 2, 3]
    left.sent(left.largest(3))
    assert left.largest(6).tolist() == [0, 5]


def test_a_wire_of_float16():
    left = residual(5, 1, "f2")
    left.give(np.arange(5), np.array([[1e6], [1e-9], [np.nan], [np.inf], [1 / 3]]))
    assert left.largest(5).tolist() == [0, 2, 3, 4]
    left.sent(left.largest(5))
    assert left.values.ravel().tolist() == [1e6 - 65504, 1e-9, 0, 0, 1 / 3 - float(np.float16(1 / 3))]
    for _ in range(100):
        left.give(np.array([1]), np.full((5, 1), 1e-9))
    assert 1 in left.largest(5), "what rounds to nothing adds up"


def test_a_wire_of_scaled_rows():
    rng = np.random.default_rng(0)
    left, values = residual(30, 16, "i1"), rng.standard_normal((30, 16))
    left.give(np.arange(30), values)
    rows = left.largest(20)
    sent = np.zeros_like(values)
    sent[rows] = left.sent(rows)
    assert np.abs(sent - values)[rows].max() <= np.abs(values).max() / 254 * 1.0001
    assert (sent + left.values == values).all(), "what is rounded off waits"
    for _ in range(20):
        rows = left.largest(20)
        sent[rows] += left.sent(rows)
    assert np.abs(sent - values).max() < 1e-12
