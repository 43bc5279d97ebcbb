"""A network of dense layers with ReLU between them and cross-entropy on top, and its gradient.

    a_0 = x,   z_k = [a_(k-1), 1] W_k,   a_k = max(z_k, 0)
    loss = mean over rows of  log(sum of exp(z)) - z[label],   z the last layer's,   + l2/2 |W without bias rows|^2

A last layer of one neuron has the logistic loss, log(1 + exp(z)) - z label: its label is 0 or 1.

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
        layer[:-1] *= np.float32(np.sqrt(2 / max(1, n_inputs)))
        layers.append(layer)
    return layers


def cross_entropy(logits: Weights, labels: Labels) -> float:
    """The sum over rows of log(sum of exp(z)) - z[label]. `logits`, (rows, classes), are not changed.

    The largest logit of a row is subtracted before exp. So no finite logits overflow, and none give log(0). With one
    column it is the sum of log(1 + exp(z)) - z label.
    """
    if logits.shape[1] == 1:
        z = logits[:, 0].astype(np.float64)
        return float((np.logaddexp(0, z) - labels * z).sum())
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


def logistic(logits: Weights) -> None:
    """logits <- 1 / (1 + exp(-z)), in place. No logits overflow."""
    np.multiply(logits, logits.dtype.type(0.5), out=logits)
    np.tanh(logits, out=logits)
    np.add(logits, 1, out=logits)
    np.multiply(logits, logits.dtype.type(0.5), out=logits)


class Network:
    """A network with the layers `weights`, its forward and backward pass.

        network.inputs(rows)[:] = x
        logits = network.forward(rows)
        for layer in network.backward(labels):
            weights[layer] -= step * network.gradients[layer]

    `weights` are used in place and not copied: a change of the arrays changes the network. With `upper` the inputs are
    what neurons below put out, whose derivatives the backward pass finds too. `loss`: "cross-entropy", or "squared":
    1/2 |z - y|^2, where labels are rows of numbers, y.
    """

    def __init__(
        self, weights: Sequence[Weights], l2: float = 0.0, upper: bool = False, loss: str = "cross-entropy"
    ) -> None:  # fmt: skip
        self.weights, self._lowest, self._is_squared = weights, 0 if upper else 1, loss == "squared"
        self.gradients = [np.empty_like(layer) for layer in weights]
        """The gradients of the last backward pass, a layer each. The caller may overwrite them."""
        self._l2 = weights[0].dtype.type(l2)
        self._shrunk = [np.empty_like(layer[:-1]) for layer in weights] if l2 else []
        self._passes: dict[int, Pass] = {}

    def inputs(self, rows: int) -> Weights:
        """The array for the next `rows` rows, (rows, inputs of the first layer): a view to write into."""
        return self._pass(rows).outer[0]

    def forward(self, rows: int) -> Weights:
        """The last layer's z of the rows in `inputs(rows)`, (rows, outputs): a view, valid until the next such pass."""
        now = self._pass(rows)
        for layer, weights in enumerate(self.weights[:-1]):
            outer = now.outer[layer + 1]
            np.matmul(now.inputs[layer], weights, out=outer)
            np.maximum(outer, 0, out=outer)
        return np.matmul(now.inputs[-1], self.weights[-1], out=now.deltas[-1])

    def backward(self, labels: NDArray[Any]) -> Iterator[int]:
        """Yield each layer, from the last to the first, as soon as its gradient is in `gradients`.

        Call it once after `forward(len(labels))`. A layer is not read again once it was yielded. So its weights may be
        changed at once, before the gradients of the layers below are computed.
        """
        now = self._pass(len(labels))
        self._find_errors(now, labels)
        for layer in range(len(self.weights) - 1, -1, -1):
            np.matmul(now.inputs[layer].T, now.deltas[layer + 1], out=self.gradients[layer])
            if layer >= self._lowest:
                self._descend(now, layer)
            if self._l2:
                self._shrink(layer)
            yield layer

    def below(self, rows: int) -> Weights:
        """The derivative with respect to the z of the neurons below, after `backward`: a view. For `upper`."""
        return self._pass(rows).deltas[0]

    def _find_errors(self, now: Pass, labels: NDArray[Any]) -> None:
        """deltas[-1] <- the derivative of the mean loss with respect to the last z, which it holds."""
        delta = now.deltas[-1]
        if self._is_squared:
            delta -= labels
        elif delta.shape[1] == 1:
            logistic(delta)
            delta[:, 0] -= labels
        else:
            softmax(delta, now.scratch)
            delta[now.rows, labels] -= 1
        delta /= len(labels)

    def _descend(self, now: Pass, layer: int) -> None:
        """deltas[layer] <- (deltas[layer + 1] W^T) where the neuron below was active, else 0."""
        np.matmul(now.deltas[layer + 1], self.weights[layer][:-1].T, out=now.deltas[layer])
        np.greater(now.outer[layer], 0, out=now.active[layer])
        np.multiply(now.deltas[layer], now.active[layer], out=now.deltas[layer])

    def _shrink(self, layer: int) -> None:
        shrunk = np.multiply(self.weights[layer][:-1], self._l2, out=self._shrunk[layer])
        self.gradients[layer][:-1] += shrunk

    def _pass(self, rows: int) -> Pass:
        if rows not in self._passes:
            self._passes[rows] = Pass(rows, self.weights, self._lowest)
        return self._passes[rows]


class Pass:
    """The arrays of a pass over `rows` rows."""

    def __init__(self, rows: int, weights: Sequence[Weights], lowest: int) -> None:
        dtype = weights[0].dtype
        self.inputs = [np.ones((rows, len(layer)), dtype) for layer in weights]
        """The input of each layer, with a last column of ones for the bias."""
        self.outer = [array[:, :-1] for array in self.inputs]
        """Views of `inputs` without that column: x, and the outputs of all layers but the last."""
        under = [(rows if layer >= lowest else 0, len(one) - 1) for layer, one in enumerate(weights)]
        self.deltas = [*(np.empty(shape, dtype) for shape in under), np.empty((rows, weights[-1].shape[1]), dtype)]
        """The derivative with respect to the z below each layer, and to the last one's, which first holds z itself."""
        self.active = [np.empty(shape, np.bool_) for shape in under]
        self.rows = np.arange(rows)
        self.scratch = np.empty((rows, 1), dtype)
