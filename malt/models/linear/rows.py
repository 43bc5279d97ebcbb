"""Rows to train on: their arrays, the order of visits, blocks of them, and the weights that they touch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix

from malt.models.linear import compiled
from malt.models.linear.compiled import Examples, Order

BLOCK_ROWS: Final = 64
"""Rows that are visited in the order of memory. Single rows at random take 2 to 4 times as long on rcv1, no better."""


def examples(
    X: csr_array | csr_matrix, y: NDArray[np.float32], rows: NDArray[np.integer[Any]] | None = None
) -> Examples:
    """The rows of a CSR matrix, float32 with int32 indices, and their labels, -1 or +1: views.

    With `rows` it is a copy of these rows, in that order. A rank that copies its rows as they were dealt has them
    shuffled in memory. ValueError: a column is outside the matrix, or the number of labels is not that of the rows (the
    kernels check nothing).
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
    """A read-only view of `array`, or of a copy where dtype or layout differ."""
    view = np.ascontiguousarray(array, dtype=kind).view(np.ndarray)
    view.flags.writeable = False
    return view


def visiting_order(count: int, generator: np.random.Generator) -> Order:
    """The rows 0 to count - 1 in blocks of BLOCK_ROWS, with the blocks shuffled: int32.

    It is the order of one epoch over rows that are shuffled in memory already.
    """
    blocks = generator.permutation(-(-count // BLOCK_ROWS))
    order = (blocks[:, np.newaxis] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(-1)
    return order[order < count].astype(np.int32)


def part(data: Examples, first: int, last: int) -> Examples:
    """Rows first:last: views, except the starts."""
    begin, end = data.starts[first], data.starts[last]
    starts = readonly(data.starts[first : last + 1] - begin, np.int64)
    return Examples(data.values[begin:end], data.columns[begin:end], starts, data.labels[first:last])


def narrowed(data: Examples) -> tuple[Examples, NDArray[np.int32]]:
    """The same rows over only the features that occur in them, and these, ascending. Copies."""
    present, places = np.unique(data.columns[data.starts[0] : data.starts[-1]], return_inverse=True)
    return data._replace(columns=readonly(places, np.int32)), present


ONES: Final = np.empty(0)
"""The weights of rows that all have the weight 1."""


class Block(NamedTuple):
    """Rows that are visited at once, and the weights that they need."""

    data: Examples
    columns: NDArray[Any] | None
    """The numbers of their features, ascending, then that of the intercept: column j of `data` is feature columns[j].
    None: `data` has all features."""
    weights: NDArray[np.float64] = ONES
    """By which the losses of the rows are multiplied; empty: 1 each."""


def blocks(data: Examples, count: int, n_features: int, narrows: bool) -> Sequence[Block]:
    """The rows cut into `count` blocks. `narrows`: each has only the features that occur in it."""
    ends = [len(data.labels) * place // count for place in range(count + 1)]
    parts = [part(data, first, last) for first, last in pairwise(ends)]
    return [narrow_block(one, n_features) if narrows else Block(one, None) for one in parts]


def narrow_block(data: Examples, n_features: int) -> Block:
    """A block of these rows, with only the features that occur in them."""
    narrow, present = narrowed(data)
    return Block(narrow, np.append(present, n_features))


class Touched:
    """The weights that examples have touched since the last `take`. Local."""

    def __init__(self, data: Examples, n_features: int, intercept: bool) -> None:
        self._data = data
        self.marks = np.zeros(n_features + 1, np.uint8)
        """1 for each of these weights, else 0."""
        self._intercept = intercept

    def follow(self, data: Examples) -> None:
        """Replace the examples by `data`."""
        self._data = data

    def note(self, order: Order) -> None:
        """Mark the weights that the rows in `order` touch."""
        compiled.mark(self._data, order, self.marks)
        self.marks[-1] |= self._intercept and order.size > 0

    def take(self) -> Order:
        """The indices of the touched weights, ascending, int32; the intercept's is the last. Clears the marks."""
        touched = np.flatnonzero(self.marks.view(np.bool_))  # bytes take several times as long
        self.marks[touched] = 0
        return touched.astype(np.int32)
