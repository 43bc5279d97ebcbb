"""Error feedback: the residual, which holds the increments that have not been sent yet. Pure.

Each scatter adds its increments to the residual and sends the rows of the largest norms. All other rows stay in the
residual, and so does the rounding error of a narrower wire (Stich, Cordonnier, Jaggi 2018: "Sparsified SGD with
memory"). The rows sent and the residual sum to the increments given, up to rounding in the dtype of the vector.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from vol.sparse.rows import Rows
from vol.sparse.wire import RowFormat, as_read
from vol.update import Array

_BLOCK = 16_384
"""Elements worked on at once."""


class Residual:
    """The increments that were given for one set of peers and have not been sent. Local.

    `values`: an array of `dtype` and of the shape that `form`, the format of messages, has. It is zeros at first.
    """

    def __init__(self, dtype: np.dtype[np.generic], form: RowFormat) -> None:
        self.values: Array = np.zeros((form.n, form.width), dtype)
        self._sizes = np.zeros(form.n)
        """The Euclidean norm of each row, rounded to the wire. A row that would be sent as zeros is not sent."""
        self._form = form
        self._rows_at_once = max(_BLOCK // form.width, 1)

    def copy(self) -> Residual:
        """Return a residual of the same increments."""
        other = Residual(self.values.dtype, self._form)
        other.values[:], other._sizes[:] = self.values, self._sizes
        return other

    def give(self, rows: Rows, source: Array) -> None:
        """Add the given rows of `source`, an array of the same shape."""
        with np.errstate(all="ignore"):  # an error would leave some of them given
            for some in self._blocks(rows):
                self.values[some] += source[some]
                self._measure(some)

    def take_back(self, rows: Rows, values: Array) -> None:
        """Add `values`, a row for each of `rows`, which were sent and have not left."""
        self.values[rows] += values
        for some in self._blocks(rows):
            self._measure(some)

    def restore(self, rows: Rows, values: Array) -> None:
        """Set `rows` back to `values`, a copy from before `give`."""
        self.values[rows] = values
        for some in self._blocks(rows):
            self._measure(some)

    def largest(self, count: int) -> Rows:
        """Return the rows of the `count` largest norms above zero, ascending. Of equal norms the lower row wins."""
        waiting = np.flatnonzero(self._sizes)
        if len(waiting) <= count:
            return waiting
        sizes = self._sizes[waiting]
        least = np.partition(sizes, -count)[-count]
        chosen = sizes > least
        chosen[np.flatnonzero(sizes == least)[: count - np.count_nonzero(chosen)]] = True
        largest: Rows = waiting[chosen]
        return largest

    def sent(self, rows: Rows) -> Array:
        """Mark `rows` as sent. Only the rounding error of the wire stays. Return the values that receivers read."""
        read = np.empty((len(rows), self._form.width), self.values.dtype)
        start = 0
        for some in self._blocks(rows):
            values, part = self.values[some], read[start : start + len(some)]
            part[:] = as_read(self._form, values)
            with np.errstate(invalid="ignore"):
                values -= part  # exact: the wider dtype holds the rounding error
            values[~np.isfinite(values)] = 0  # an infinity or NaN was sent as it is
            self.values[some] = values
            self._measure(some)
            start += len(some)
        return read

    def _measure(self, rows: Rows) -> None:
        rounded = as_read(self._form, self.values[rows])
        with np.errstate(over="ignore"):
            sizes = np.sqrt(np.einsum("ij,ij->i", rounded, rounded, dtype=np.float64))
        vanished = sizes == 0
        if vanished.any():  # the squares underflow in float64
            sizes[vanished] = np.abs(rounded[vanished]).max(axis=1)
        sizes[np.isnan(sizes)] = np.inf
        self._sizes[rows] = sizes

    def _blocks(self, rows: Rows) -> Iterator[Rows]:
        return (rows[start : start + self._rows_at_once] for start in range(0, len(rows), self._rows_at_once))


def nonzero_rows(values: Array) -> Rows:
    """Return the rows of `values`, of shape (n, width), that are not all zero, ascending. Local."""
    step = max(_BLOCK // values.shape[1], 1)
    marks: NDArray[np.bool_] = np.empty(len(values), bool)
    for start in range(0, len(values), step):
        values[start : start + step].any(axis=1, out=marks[start : start + step])
    return np.flatnonzero(marks)
