"""The ratings to train on and to test on, and the ratings of each rank."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

import malt
from apps import harness
from malt.models import factors
from malt.models.factors import Model, Numbers, Pairs, numbered

RANK: Final = 16
"""The number of factors, unless an option or a model to start from gives another."""


class DealtRatings(factors.DealtRatings):
    """The training ratings with what the options say of them, and the test ratings. Local."""

    def __init__(self, options: Namespace, train: malt.Ratings, test: malt.Ratings | None, start: Model | None) -> None:
        rank = options.rank or (start.rank if start else RANK)
        biases = options.biases if options.biases is not None else (start.biases if start else True)
        super().__init__(train, rank, biases, [options.seed], start)
        self.options, self.test = options, test

    def tests(self, users: NDArray[np.intp], rank: int) -> Pairs:
        """The test ratings of these users; on the lowest rank also those of users without training ratings."""
        if self.test is None:
            return Pairs(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        whose = numbered(self.train.user_ids, self.test.user_ids)[self.test.users]
        which = numbered(self.train.item_ids, self.test.item_ids)[self.test.items]
        lowest = malt.alive()[0]
        mine = (whose < 0) if rank == lowest else np.zeros(whose.size, bool)
        mine |= (whose >= 0) & (self.owners[whose] == rank)
        rows = np.where(whose[mine] < 0, -1, np.searchsorted(users, whose[mine])).astype(np.int32)
        return Pairs(rows, which[mine], self.scaled(self.test.ratings[mine]))

    def tested_items(self) -> Numbers:
        """The training items that have test ratings, ascending."""
        if self.test is None:
            return np.empty(0, np.int32)
        found = numbered(self.train.item_ids, self.test.item_ids)
        return np.sort(found[found >= 0])


class UserShares(harness.Shares):
    """The ratings of each rank, which are those of its users."""

    is_made_up = False  # new users are trained for the past epochs at once: Learner.catch_up

    def __init__(self, ratings: DealtRatings) -> None:
        self._ratings = ratings
        super().__init__(len(ratings.train.ratings), "ratings")
        self.ranks: Callable[[], tuple[int, ...]] = malt.alive
        """The ranks that take part in the next epoch, as the learner knows them."""

    def rows(self, rank: int) -> int:
        return int(self._ratings.ratings_of_ranks()[rank])

    def present(self) -> tuple[int, ...]:
        return self.ranks()
