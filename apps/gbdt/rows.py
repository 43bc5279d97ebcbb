"""What a rank has of a file's rows while ranks fail: their bins, labels and scores."""

from __future__ import annotations

import numpy as np

import malt
from apps.harness import Shares, by_rank
from apps.linear.roc import area
from malt.data import rows_of
from malt.models import trees
from malt.models.trees import Binning, Trees


class Scored:
    """This rank's rows of `data`, and what the trees say of them."""

    def __init__(self, data: malt.Dataset, binning: Binning, made: Trees, shares: Shares, loss: str) -> None:
        self._data, self._binning, self._trees, self._shares = data, binning, made, shares
        self._loss, self.count = trees.LOSSES[loss], len(data.y)
        self.take()

    def take(self) -> None:
        """Take the rows that this rank has from here on, and let all trees score them. Local."""
        self._rows = rows_of(self.count, malt.rank(), self._shares.failed)
        self.bins, self.y = self._binning.bins(self._data.X[self._rows]), self._data.y[self._rows]
        self.score_again()

    def score_again(self) -> None:
        """Let all trees score the rows. Local."""
        self.scores = self._trees.scores(self.bins, self._binning.missing)

    def add_last(self) -> None:
        """Add what the last tree says. Local."""
        self._trees.add(self.bins, self._binning.missing, self.scores, len(self._trees) - 1)

    def loss(self) -> float | None:
        """The mean loss of the rows of all ranks; None if a rank has failed, whose rows are missing. Collective."""
        reports = by_rank([trees.total_loss(self._loss, self.scores, self.y), len(self.y)]).values()
        whole = sum(rows for _, rows in reports) == self.count
        return float(sum(total for total, _ in reports)) / self.count if whole else None

    def auc(self) -> float | None:
        """The area under the ROC curve of the rows of all ranks; None if a rank has failed. Collective."""
        scores, y = (malt.allgather(np.asarray(array, np.float64)) for array in (self.scores, self.y))
        both = [np.concatenate([np.empty(0), *(one for one in some if one is not None)]) for some in (scores, y)]
        return area(*both) if len(both[0]) == len(both[1]) == self.count else None
