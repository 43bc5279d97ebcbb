"""Snapshots of the rows at the end of each epoch, evaluated after training: no rank waits, and no clock runs.

A rank keeps the rows that the ratings of its own users need, and evaluates these ratings. Another rank may have a newer
row of an item: the holder of its block, or the one rank that trains on it. That rank sends it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Measures, by_rank
from apps.mf.ratings import DealtRatings
from malt.models import factors
from malt.models.factors import Learner, Numbers, Rows

NBYTES: Final = 1 << 29
"""The most bytes that a rank keeps. If they do not suffice, only some epochs are measured, the last among them."""


class Snapshots:
    """The rows of one rank at the end of each of `epochs`, counted from 0. Methods are local, except `measures`."""

    def __init__(self, learner: Learner, ratings: DealtRatings, epochs: range) -> None:
        self._ratings, self._epochs = ratings, epochs
        places = learner.places
        self._newest = learner.newest
        self._trained = learner.trained()
        tests = ratings.tests(learner.mine, malt.rank())
        rows = np.where(tests.items < 0, -1, places[tests.items]).astype(np.int32)
        self._tests = tests._replace(items=rows)
        self._seen = np.unique(np.concatenate((self._trained.items, rows[rows >= 0], learner.travelling)))
        tested = ratings.tested_items()
        self._doubtful = np.union1d(learner.travelling, places[tested[ratings.lone_ranks()[tested] >= 0]])
        """The rows that another rank may have newer."""
        self._doubtful_seen = np.isin(self._doubtful, self._seen)
        self._kept: dict[int, tuple[Rows, Rows, NDArray[np.bool_]]] = {}
        count = len(ratings.user_counts) + len(ratings.item_counts)  # of all ranks: they agree on the stride
        nbytes = count * (ratings.rank + 1) * np.dtype(np.float32).itemsize
        self._stride = max(1, math.ceil(len(epochs) * nbytes / NBYTES))

    def keep(self, epoch: int, users: Rows, items: Rows) -> None:
        """Keep a copy of the rows at the end of `epoch`, counted from 0."""
        if (self._epochs.stop - 1 - epoch) % self._stride == 0:
            self._kept[epoch] = self._snapshot(users.copy(), items)

    def _snapshot(self, users: Rows, items: Rows) -> tuple[Rows, Rows, NDArray[np.bool_]]:
        """The rows, and which of the doubtful ones are the newest."""
        return users, items[self._seen], self._newest()[self._doubtful]

    def measures(self, users: Rows, items: Rows) -> tuple[list[Measures], tuple[int, ...]]:
        """The errors at the end of each epoch, then those of the rows given, and the ranks that took part. Collective.

        These are the live ranks. Errors of a failed rank's users are missing.
        """
        theirs = by_rank(sorted(self._kept))
        common = set.intersection(*map(set, theirs.values()))
        kept = [self._kept[epoch] if epoch in common else None for epoch in self._epochs]
        squares = [one and self._squares(*one) for one in [*kept, self._snapshot(users, items)]]
        reports = by_rank(squares)
        ratings = self._ratings
        counts = [len(ratings.train.ratings), 0 if ratings.test is None else len(ratings.test.ratings)]
        found: list[Measures] = [
            {
                "train_rmse": _rmse([one and one[0] for one in sums], counts[0], ratings.spread),
                "test_rmse": _rmse([one and one[1] for one in sums], counts[1], ratings.spread),
            }
            for sums in zip(*reports.values(), strict=True)
        ]
        return found, tuple(reports)

    def _squares(self, users: Rows, items: Rows, newest: NDArray[np.bool_]) -> tuple[float, float]:
        """The sums of squared errors of this rank's users, on training and test ratings. Collective."""
        items, (low, high) = self._completed(items, newest), self._ratings.bounds
        trained, tested = (
            factors.squares(users, items, pairs.users, self._places(pairs.items), pairs.ratings, low, high)
            for pairs in (self._trained, self._tests)
        )
        return trained, tested

    def _completed(self, items: Rows, newest: NDArray[np.bool_]) -> Rows:
        """The rows `items`, with the doubtful ones taken from the rank that has the newest. Collective."""
        numbers = malt.allgather(np.flatnonzero(newest).astype(np.int32))
        parts = malt.allgather(items[self._places(self._doubtful[newest])])
        for some, rows in zip(numbers, parts, strict=True):
            if some is not None and rows is not None:  # else its rank has failed
                seen = self._doubtful_seen[some]
                items[self._places(self._doubtful[some[seen]])] = rows[seen]
        return items

    def _places(self, items: Numbers) -> Numbers:
        return np.where(items < 0, -1, np.searchsorted(self._seen, items)).astype(np.int32)


def _rmse(sums: Sequence[Any], count: int, spread: float) -> float | None:
    return None if not count or None in sums else spread * math.sqrt(sum(sums) / count)
