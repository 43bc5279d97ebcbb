"""The rows of a rank while ranks fail, what all ranks find of the clusters of them, and how centres move.

One allreduce carries all that an iteration needs. The number of rows is among it: where it is too small a rank has
failed, and the others take its rows and assign all of them again. apps/logistic does the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array, Shares, by_rank
from apps.kmeans import kernels
from apps.kmeans.kernels import Floats, Points
from malt.data import rows_of
from malt.models import Sums, linear

_NUMBERS = 4
"""What ranks add up beside sums of rows and counts: inertia, changed labels, squared lengths, rows."""


class Found(NamedTuple):
    """The clusters of the rows of all ranks, by their nearest centres."""

    sums: Floats
    """The sum of the rows of each cluster, (clusters, features)."""
    counts: Floats
    inertia: float
    changed: float
    """The rows that are in another cluster than when they were assigned last."""
    squares: float
    """The sum of their squared lengths."""
    rows: float

    @property
    def variance(self) -> float:
        """The mean variance of the features, over all rows."""
        means = self.sums.sum(axis=0) / self.rows
        return float((self.squares / self.rows - means @ means) / len(means))


class Dealt:
    """This rank's share of the rows `data`. Local."""

    def __init__(self, data: malt.Dataset, shares: Shares) -> None:
        self.data, self.count = data, len(data.y)
        self._shares, self.sums = shares, Sums()
        self.take()

    def take(self) -> None:
        """Take the rows that this rank has from here on. Local."""
        self.numbers = rows_of(self.count, malt.rank(), self._shares.failed)
        rows = linear.examples(self.data.X, self.data.y, self.numbers)
        squares = np.add.reduceat(np.append(rows.values.astype(np.float64) ** 2, 0), rows.starts[:-1])
        squares[rows.starts[1:] == rows.starts[:-1]] = 0  # reduceat takes one value for a row without any
        self.points = Points(rows.values, rows.columns, rows.starts, linear.readonly(squares, np.float64))
        self.labels, self.distances = np.full(len(squares), -1, np.int32), np.zeros(len(squares))
        self._everything = linear.readonly(np.arange(len(squares)), np.int32)

    def row(self, number: int) -> Floats:
        """A row of any rank, dense."""
        return np.asarray(self.data.X[[number]].toarray()[0], np.float64)

    def whole(self, centres: Floats) -> Found:
        """The clusters of all rows. Where a rank fails in it, the others take over its rows. Collective."""
        while (found := self.some(centres, self._everything)).rows != self.count:
            self.renew()
        return found

    def renew(self) -> None:
        """Take the rows of ranks that have failed. Collective."""
        if self._shares.changed(self._shares.present()):
            self.take()

    def some(self, centres: Floats, order: Array) -> Found:
        """The clusters of the rows in `order`, int32 and read-only, of each rank. Collective."""
        packed = np.zeros(centres.size + len(centres) + _NUMBERS)
        sums = packed[: centres.size].reshape(centres.shape)
        counts, numbers = packed[centres.size : -_NUMBERS], packed[-_NUMBERS:]
        inertia, changed = kernels.assign(
            self.points, order, *transposed(centres), self.labels, self.distances, sums, counts
        )
        numbers[:] = inertia, changed, self.points.squares[order].sum(), len(order)
        self.sums.take(packed)
        return Found(sums, counts, *map(float, numbers))

    def relocate(self, found: Found) -> NDArray[np.intp]:
        """Move the rows that are farthest from their centres to the empty clusters, and return these. Collective.

        So does scikit-learn: the first empty cluster gets the farthest row. None is moved if all lie on their centres.
        """
        empty = np.flatnonzero(found.counts == 0)
        if not empty.size:
            return empty
        far = np.argsort(-self.distances, kind="stable")[: empty.size]
        offer = [[-self.distances[i], int(self.numbers[i]), int(self.labels[i])] for i in far]
        offers: list[Any] = sorted(one for theirs in by_rank(offer).values() for one in theirs)
        for cluster, (_, number, label) in zip(empty, offers if offers and offers[0][0] else [], strict=False):
            row = self.row(number)
            found.sums[label] -= row
            found.counts[label] -= 1
            found.sums[cluster], found.counts[cluster] = row, 1
        return empty


class Centres:
    """The centres, the same on all ranks. `state`: what `state` returned, or {"centres": the first ones}."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.values: Floats = state["centres"]
        """(clusters, features)."""
        self._seen: Floats = state.get("seen", np.zeros(len(self.values)))
        """The rows of mini-batches that have moved each centre."""

    def state(self) -> Mapping[str, Any]:
        """Return the arrays that a training resumes from: views."""
        return {"centres": self.values, "seen": self._seen}

    def step(self, found: Found) -> None:
        """Let each centre be the mean of all rows of mini-batches that were nearest to it (Sculley, 2010). Local."""
        self._seen += found.counts
        shares = np.maximum(self._seen, 1)[:, np.newaxis]
        self.values += (found.sums - found.counts[:, np.newaxis] * self.values) / shares

    def move(self, dealt: Dealt, found: Found) -> float:
        """Let each centre be the mean of its rows. Return the sum of squared shifts. Collective.

        A cluster that stays empty has the centre of the largest, as in scikit-learn.
        """
        dealt.relocate(found)
        means = found.sums / np.maximum(found.counts, 1)[:, np.newaxis]
        means[found.counts <= 0] = means[found.counts.argmax()]
        shift = float(((means - self.values) ** 2).sum())
        self.values[:] = means
        return shift

    def fill(self, dealt: Dealt, found: Found) -> bool:
        """Move the centres without rows to the rows farthest from theirs. Return whether any is moved. Collective."""
        empty = dealt.relocate(found)
        filled = empty[found.counts[empty] > 0]
        self.values[filled], self._seen[filled] = found.sums[filled], 1
        return bool(filled.size)


def transposed(centres: Floats) -> tuple[Floats, Floats]:
    """The centres as the kernels want them: (features, clusters), and half of their squared lengths."""
    return np.ascontiguousarray(centres.T), np.einsum("ij,ij->i", centres, centres) / 2
