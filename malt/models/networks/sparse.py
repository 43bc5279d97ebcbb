"""A network whose first layer reads sparse rows, and optimizers in one pass: compiled. *Local.*

A mixed one multiplies the columns of few zeros as a dense matrix, and skips the zeros of the others: BLAS takes a
column in the time in which the compiled kernels take one of which a fifth is not 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.kernels.compiler import TROUBLE
from malt.models.linear import Examples, Order
from malt.models.networks import compiled, optimizer
from malt.models.networks.compiled import compile_kernels
from malt.models.networks.network import Labels, Network, Pass, Weights

__all__ = ["OPTIMIZERS", "MixedNetwork", "MixedRows", "SparseNetwork", "compile_kernels"]


class CompiledNetwork(Network):
    """`Network` of float32, whose errors are found by compiled kernels."""

    def _find_errors(self, now: Pass, labels: Labels) -> None:
        delta = now.deltas[-1]
        if self._is_squared or delta.shape[1] == 1:
            super()._find_errors(now, labels)
        else:
            compiled.lower(delta)
            np.exp(delta, out=delta)
            compiled.errors(delta, labels)


_UPPER: Final = Network if TROUBLE else CompiledNetwork
"""Of what is above the first layer: without numba NumPy is faster than interpreted kernels."""


class SparseNetwork:
    """A network as `Network`, of float32, for rows of `linear.Examples`. It skips their zeros.

    network.read(examples, order)
    logits = network.forward(len(order))
    for layer in network.backward(labels): ...
    """

    def __init__(self, weights: Sequence[Weights], l2: float = 0.0) -> None:
        self.weights, self._l2 = weights, np.float32(l2)
        self._upper = _UPPER(weights[1:], l2, upper=True)
        self.gradients: list[Any] = [self._first_gradient(), *self._upper.gradients]
        """The gradients of the last backward pass, a layer each. The caller may overwrite them."""

    def read(self, data: Examples, order: Order) -> None:
        """Find what the first layer makes of the rows in `order`."""
        self._data, self._order = data, order
        z = np.repeat(self.weights[0][-1:], len(order), axis=0)
        compiled.forward(data, order, self.weights[0], z)
        np.maximum(z, 0, out=self._upper.inputs(len(order)))

    def forward(self, rows: int) -> Weights:
        """The logits of the rows that were read, (rows, outputs): a view, as in `Network.forward`."""
        return self._upper.forward(rows)

    def backward(self, labels: Labels) -> Iterator[int]:
        """Yield each layer, from the last to the first, as soon as its gradient is in `gradients`."""
        for layer in self._upper.backward(labels):
            yield layer + 1
        self._descend(self._upper.below(len(labels)))
        yield 0

    def _first_gradient(self) -> Any:
        """Memory for the gradient of the first layer."""
        return np.empty_like(self.weights[0])

    def _descend(self, deltas: Weights) -> None:
        """Find the gradient of the first layer. `deltas`: the derivatives with respect to its z."""
        gradient = self.gradients[0]
        gradient[:] = 0
        gradient[-1] = deltas.sum(axis=0)
        compiled.backward(self._data, self._order, deltas, gradient)
        self._shrink()

    def _shrink(self) -> None:
        if self._l2:
            self.gradients[0][:-1] += self._l2 * self.weights[0][:-1]


Columns = NDArray[np.intp]


class MixedRows(NamedTuple):
    """Rows whose columns are divided: some dense, the others sparse."""

    dense: NDArray[Any]
    """(rows, dense columns), C-contiguous, of any dtype."""
    scale: np.float32
    """The factor of the dense values."""
    sparse: Examples
    """The other columns, with values that are scaled already, and the labels."""


class MixedNetwork(SparseNetwork):
    """A `SparseNetwork` of `MixedRows`, whose dense columns are `columns` of the network's inputs, each once."""

    def __init__(self, weights: Sequence[Weights], l2: float = 0.0, *, columns: Columns) -> None:
        super().__init__(weights, l2)
        self._rows = np.append(columns, len(weights[0]) - 1)
        """The rows of the first layer's weights that a dense input has: that of the bias is the last."""
        self._taken = np.empty((len(self._rows), weights[0].shape[1]), np.float32)
        self._found = np.empty_like(self._taken)
        self._inputs: dict[int, Weights] = {}

    def read(self, data: Any, order: Order) -> None:
        """Find what the first layer makes of the rows in `order`."""
        self._data, self._order = data.sparse, order
        self._input = self._inputs.setdefault(len(order), np.ones((len(order), len(self._rows)), np.float32))
        chosen = np.take(data.dense, order, axis=0, mode="clip")
        np.multiply(chosen, data.scale, out=self._input[:, :-1], dtype=np.float32)
        np.take(self.weights[0], self._rows, axis=0, out=self._taken, mode="clip")
        z = np.matmul(self._input, self._taken)
        compiled.forward(self._data, order, self.weights[0], z)
        np.maximum(z, 0, out=self._upper.inputs(len(order)))

    def _descend(self, deltas: Weights) -> None:
        gradient = self.gradients[0]
        np.matmul(self._input.T, deltas, out=self._found)
        gradient[:] = 0
        gradient[self._rows] = self._found
        compiled.backward(self._data, self._order, deltas, gradient)
        self._shrink()


class CompiledMomentum(optimizer.Momentum):
    """`optimizer.Momentum` of float32, to the same bits."""

    def _step(self, gradient: Weights, step: float) -> None:
        weights, velocity, flat = (array.reshape(-1) for array in (self._weights, self._velocity, gradient))
        compiled.momentum(weights, velocity, flat, self._rate, np.float32(step))


class CompiledAdam(optimizer.Adam):
    """`optimizer.Adam` of float32, to the same bits."""

    def _step(self, gradient: Weights, step: float, epsilon: float) -> None:
        weights, mean, square, flat = (
            array.reshape(-1) for array in (self._weights, self._mean, self._square, gradient)
        )  # fmt: skip
        factors = (1 - self.MEAN, 1 - self.SQUARE, step, epsilon)
        compiled.adam(weights, mean, square, flat, tuple(np.float32(factor) for factor in factors))


OPTIMIZERS: Final = optimizer.OPTIMIZERS if TROUBLE else {
    **optimizer.OPTIMIZERS,
    "momentum": optimizer.OPTIMIZERS["momentum"]._replace(make=CompiledMomentum),
    "adam": optimizer.OPTIMIZERS["adam"]._replace(make=CompiledAdam),
}  # fmt: skip
"""Optimizers of such networks."""
