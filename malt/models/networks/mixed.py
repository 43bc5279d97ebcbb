"""A network that multiplies the columns of few zeros as a dense matrix, and skips the zeros of the others. *Local.*

BLAS takes a column in the time in which the compiled kernels take one of which a fifth is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import Examples, Order
from malt.models.networks import compiled
from malt.models.networks.network import Weights
from malt.models.networks.sparse import SparseNetwork

__all__ = ["MixedNetwork", "MixedRows"]

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
