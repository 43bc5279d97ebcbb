"""Tests of malt.models.networks.network: gradients against differences of the loss, and the softmax at its limits."""

from itertools import pairwise

import numpy as np
import pytest

from malt.models.networks import Network, cross_entropy, first_weights, logistic, softmax

SIZES = ([5, 3], [5, 7, 3], [5, 7, 4, 3], [5, 7, 1])


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def some_network(sizes, generator, l2=0.0):
    """A network in float64 with random biases, six inputs and their labels."""
    weights = [generator.standard_normal((n + 1, m)) for n, m in pairwise(sizes)]
    return Network(weights, l2), generator.standard_normal((6, sizes[0])), generator.integers(0, max(sizes[-1], 2), 6)


def loss_of(weights, x, labels, l2=0.0):
    """The loss, computed slowly, row by row."""
    total = 0.0
    for row, label in zip(x, labels, strict=True):
        for place, layer in enumerate(weights):
            row = np.append(row, 1.0) @ layer
            if place < len(weights) - 1:
                row = np.where(row > 0, row, 0)
        row = row if len(row) > 1 else np.append(0, row)  # one output: that of the second of two classes
        total += np.log(np.sum(np.exp(row))) - row[label]
    return total / len(labels) + l2 / 2 * sum((layer[:-1] ** 2).sum() for layer in weights)


def gradients_of(network, x, labels):
    network.inputs(len(x))[:] = x
    network.forward(len(x))
    return {layer: network.gradients[layer].copy() for layer in network.backward(labels)}


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients_are_the_differences_of_the_loss(sizes, l2, generator):
    network, x, labels = some_network(sizes, generator, l2)
    found = gradients_of(network, x, labels)
    for place, layer in enumerate(network.weights):
        for index in np.ndindex(layer.shape):
            kept, ends = layer[index], []
            for change in (1e-6, -1e-6):
                layer[index] = kept + change
                ends.append(loss_of(network.weights, x, labels, l2))
            layer[index] = kept
            assert found[place][index] == pytest.approx((ends[0] - ends[1]) / 2e-6, abs=1e-7)


def test_forward_equals_its_slow_twin(generator):
    for sizes in SIZES:
        network, x, labels = some_network(sizes, generator)
        network.inputs(6)[:] = x
        assert cross_entropy(network.forward(6), labels) / 6 == pytest.approx(loss_of(network.weights, x, labels))


def test_layers_come_from_the_last_to_the_first_and_may_change_at_once(generator):
    network, x, labels = some_network([5, 7, 4, 3], generator)
    calm = gradients_of(network, x, labels)
    network.inputs(6)[:] = x
    network.forward(6)
    order = []
    for layer in network.backward(labels):
        order.append(layer)
        network.weights[layer][:] = np.nan
    assert order == [2, 1, 0]
    assert all(np.array_equal(network.gradients[layer], calm[layer]) for layer in calm)


def test_passes_of_different_lengths_do_not_mix(generator):
    network, x, labels = some_network([5, 7, 3], generator)
    expected = {rows: gradients_of(network, x[:rows], labels[:rows]) for rows in (6, 2)}
    fresh = Network(network.weights)
    for rows in (2, 6, 2):
        found = gradients_of(fresh, x[:rows], labels[:rows])
        assert all(np.array_equal(found[layer], expected[rows][layer]) for layer in found)


def test_no_memory_is_taken_by_a_second_pass(generator):
    network, x, labels = some_network([5, 7, 3], generator)
    before = network.inputs(6), network.forward(6), network.gradients[0]
    gradients_of(network, x, labels)
    after = network.inputs(6), network.forward(6), network.gradients[0]
    assert all(np.shares_memory(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_softmax_and_loss_at_their_limits(dtype):
    logits = np.array([[1e30, 0, -1e30], [-1e4, -1e4, -1e4], [-200, 0, 0]], dtype)
    assert cross_entropy(logits[1:], np.array([0, 0])) == pytest.approx(np.log(3) + 200 + np.log(2))
    assert cross_entropy(logits[:1], np.array([0])) == 0
    softmax(logits, np.empty((3, 1), dtype))
    assert np.allclose(logits, [[1, 0, 0], [1 / 3] * 3, [0, 0.5, 0.5]], atol=1e-30)
    logits = np.array([[1e30], [0], [-1e30], [3]], dtype)
    assert cross_entropy(logits, np.array([1, 0, 0, 0])) == pytest.approx(np.log(2) + np.log1p(np.exp(3)))
    logistic(logits)
    assert np.allclose(logits[:, 0], [1, 0.5, 0, 1 / (1 + np.exp(-3))])


def test_first_weights():
    layers = first_weights([400, 300, 10], np.random.default_rng(0))
    assert [layer.shape for layer in layers] == [(401, 300), (301, 10)]
    assert all(layer.dtype == np.float32 and not layer[-1].any() for layer in layers)
    assert layers[0][:-1].std() == pytest.approx((2 / 400) ** 0.5, rel=0.01)
    again = first_weights([400, 300, 10], np.random.default_rng(0))
    assert all(np.array_equal(one, other) for one, other in zip(layers, again, strict=True))
