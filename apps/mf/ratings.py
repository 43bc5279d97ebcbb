"""The ratings, the same on all ranks, and which rank owns which users."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps import harness
from apps.mf import factors
from apps.mf.factors import Numbers, Rows
from apps.mf.model import Model, numbered
from malt.data import owners

RANK: Final = 16
"""The number of factors, unless an option or a model to start from gives another."""


class Pairs(NamedTuple):
    """Ratings, in units of the spread around the mean, with the rows of their users and items; -1 for no row."""

    users: Numbers
    items: Numbers
    ratings: Rows


class DealtRatings:
    """The ratings, their scale, the owners of the users and the first rows: the same on all ranks. Local."""

    def __init__(self, options: Namespace, train: malt.Ratings, test: malt.Ratings | None, start: Model | None) -> None:
        self.options, self.train, self.test, self.start = options, train, test, start
        self.rank = options.rank or (start.rank if start else RANK)
        self.biases = options.biases if options.biases is not None else (start.biases if start else True)
        self.mean = start.mean if start else float(train.ratings.mean(dtype=np.float64))
        self.spread = start.spread if start else float(train.ratings.std(dtype=np.float64)) or 1.0
        self.low, self.high = float(train.ratings.min()), float(train.ratings.max())
        if start:
            self.low, self.high = min(self.low, start.low), max(self.high, start.high)
        self.owners = owners(train)
        """The rank that owns each user."""
        self.user_counts = np.bincount(train.users, minlength=train.user_ids.size)
        self.item_counts = np.bincount(train.items, minlength=train.item_ids.size)

    @property
    def row_nbytes(self) -> int:
        """The size of a row of a user or an item."""
        return np.dtype(np.float32).itemsize * (self.rank + 1)

    def deal(self, failed: Collection[int]) -> None:
        """Deal the users of the failed ranks to the others."""
        self.owners = owners(self.train, failed)

    def ratings_of_ranks(self) -> NDArray[np.int64]:
        """The number of ratings that each rank trains on, by rank."""
        return np.bincount(self.owners, self.user_counts, malt.size()).astype(np.int64)

    def lone_ranks(self) -> NDArray[np.int64]:
        """The rank that alone has ratings of an item, by item; -1: several ranks have."""
        ranks = self.owners[self.train.users]
        lowest = np.full(len(self.item_counts), malt.size())
        highest = np.full(len(self.item_counts), -1)
        np.minimum.at(lowest, self.train.items, ranks)
        np.maximum.at(highest, self.train.items, ranks)
        return np.where(lowest < highest, -1, lowest)

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest rating, in units of the spread around the mean."""
        return (self.low - self.mean) / self.spread, (self.high - self.mean) / self.spread

    def scaled(self, ratings: NDArray[np.float32]) -> Rows:
        """The ratings in units of the spread around the mean: a copy."""
        scaled: Rows = ((ratings - self.mean) / self.spread).astype(np.float32)
        return scaled

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

    def first_items(self) -> Rows:
        """The first rows of all items, the same on all ranks."""
        rows = factors.first_rows(len(self.item_counts), self.rank, np.random.default_rng([self.options.seed, 0, 1]))
        start = (self.start.item_ids, self.start.items) if self.start else None
        return self._go_on(rows, self.train.item_ids, start)

    def first_users(self, users: NDArray[np.intp], generator: np.random.Generator) -> Rows:
        """The first rows of these users."""
        rows = factors.first_rows(len(users), self.rank, generator)
        start = (self.start.user_ids, self.start.users) if self.start else None
        return self._go_on(rows, self.train.user_ids[users], start)

    def model(self, users: Rows, items: Rows) -> Model:
        """The model with these rows of all users and items: views."""
        return Model(
            users, items, self.train.user_ids, self.train.item_ids, self.mean, self.spread,
            self.low, self.high, self.biases,
        )  # fmt: skip

    def _go_on(self, rows: Rows, ids: NDArray[Any], start: tuple[NDArray[Any], Rows] | None) -> Rows:
        if start:
            places = numbered(start[0], ids)
            rows[places >= 0] = start[1][places[places >= 0]]
        if not self.biases:
            rows[:, -1] = 0
        return rows


class UserShares(harness.Shares):
    """The ratings of each rank, which are those of its users."""

    unit = "ratings"
    is_made_up = False  # new users are trained for the past epochs at once: Learner.catch_up

    def __init__(self, ratings: DealtRatings) -> None:
        self._ratings = ratings
        super().__init__(len(ratings.train.ratings))
        self.ranks: Callable[[], tuple[int, ...]] = malt.alive
        """The ranks that take part in the next epoch, as the learner knows them."""

    def rows(self, rank: int) -> int:
        return int(self._ratings.ratings_of_ranks()[rank])

    def present(self) -> tuple[int, ...]:
        return self.ranks()
