"""Error feedback: increments that were given and not sent yet. Pure: no MPI, no clock.

Of all that was given to a set of peers, each scatter sends the rows that are largest; what stays behind, the rounding
of a narrower wire included, is added to what is given later (Stich, Cordonnier, Jaggi 2018: sparsified SGD with
memory). What was sent and what is left sum to what was given, up to the rounding of those sums in the vector's dtype.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vol.sparse.rows import Rows
from vol.sparse.wire import narrow
from vol.update import Array

_BLOCK = 16_384
"""Elements worked on at once."""


class Residual:
    """What was given for one set of peers and has not been sent: an array of shape (n, width), zeros at first.

    `wire`: the dtype of values on their way. `values` are of `dtype`.
    """

    def __init__(self, shape: tuple[int, int], dtype: np.dtype[np.generic], wire: np.dtype[np.generic]) -> None:
        self.values: Array = np.zeros(shape, dtype)
        self._sizes = np.zeros(shape[0])
        """The Euclidean norm of each row as it would travel: one that would round to zeros stays."""
        self._wire = wire
        self._rows_at_once = max(_BLOCK // shape[1], 1)

    def give(self, rows: Rows, source: Array) -> None:
        """Add `rows` of `source`, an array of the same shape."""
        for some in self._blocks(rows):
            self.values[some] += source[some]
            self._measure(some)

    def restore(self, rows: Rows, values: Array) -> None:
        """Set `rows` to `values`, as they were before something was given."""
        self.values[rows] = values
        for some in self._blocks(rows):
            self._measure(some)

    def largest(self, count: int) -> Rows:
        """The rows of the `count` largest norms, none of zero, ascending; the lower row of equal ones."""
        waiting = np.flatnonzero(self._sizes)
        if len(waiting) <= count:
            return waiting
        sizes = self._sizes[waiting]
        least = np.partition(sizes, -count)[-count]
        chosen = sizes > least
        chosen[np.flatnonzero(sizes == least)[: count - np.count_nonzero(chosen)]] = True
        largest: Rows = waiting[chosen]
        return largest

    def sent(self, rows: Rows) -> None:
        """`rows` have been sent, as far as the wire's dtype can hold them."""
        for some in self._blocks(rows):
            left = self._left(self.values[some])
            self.values[some] = left
            self._measure(some)

    def _left(self, values: Array) -> Array:
        if values.dtype == self._wire:
            return np.zeros_like(values)
        with np.errstate(invalid="ignore"):
            left: Array = values - self._travelling(values)  # exact: a rounding error fits the dtype that was rounded
        left[~np.isfinite(left)] = 0  # an infinity or NaN has travelled as it is
        return left

    def _measure(self, rows: Rows) -> None:
        travelling = self._travelling(self.values[rows])
        with np.errstate(over="ignore"):
            sizes = np.sqrt(np.einsum("ij,ij->i", travelling, travelling, dtype=np.float64))
        vanished = sizes == 0
        if vanished.any():  # squares too small for a float64
            sizes[vanished] = np.abs(travelling[vanished]).max(axis=1)
        sizes[np.isnan(sizes)] = np.inf
        self._sizes[rows] = sizes

    def _travelling(self, values: Array) -> Array:
        if values.dtype == self._wire:
            return values
        rounded = np.empty(values.shape, self._wire)
        narrow(values, rounded)
        return rounded

    def _blocks(self, rows: Rows) -> Iterator[Rows]:
        return (rows[start : start + self._rows_at_once] for start in range(0, len(rows), self._rows_at_once))


def nonzero_rows(values: Array) -> Rows:
    """The rows of `values`, of shape (n, width), that are not all zero. *Local.*"""
    step = max(_BLOCK // values.shape[1], 1)
    marks: NDArray[np.bool_] = np.empty(len(values), bool)
    for start in range(0, len(values), step):
        values[start : start + step].any(axis=1, out=marks[start : start + step])
    return np.flatnonzero(marks)
