"""How boosted trees of an estimator are grown: round by round, a tree for each kind of target."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from malt.kernels import compile_first, trees
from malt.session.collectives import allgather
from malt.sklearn.rows import Rows

Floats = NDArray[np.float64]


class Rounds:
    """One training. The constructor is Collective.

    `X`: a dense array, with NaN for missing values. `targets`: of shape (kinds, rows): numbers, or +1 for a class and
    -1 for the rest; each kind has a tree in a round. `baselines`: the scores before the first tree, by kind.
    """

    def __init__(
        self, growth: trees.Growth, bins: int, rows: Rows, X: Any, targets: NDArray[np.float32], baselines: Floats
    ) -> None:  # fmt: skip
        compile_first(trees.compile_kernels)
        self._growth, self._rows, self._X, self._targets = growth, rows, X, targets
        self.binning = trees.bins_of(rows.sample(X, trees.SAMPLE_ROWS), bins, True, rows.seed)
        self.trees = [trees.Trees(baseline, {}) for baseline in baselines.tolist()]
        """Those of each kind."""
        self._take()

    def train(self, count: int) -> None:
        """Grow so many trees of each kind. Collective. Where a rank fails a round begins again."""
        for made in range(count):
            while True:
                try:
                    self._grow()
                    break
                except PeerLost:
                    for one in self.trees:
                        one.cut(made)
                    self._take()

    def _take(self) -> None:
        """Take the rows that this rank has from here on, and let all trees score them. Collective."""
        while True:
            order = self._rows.mine()
            count = sum(one for one in allgather(len(order)) if one is not None)
            if self._rows.are_all(count):
                break
        bins = self.binning.bins(self._X[order])
        self._y = np.ascontiguousarray(self._targets[:, order])
        self._scores = np.array([one.scores(bins, self.binning.missing) for one in self.trees])
        self._grower = trees.Grower(bins, self.binning, self._growth, count)
        if self._rows.weights is not None:
            self._grower.weigh(self._rows.weights.given[order], self._rows.weights.heaviest)

    def _grow(self) -> None:
        """Grow a tree of each kind. Collective. PeerLost, on all ranks: a rank has failed."""
        chances = trees.softmax(self._scores) if self._growth.loss == "softmax" else [None]
        for made, scores, y, chance in zip(self.trees, self._scores, self._y, chances, strict=True):
            made.append(self._grower.grow(scores, y, chance))
