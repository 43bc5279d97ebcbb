"""The compiled kernels of k-means: distances of sparse rows to centres, in float64. They release the GIL.

|x - c|^2 = |x|^2 + 2 (|c|^2 / 2 - x . c). Centres are transposed, so that a non-zero meets those of all clusters in one
row of memory.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.kernels import Kernels, types

Floats = NDArray[np.float64]

_READ_F4, _READ_I4, _READ_I8, _READ_F8 = (
    types.Array(kind, 1, "C", readonly=True) for kind in (types.f4, types.i4, types.i8, types.f8)
)
_F8, _F8_2, _I4 = types.Array(types.f8, 1, "C"), types.Array(types.f8, 2, "C"), types.Array(types.i4, 1, "C")


class Points(NamedTuple):
    """The rows of a CSR matrix, read-only, and the square of the length of each."""

    values: NDArray[np.float32]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    squares: Floats


_POINTS: Final[Any] = types.NamedTuple((_READ_F4, _READ_I4, _READ_I8, _READ_F8), Points)
kernel = Kernels(slower=120)
compile_kernels = kernel.compile


def _scored(points: Any, i: Any, centres: Any, halves: Any, scores: Any) -> None:
    here = slice(points.starts[i], points.starts[i + 1])
    scores[:] = halves - points.values[here].astype(np.float64) @ centres[points.columns[here]]


@kernel(interpreted=_scored)
def _score(points: Any, i: Any, centres: Any, halves: Any, scores: Any) -> None:
    """scores[c] = |c|^2 / 2 - x . c of row i, for all centres."""
    for c in range(halves.size):
        scores[c] = halves[c]
    for j in range(points.starts[i], points.starts[i + 1]):
        value, row = np.float64(points.values[j]), centres[points.columns[j]]
        for c in range(halves.size):
            scores[c] -= value * row[c]


@kernel(_POINTS, _READ_I4, _F8_2, _F8, _I4, _F8, _F8_2, _F8)
def assign(
    points: Any, order: Any, centres: Any, halves: Any, labels: Any, distances: Any, sums: Any, counts: Any
) -> tuple[float, int]:  # fmt: skip
    """Find the nearest centre of the rows in `order`, of equal ones the first. Return the inertia, and the changes.

    `centres`: (features, clusters); `halves`: half of their squared lengths. The number of that centre goes to
    `labels`, the squared distance to `distances`, by row. The rows are added to `sums`, (clusters, features), and
    counted in `counts`.
    """
    scores = np.empty(halves.size)
    inertia, changed = 0.0, 0
    for i in order:
        _score(points, i, centres, halves, scores)
        best = 0
        for c in range(1, halves.size):
            if scores[c] < scores[best]:
                best = c
        distances[i] = max(0.0, points.squares[i] + 2.0 * scores[best])
        inertia += distances[i]
        changed += labels[i] != best
        labels[i] = best
        counts[best] += 1.0
        for j in range(points.starts[i], points.starts[i + 1]):
            sums[best, points.columns[j]] += points.values[j]
    return inertia, changed


@kernel(_POINTS, _F8_2, _F8, _F8, _F8_2)
def closer(points: Any, centres: Any, halves: Any, closest: Any, found: Any) -> None:
    """found[c, i] = min(closest[i], |x_i - c|^2) for all rows and centres."""
    scores = np.empty(halves.size)
    for i in range(points.squares.size):
        _score(points, i, centres, halves, scores)
        for c in range(halves.size):
            found[c, i] = min(closest[i], max(0.0, points.squares[i] + 2.0 * scores[c]))
