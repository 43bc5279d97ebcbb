"""Gather functions against slow, obvious twins."""

import copy
import pickle

import numpy as np
import pytest

from vol.merging import merge
from vol.merging.merge import AVG, MEAN, PUSH_SUM, REPLACE, SUM, WEIGHTED, Own, apply_user_function
from vol.update import Update


def update(sender, values, step=1, weight=1.0, share=0.5):
    return Update(sender, step, 0, weight, share, None, values)


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


def test_float16_is_summed_in_float32():
    own = np.array([2048.0], np.float16)
    AVG.merge(Own(0, 1.0, 0.5, own), [update(1, np.array([1.0], np.float16)), update(2, np.array([1.0], np.float16))])
    assert own[0] == np.float16(2050 / 3)  # a sum in float16 would drop both ones


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


@pytest.mark.parametrize(("result", "error", "text"), [
    (lambda own: own[:2], ValueError, r"returned shape \(2,\), the vector's is \(3,\)"),
    (lambda own: own + 1j, TypeError, "complex128"),
    (lambda own: ["a", "b", "c"], TypeError, "returned dtype <U1"),
    (lambda own: [[1.0, 2.0], [3.0]], ValueError, "function merged returned what is not an array: .*inhomogeneous"),
    (lambda own: own + 1, None, ""), (lambda own: None, None, ""),
], ids=["shape", "complex", "text", "ragged", "a result", "a change in place"])  # fmt: skip
def test_a_users_function_returns_the_array_or_changes_its_own(result, error, text):
    """After an error the array is unchanged."""

    def merged(own, updates):
        own *= 5
        return result(own)

    own = np.ones(3)
    if error is None:
        apply_user_function(merged, own, [update(1, np.ones(3))])
        assert own.tolist() == ([5] * 3 if result(own) is None else [6] * 3)
    else:
        with pytest.raises(error, match=text):
            apply_user_function(merged, own, [])
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
