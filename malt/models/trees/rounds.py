"""Grows boosted trees: round by round, a tree for each kind of target, while ranks may fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from malt.models.common import gathered
from malt.models.trees.binning import Binning
from malt.models.trees.ensemble import Trees
from malt.models.trees.growing import Grower, Growth
from malt.models.trees.losses import LOSSES, softmax, total_loss

if TYPE_CHECKING:
    from malt.models.rows import Weights  # needs scikit-learn, as estimators alone do


class Scored:
    """This rank's part of some rows: their bins, their targets, and what the trees of each kind say of them.

    `X`: a matrix, or an array with NaN for missing values. `targets`: of shape (kinds, rows): numbers, or +1 for a
    class and -1 for the rest. `mine`: returns the rows that this rank has now. There are none before `take`.
    `weights`: of all of these rows. Local.
    """

    def __init__(
        self, X: Any, targets: NDArray[np.float32], mine: Callable[[], Any], binning: Binning, made: Sequence[Trees],
        weights: Weights | None = None,
    ) -> None:  # fmt: skip
        self._X, self._targets, self._mine, self._binning, self._trees = X, targets, mine, binning, made
        self._weights = weights
        self.count = targets.shape[1]
        """The rows of all ranks, where they have parts of these."""

    def take(self) -> None:
        """Take the rows that this rank has from here on, and let all trees score them."""
        rows = self._rows = self._mine()
        self.bins, self.y = self._binning.bins(self._X[rows]), np.ascontiguousarray(self._targets[:, rows])
        self.score_again()

    def grower(self, growth: Growth, count: int) -> Grower:
        """Return what grows trees on these rows, of `count` of all ranks. Local."""
        grower = Grower(self.bins, self._binning, growth, count)
        if self._weights is not None:
            grower.weigh(self._weights.given[self._rows], self._weights.heaviest)
        return grower

    def score_again(self) -> None:
        """Let all trees score the rows."""
        self.scores = np.array([one.scores(self.bins, self._binning.missing) for one in self._trees])

    def add_last(self) -> None:
        """Add what the last tree of each kind says."""
        for one, scores in zip(self._trees, self.scores, strict=True):
            one.add(self.bins, self._binning.missing, scores, len(one) - 1)

    def loss(self, name: str) -> float | None:
        """The mean loss of the rows of all ranks, of one kind; None: a rank has failed with its rows. Collective."""
        found = total_loss(LOSSES[name], self.scores[0], self.y[0])
        reports = gathered([found, self.y.shape[1]]).values()
        whole = sum(rows for _, rows in reports) == self.count
        return float(sum(total for total, _ in reports)) / self.count if whole else None


class Rounds:
    """One training. The constructor is Collective.

    `train`: the rows to grow on. `deal`: takes the rows that this rank has from there on; returns those of all ranks.
    It is collective, and called before the first round, and where a rank has failed.
    """

    def __init__(
        self, growth: Growth, made: Sequence[Trees], train: Scored, deal: Callable[[], int]
    ) -> None:  # fmt: skip
        self._growth, self._trees, self._train, self._deal = growth, made, train, deal
        self.take()

    def take(self) -> None:
        """Take the rows that this rank has from here on. Collective."""
        count = self._deal()
        self._grower = self._train.grower(self._growth, count)

    def grow(self) -> None:
        """Grow a tree of each kind. Collective. Where a rank fails the round begins again."""
        done, train = len(self._trees[0]), self._train
        while True:
            try:
                chances = softmax(train.scores) if self._growth.loss == "softmax" else [None]
                for made, scores, y, chance in zip(self._trees, train.scores, train.y, chances, strict=True):
                    made.append(self._grower.grow(scores, y, chance))
                return
            except PeerLost:
                for made in self._trees:
                    made.cut(done)
                self.take()
