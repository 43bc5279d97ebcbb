"""A network of dense layers with ReLU between them and softmax cross-entropy on top, and its gradient.

    a_0 = x,   z_k = [a_(k-1), 1] W_k,   a_k = max(z_k, 0)
    loss = mean over rows of  log(sum of exp(z)) - z[label],   z the last layer's,   + l2/2 |W without bias rows|^2

The weights of layer k, one array W_k of shape (inputs + 1, outputs) whose last row is the bias, are what trains and
travels. float32, or float64 in all of it. Everything is computed into memory that is taken once. Pure; all is *Local.*
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.floating[Any]]
Labels = NDArray[np.intp]


def first_weights(sizes: Sequence[int], generator: np.random.Generator) -> list[Weights]:
    """float32 layers between `sizes` neurons: weights of variance 2 / inputs (He et al. 2015, eq. 10), biases 0."""
    layers = []
    for n_inputs, n_outputs in pairwise(sizes):
        layer = np.zeros((n_inputs + 1, n_outputs), np.float32)
        generator.standard_normal(out=layer[:-1].reshape(-1), dtype=np.float32)
        layer[:-1] *= np.float32(np.sqrt(2 / n_inputs))
        layers.append(layer)
    return layers


def cross_entropy(logits: Weights, labels: Labels) -> float:
    """Sum over rows of log(sum of exp(z)) - z[label]. `logits`, (rows, classes), stay as they are.

    The largest of a row is taken out before exp: no finite logits overflow, and none underflow to log(0).
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return float(losses.sum(dtype=np.float64))


def softmax(logits: Weights, scratch: Weights) -> None:
    """logits <- exp(z) / sum of exp(z), by rows, in place, overflowing as little as `cross_entropy`.

    `scratch`: (rows, 1), overwritten.
    """
    np.maximum.reduce(logits, axis=1, keepdims=True, out=scratch)
    np.subtract(logits, scratch, out=logits)
    np.exp(logits, out=logits)
    np.add.reduce(logits, axis=1, keepdims=True, out=scratch)
    np.divide(logits, scratch, out=logits)


class Network:
    """The layers `weights`, and what it takes to train them.

        network.inputs(rows)[:] = x
        logits = network.forward(rows)
        for layer in network.backward(labels):
            weights[layer] -= step * network.gradients[layer]

    `weights` are used and never copied: whoever changes them changes the network.
    """

    def __init__(self, weights: Sequence[Weights], l2: float = 0.0) -> None:
        self.weights = weights
        self.gradients = [np.empty_like(layer) for layer in weights]
        """Of the last backward pass; free to be overwritten."""
        self._l2 = weights[0].dtype.type(l2)
        self._shrunk = [np.empty_like(layer[:-1]) for layer in weights] if l2 else []
        self._passes: dict[int, _Pass] = {}

    def inputs(self, rows: int) -> Weights:
        """Where the next `rows` rows go, (rows, inputs of the first layer): a view."""
        return self._pass(rows).outer[0]

    def forward(self, rows: int) -> Weights:
        """The last layer's z of the rows in `inputs(rows)`, (rows, classes): good until the next pass of as many."""
        now = self._pass(rows)
        for layer, weights in enumerate(self.weights[:-1]):
            outer = now.outer[layer + 1]
            np.matmul(now.inputs[layer], weights, out=outer)
            np.maximum(outer, 0, out=outer)
        return np.matmul(now.inputs[-1], self.weights[-1], out=now.deltas[-1])

    def backward(self, labels: Labels) -> Iterator[int]:
        """Yield each layer, from the last to the first, as soon as its gradient is in `gradients`.

        After `forward(len(labels))`, once. A layer that was yielded is not read again: it may be changed at once, while
        the gradients of those below are still to come.
        """
        now = self._pass(len(labels))
        delta = now.deltas[-1]
        softmax(delta, now.scratch)
        delta[now.rows, labels] -= 1
        delta /= len(labels)
        for layer in range(len(self.weights) - 1, -1, -1):
            np.matmul(now.inputs[layer].T, now.deltas[layer], out=self.gradients[layer])
            if layer:
                self._descend(now, layer)
            if self._l2:
                self._shrink(layer)
            yield layer

    def _descend(self, now: _Pass, layer: int) -> None:
        """deltas[layer - 1] <- (deltas[layer] W^T) where the neuron below was active, else 0."""
        below = now.deltas[layer - 1]
        np.matmul(now.deltas[layer], self.weights[layer][:-1].T, out=below)
        np.greater(now.outer[layer], 0, out=now.active[layer - 1])
        np.multiply(below, now.active[layer - 1], out=below)

    def _shrink(self, layer: int) -> None:
        shrunk = np.multiply(self.weights[layer][:-1], self._l2, out=self._shrunk[layer])
        self.gradients[layer][:-1] += shrunk

    def _pass(self, rows: int) -> _Pass:
        if rows not in self._passes:
            self._passes[rows] = _Pass(rows, self.weights)
        return self._passes[rows]


class _Pass:
    """The memory of a pass over so many rows."""

    def __init__(self, rows: int, weights: Sequence[Weights]) -> None:
        dtype = weights[0].dtype
        self.inputs = [np.ones((rows, len(layer)), dtype) for layer in weights]
        """What each layer multiplies by its weights; the last column is 1, for the bias."""
        self.outer = [array[:, :-1] for array in self.inputs]
        """The same without that column: x, and what each layer but the last puts out."""
        self.deltas = [np.empty((rows, layer.shape[1]), dtype) for layer in weights]
        """The derivative by each layer's z; the last one holds z itself before."""
        self.active = [np.empty((rows, layer.shape[1]), np.bool_) for layer in weights[:-1]]
        self.rows = np.arange(rows)
        self.scratch = np.empty((rows, 1), dtype)
