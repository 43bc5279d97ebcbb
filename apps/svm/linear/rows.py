"""Rows to train on: where they lie, in which order they are visited, which weights they touch."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from apps.svm.linear import kernels
from apps.svm.linear.kernels import Examples, Order

BLOCK_ROWS: Final = 64
"""Rows visited in a run, in the order of memory: one by one, at random, rcv1 takes 2 to 4 times as long, no better."""


def examples(
    X: csr_array | csr_matrix, y: NDArray[np.float32], rows: NDArray[np.integer[Any]] | None = None
) -> Examples:
    """Views of a CSR matrix, float32 with int32 indices, and its labels, -1 or +1; or a copy of some rows, in the
    order given: a rank that copies its rows as they were dealt has them shuffled, and reads them fast ever after.

    ValueError: a column outside the matrix, or labels that do not go with the rows (the kernels check nothing).
    """
    if rows is not None:
        X, y = X[rows], y[rows]
    if X.shape[0] != len(y):
        raise ValueError(f"{len(y)} labels for {X.shape[0]} rows")
    if X.nnz and not 0 <= X.indices.min() <= X.indices.max() < X.shape[1]:
        raise ValueError(f"a column is outside the matrix, which has {X.shape[1]}")
    values, columns = readonly(X.data, np.float32), readonly(X.indices, np.int32)
    return Examples(values, columns, readonly(X.indptr, np.int64), readonly(y, np.float32))


def readonly(array: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    view = np.ascontiguousarray(array, dtype=kind).view(np.ndarray)
    view.flags.writeable = False
    return view


def visiting_order(count: int, generator: np.random.Generator) -> Order:
    """The rows 0 to count - 1 in blocks of BLOCK_ROWS, the blocks shuffled: the order of one epoch over rows that are
    already shuffled in memory."""
    blocks = generator.permutation(-(-count // BLOCK_ROWS))
    order = (blocks[:, np.newaxis] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(-1)
    return order[order < count].astype(np.int32)


class Touched:
    """Which weights the examples trained on since the last `take` have touched."""

    def __init__(self, data: Examples, n_features: int, intercept: bool) -> None:
        self._data = data
        self._marks = np.zeros(n_features + 1, np.uint8)
        self._intercept = intercept

    def follow(self, data: Examples) -> None:
        """From here on `order` names examples of `data`."""
        self._data = data

    def note(self, order: Order) -> None:
        """Count the examples named in `order`."""
        kernels.mark(self._data, order, self._marks)
        self._marks[-1] |= self._intercept and order.size > 0

    def take(self) -> Order:
        """The weights touched, ascending, the intercept's last; forgets them."""
        touched = np.flatnonzero(self._marks)
        self._marks[:] = 0
        return touched.astype(np.int32)
