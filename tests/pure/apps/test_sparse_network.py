"""Tests of malt.models.networks.sparse and touched: sparse rows against the same rows as dense ones."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse

pytest.importorskip("numba")

import malt
from apps.mlp import strokes
from apps.mlp.clicks import Rows
from apps.mlp.pictures import Pictures
from malt.kernels.compiler import TROUBLE
from malt.models import Sharing
from malt.models.networks import OPTIMIZERS, Network, compiled
from malt.models.networks import sparse as kernels
from malt.models.networks.network import first_weights
from malt.models.networks.sparse import MixedNetwork
from malt.models.networks.touched import SparseAdagrad, SparseLearner, TouchedNetwork

FEATURES, ROWS = 40, 9


@pytest.fixture
def generator():
    return np.random.default_rng(0)


@pytest.fixture
def made(generator):
    """Rows, the same as a dense matrix, and labels. One row is empty; many features are in none."""
    X = generator.standard_normal((ROWS, FEATURES)).astype(np.float32)
    X[generator.random(X.shape) < 0.9] = 0
    X[3] = 0
    labels = generator.integers(0, 2, ROWS)
    return Rows(scipy.sparse.csr_array(X), labels), X, labels


def weights_of(sizes, generator):
    return [generator.standard_normal((n + 1, m)).astype(np.float32) for n, m in pairwise(sizes)]


@pytest.mark.parametrize("sizes", [[FEATURES, 6, 1], [FEATURES, 6, 3, 1]], ids=str)
def test_logits_and_gradients_are_those_of_dense_rows(sizes, made, generator):
    rows, X, labels = made
    weights = weights_of(sizes, generator)
    sparse, dense = TouchedNetwork(weights), Network(weights)
    for order in (np.arange(ROWS), np.array([3, 7]), np.array([5, 5, 0]), np.arange(ROWS)[::-1]):
        order = np.ascontiguousarray(order, np.int32)
        rows.show(sparse, order)
        dense.inputs(len(order))[:] = X[order]
        assert sparse.forward(len(order)) == pytest.approx(dense.forward(len(order)), abs=1e-5)
        assert list(sparse.backward(labels[order])) == list(dense.backward(labels[order]))
        for found, expected in zip(sparse.gradients[1:], dense.gradients[1:], strict=True):
            assert found == pytest.approx(expected, abs=1e-5)
        touched, values = sparse.gradients[0]
        assert sorted(touched) == [*np.flatnonzero(X[order].any(axis=0)), FEATURES] and touched[-1] == FEATURES
        whole = np.zeros_like(weights[0])
        whole[touched] = values
        assert whole == pytest.approx(dense.gradients[0], abs=1e-5)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_a_dense_gradient_is_that_of_dense_rows(l2, made, generator):
    rows, X, _ = made
    weights = weights_of([FEATURES, 6, 3], generator)
    labels = generator.integers(0, 3, ROWS)
    sparse, dense = kernels.SparseNetwork(weights, l2), Network(weights, l2)
    for order in (np.arange(ROWS), np.array([3, 7])):
        rows.show(sparse, order)
        dense.inputs(len(order))[:] = X[order]
        assert sparse.forward(len(order)) == pytest.approx(dense.forward(len(order)), abs=1e-5)
        assert list(sparse.backward(labels[order])) == list(dense.backward(labels[order]))
        for found, expected in zip(sparse.gradients, dense.gradients, strict=True):
            assert found == pytest.approx(expected, abs=1e-5)


def test_rows_without_features_leave_the_biases(generator):
    """A file of labels alone ended in a ZeroDivisionError."""
    assert [(one.shape, np.isfinite(one).all()) for one in first_weights([0, 3, 1], generator)] == [
        ((1, 3), True), ((4, 1), True),
    ]  # fmt: skip


def test_the_largest_logit_of_a_row_becomes_zero(generator):
    logits = 1000 * generator.standard_normal((5, 4)).astype(np.float32)
    lowered = logits.copy()
    compiled.lower(lowered)
    assert np.array_equal(lowered, logits - logits.max(axis=1, keepdims=True))


@pytest.mark.skipif(bool(TROUBLE), reason="numba is switched off (NUMBA_DISABLE_JIT)")
@pytest.mark.parametrize("name", ["momentum", "adam"])
def test_compiled_optimizers_have_the_bits_of_numpy(name, generator):
    first = generator.standard_normal((7, 3)).astype(np.float32)
    ours, theirs = (some[name].make(first.copy()) for some in (kernels.OPTIMIZERS, OPTIMIZERS))
    assert type(ours) is not type(theirs)
    for step in generator.random(100):
        gradient = generator.standard_normal((7, 3)).astype(np.float32)
        gradient[0] = 0  # of weights that no row has used yet
        for optimizer in (ours, theirs):
            optimizer.update(gradient.copy(), step)
    assert ours.state().keys() == theirs.state().keys()
    for state, value in theirs.state().items():
        assert np.array_equal(ours.state()[state], value)
    assert np.array_equal(ours._weights, theirs._weights)


@pytest.mark.parametrize("l2", [0.0, 0.1])
def test_adagrad_changes_the_touched_rows_alone(l2, made, generator):
    rows, _, labels = made
    weights = weights_of([FEATURES, 6, 1], generator)
    w, n = weights[0].astype(float), np.zeros(weights[0].shape)
    first, changes = weights[0].copy(), np.zeros_like(weights[0])
    network, optimizer = TouchedNetwork(weights), SparseAdagrad(weights[0], changes, l2)
    for step in (0.5, 0.2, 0.1):
        order = generator.permutation(ROWS)[:3].astype(np.int32)
        rows.show(network, order)
        network.forward(3)
        assert list(network.backward(labels[order])) == [1, 0]
        touched, values = network.gradients[0]
        others, before = np.setdiff1d(np.arange(FEATURES + 1), touched), weights[0].copy()
        shrink = np.where(touched == FEATURES, 0, l2)[:, np.newaxis]
        gradient = values + shrink * w[touched]
        n[touched] += gradient**2
        w[touched] -= step * gradient / (np.sqrt(n[touched]) + 1e-10)
        optimizer.update(network.gradients[0], step)
        assert weights[0] == pytest.approx(w, abs=1e-5)
        assert np.array_equal(weights[0][others], before[others])
    assert changes == pytest.approx(weights[0] - first, abs=1e-5)
    assert optimizer.state()["squares"] == pytest.approx(n, abs=1e-4)


@pytest.mark.parametrize("every", [1, 2])
def test_a_change_of_a_rank_comes_to_each_other_once(made, every):
    """After an exchange all have the same first layer, also in rows of weights that one rank alone has touched."""
    rows, _, _ = made
    sharing = Sharing("all", "bsp", every)

    def live(rank):
        weights = weights_of([FEATURES, 6, 1], np.random.default_rng(1))
        first = weights[0].copy()
        mine = rows.chosen(np.arange(ROWS)[rank::3])
        learner = SparseLearner(TouchedNetwork(weights), mine, 0.0, 2, sharing, FEATURES + 1)
        for step in range(3 * every):
            learner.learn(np.array([step % 3, (step + 1) % 3], np.int32), 0.1)
        return learner.current()[0] - first

    changes = malt.simulate(live, 3)
    assert np.abs(changes[0]).max() > 0.1
    for other in changes[1:]:
        assert other == pytest.approx(changes[0], abs=1e-5)


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("columns", [[], [3, 0, 29], range(30)], ids=["no", "some", "all"])
def test_dense_columns_of_pictures_change_no_gradient(columns, l2, generator):
    pixels = generator.integers(0, 256, (ROWS, 30)).astype(np.uint8)
    pixels[generator.random(pixels.shape) < 0.8] = 0
    some = Pictures(pixels, generator.integers(0, 3, ROWS), 255)
    weights, columns = weights_of([30, 5, 3], generator), np.array(columns, np.intp)
    mixed, dense = MixedNetwork(weights, l2, columns=columns), Network(weights, l2)
    chosen = strokes.Strokes(some, columns).chosen(np.arange(ROWS)[::-1])
    for order in (np.arange(ROWS), np.array([5, 2]), np.array([2, 7])):
        chosen.show(mixed, order)
        some.show(dense, ROWS - 1 - order)
        assert mixed.forward(len(order)) == pytest.approx(dense.forward(len(order)), rel=1e-4, abs=1e-4)
        labels = chosen.labels[order]
        assert list(mixed.backward(labels)) == list(dense.backward(labels))
        for found, expected in zip(mixed.gradients, dense.gradients, strict=True):
            assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
