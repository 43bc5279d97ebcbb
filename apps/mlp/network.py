"""A network of dense layers with ReLU between them and softmax cross-entropy on top, and its gradient.

    a_0 = x,   z_k = [a_(k-1), 1] W_k,   a_k = max(z_k, 0)
    loss = mean over rows of  log(sum of exp(z)) - z[label],   z the last layer's,   + l2/2 |W without bias rows|^2

The weights of layer k are one array W_k of shape (inputs + 1, outputs), whose last row is the bias. All arrays are
float32, or all are float64. Results go into arrays that are allocated once. All functions are *Local.*
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
    """The sum over rows of log(sum of exp(z)) - z[label]. `logits`, (rows, classes), are not changed.

    The largest logit of a row is subtracted before exp. So no finite logits overflow, and none give log(0).
    """
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]
    return float(losses.sum(dtype=np.float64))


def softmax(logits: Weights, scratch: Weights) -> None:
    """logits <- exp(z) / sum of exp(z), by rows, in place. Finite logits do not overflow.

    `scratch`: (rows, 1), overwritten.
    """
    np.maximum.reduce(logits, axis=1, keepdims=True, out=scratch)
    np.subtract(logits, scratch, out=logits)
    np.exp(logits, out=logits)
    np.add.reduce(logits, axis=1, keepdims=True, out=scratch)
    np.divide(logits, scratch, out=logits)


class Network:
    """A network with the layers `weights`, its forward and backward pass.

        network.inputs(rows)[:] = x
        logits = network.forward(rows)
        for layer in network.backward(labels):
            weights[layer] -= step * network.gradients[layer]

    `weights` are used in place and not copied: a change of the arrays changes the network.
    """

    def __init__(self, weights: Sequence[Weights], l2: float = 0.0) -> None:
        self.weights = weights
        self.gradients = [np.empty_like(layer) for layer in weights]
        """The gradients of the last backward pass, a layer each. The caller may overwrite them."""
        self._l2 = weights[0].dtype.type(l2)
        self._shrunk = [np.empty_like(layer[:-1]) for layer in weights] if l2 else []
        self._passes: dict[int, _Pass] = {}

    def inputs(self, rows: int) -> Weights:
        """The array for the next `rows` rows, (rows, inputs of the first layer): a view to write into."""
        return self._pass(rows).outer[0]

    def forward(self, rows: int) -> Weights:
        """The last layer's z of the rows in `inputs(rows)`, (rows, classes): a view, valid until the next such pass."""
        now = self._pass(rows)
        for layer, weights in enumerate(self.weights[:-1]):
            outer = now.outer[layer + 1]
            np.matmul(now.inputs[layer], weights, out=outer)
            np.maximum(outer, 0, out=outer)
        return np.matmul(now.inputs[-1], self.weights[-1], out=now.deltas[-1])

    def backward(self, labels: Labels) -> Iterator[int]:
        """Yield each layer, from the last to the first, as soon as its gradient is in `gradients`.

        Call it once after `forward(len(labels))`. A layer is not read again once it was yielded. So its weights may be
        changed at once, before the gradients of the layers below are computed.
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
    """The arrays of a pass over `rows` rows."""

    def __init__(self, rows: int, weights: Sequence[Weights]) -> None:
        dtype = weights[0].dtype
        self.inputs = [np.ones((rows, len(layer)), dtype) for layer in weights]
        """The input of each layer, with a last column of ones for the bias."""
        self.outer = [array[:, :-1] for array in self.inputs]
        """Views of `inputs` without that column: x, and the outputs of all layers but the last."""
        self.deltas = [np.empty((rows, layer.shape[1]), dtype) for layer in weights]
        """The derivative with respect to each layer's z. The last one first holds z itself."""
        self.active = [np.empty((rows, layer.shape[1]), np.bool_) for layer in weights[:-1]]
        self.rows = np.arange(rows)
        self.scratch = np.empty((rows, 1), dtype)
