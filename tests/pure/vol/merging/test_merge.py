"""Gather functions against slow, obvious twins."""

from __future__ import annotations

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from vol.merging import merge
from vol.merging.merge import AVG, MEAN, PUSH_SUM, REPLACE, SUM, WEIGHTED, Own, apply_user_function
from vol.update import Update

pytestmark = pytest.mark.serial


def update(sender, values, step=1, weight=1.0, share=0.5):
    return Update(sender, step, 0, weight, share, None, values)


def exact_mean(terms):
    return [sum(map(Fraction, column)) / len(column) for column in np.stack([t.ravel() for t in terms]).T.tolist()]


@given(st.sampled_from(["f2", "f4", "f8"]), st.integers(1, 5), st.integers(0, 40), st.integers(0, 2**31))
def test_average_is_the_mean_in_every_float_dtype(dtype, messages, length, seed):
    rng = np.random.default_rng(seed)
    values = [rng.standard_normal(length).astype(dtype) for _ in range(messages + 1)]
    expected = [float(x) for x in exact_mean(values)] if length else []
    own = values[0].copy()
    AVG.merge(Own(0, 1.0, 0.5, own), [update(rank, values[rank]) for rank in range(1, messages + 1)])
    np.testing.assert_allclose(own, expected, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("function", [AVG, MEAN, SUM, WEIGHTED, PUSH_SUM], ids=repr)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 3)], ids=["flat", "rows"])
def test_every_rank_ends_with_the_same_bits(function, dtype, shape):
    rng = np.random.default_rng(1)
    values = [rng.standard_normal(merge._BLOCK * 2 + 7).astype(dtype).reshape(shape) for _ in range(5)]
    weights = [0.1, 3.0, 0.7, 2.2, 1.3]
    results = []
    for rank in range(5):
        own = values[rank].copy()
        others = [update(peer, values[peer], weight=weights[peer]) for peer in (4, 2, 0, 3, 1) if peer != rank]
        function.merge(Own(rank, weights[rank], 0.5, own), others)
        results.append(own.tobytes())
    assert len(set(results)) == 1


def test_sum_runs_in_rank_order():
    values = [np.array([x], np.float32) for x in (1e8, 1.0, -1e8, 1.0)]
    own = values[2].copy()
    SUM.merge(Own(2, 1.0, 0.5, own), [update(rank, values[rank]) for rank in (3, 1, 0)])
    expected = ((values[0] + values[1]) + values[2]) + values[3]
    assert own.tobytes() == expected.tobytes()


def test_float16_is_summed_in_float32():
    own = np.array([2048.0], np.float16)
    AVG.merge(Own(0, 1.0, 0.5, own), [update(1, np.array([1.0], np.float16)), update(2, np.array([1.0], np.float16))])
    assert own[0] == np.float16(2050 / 3)  # a sum in float16 would drop both ones


@given(arrays(np.int32, 7, elements=st.integers(-1000, 1000)), arrays(np.int32, 7, elements=st.integers(-1000, 1000)))
def test_sum_of_integers(a, b):
    own = a.copy()
    SUM.merge(Own(0, 1.0, 0.5, own), [update(1, b), update(1, b, step=2)])
    assert (own == a + 2 * b).all()


def test_weighted_mean():
    own = np.array([[1.0, 10.0]])
    WEIGHTED.merge(Own(1, 1.0, 0.5, own), [update(0, np.array([[4.0, 40.0]]), weight=3.0)])
    np.testing.assert_allclose(own, [[3.25, 32.5]])


def test_push_sum_weighs_by_mass():
    own = np.array([1.0])
    PUSH_SUM.merge(Own(1, 1.0, 0.25, own), [update(0, np.array([4.0]), weight=9.0, share=0.75)])
    np.testing.assert_allclose(own, 3.25)


def test_weights_of_zero_leave_own_unchanged():
    own = np.array([1.0])
    WEIGHTED.merge(Own(1, 0.0, 0.5, own), [update(0, np.array([4.0]), weight=0.0)])
    assert own[0] == 1.0


def test_replace_takes_the_highest_step_then_the_highest_rank():
    own = np.zeros(1)
    candidates = [
        update(3, np.array([3.0]), step=5),
        update(1, np.array([1.0]), step=6),
        update(2, np.array([2.0]), step=6),
    ]
    REPLACE.merge(Own(0, 1.0, 0.5, own), candidates)
    assert own[0] == 2.0


class TestUserFunction:
    def test_result_or_change_in_place(self):
        own = np.ones(3)
        apply_user_function(lambda own, updates: own + updates[0].values, own, [update(1, np.ones(3))])
        assert own.tolist() == [2, 2, 2]

        def in_place(own, updates):
            own *= 5

        apply_user_function(in_place, own, [])
        assert own.tolist() == [10, 10, 10]

    def test_errors_leave_own_unchanged(self):
        own = np.ones(3)

        def raises(own, updates):
            own[:] = 9
            raise KeyError("mine")

        with pytest.raises(KeyError):
            apply_user_function(raises, own, [])
        with pytest.raises(ValueError, match=r"returned shape \(2,\), the vector's is \(3,\)"):
            apply_user_function(lambda own, updates: own[:2], own, [])
        with pytest.raises(TypeError, match="complex128"):
            apply_user_function(lambda own, updates: own + 1j, own, [])
        assert own.tolist() == [1, 1, 1]

    def test_a_ragged_result_names_the_function(self):
        own = np.ones(3)

        def ragged(own, updates):
            own[:] = 9
            return [[1.0, 2.0], [3.0]]

        with pytest.raises(ValueError, match="gather function ragged returned what is not an array: .*inhomogeneous"):
            apply_user_function(ragged, own, [])
        with pytest.raises(TypeError, match=r"returned dtype <U1"):
            apply_user_function(lambda own, updates: ["a", "b", "c"], own, [])
        assert own.tolist() == [1, 1, 1]


@pytest.mark.parametrize("messages", [1, 2, 3, 4, 6])
def test_an_average_has_the_bits_of_a_divided_sum(messages):
    """This holds too for a divisor that is a power of two, where a multiplication takes the place of the division."""
    rng = np.random.default_rng(messages)
    values = [rng.standard_normal(1000).astype(np.float32) for _ in range(messages + 1)]
    expected = values[0].copy()
    for other in values[1:]:
        expected += other
    expected /= np.float32(messages + 1)
    own = values[0].copy()
    AVG.merge(Own(0, 1.0, 0.5, own), [update(rank, values[rank]) for rank in range(1, messages + 1)])
    assert own.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["AVG", "MEAN", "PUSH_SUM", "REPLACE", "SUM", "TRAINED", "WEIGHTED"])
def test_a_copy_of_a_gather_function_is_that_function(name):
    """Vectors compare it with theirs: a copy of MEAN in a sparse vector left other values on each rank."""
    function = getattr(merge, name)
    for made in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        assert made([function]) == [function] and made([function])[0] is function
