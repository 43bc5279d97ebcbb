"""What all ranks of a factorization know alike, and which ratings are whose."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection
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
"""Factors, where neither the options nor a model to go on with say how many."""


class Pairs(NamedTuple):
    """Ratings, in units of the spread around the mean, of users and items by their rows here; -1: none."""

    users: Numbers
    items: Numbers
    ratings: Rows


class DealtRatings:
    """What all ranks know alike: the ratings, their scale, who has which users, and where the rows begin."""

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
        """The rank of each user."""
        self.user_counts = np.bincount(train.users, minlength=train.user_ids.size)
        self.item_counts = np.bincount(train.items, minlength=train.item_ids.size)

    def deal(self, failed: Collection[int]) -> None:
        """Give the users of the ranks that have failed to the others. Local."""
        self.owners = owners(self.train, failed)

    def ratings_of_ranks(self) -> NDArray[np.int64]:
        """How many each rank trains on, by rank."""
        return np.bincount(self.owners, self.user_counts, malt.size()).astype(np.int64)

    def is_shared(self) -> NDArray[np.bool_]:
        """Which items several ranks have ratings of."""
        ranks = self.owners[self.train.users]
        lowest = np.full(len(self.item_counts), malt.size())
        highest = np.full(len(self.item_counts), -1)
        np.minimum.at(lowest, self.train.items, ranks)
        np.maximum.at(highest, self.train.items, ranks)
        return lowest < highest

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest rating, scaled."""
        return (self.low - self.mean) / self.spread, (self.high - self.mean) / self.spread

    def scaled(self, ratings: NDArray[np.float32]) -> Rows:
        """In units of the spread around the mean."""
        scaled: Rows = ((ratings - self.mean) / self.spread).astype(np.float32)
        return scaled

    def tests(self, users: NDArray[np.intp], rank: int) -> Pairs:
        """The test ratings of the users with these numbers; on the lowest rank also of others."""
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
        """The items of training that are in the test, ascending."""
        if self.test is None:
            return np.empty(0, np.int32)
        found = numbered(self.train.item_ids, self.test.item_ids)
        return np.sort(found[found >= 0])

    def first_items(self) -> Rows:
        """Rows of all items: the same on all ranks."""
        rows = factors.first_rows(len(self.item_counts), self.rank, np.random.default_rng([self.options.seed, 0, 1]))
        start = (self.start.item_ids, self.start.items) if self.start else None
        return self._go_on(rows, self.train.item_ids, start)

    def first_users(self, users: NDArray[np.intp], generator: np.random.Generator) -> Rows:
        """Rows of these users."""
        rows = factors.first_rows(len(users), self.rank, generator)
        start = (self.start.user_ids, self.start.users) if self.start else None
        return self._go_on(rows, self.train.user_ids[users], start)

    def model(self, users: Rows, items: Rows) -> Model:
        """One with these rows of all users and items."""
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
    """The ratings of this rank, those of its users, over the epochs.

    `meets`: all ranks come together after each epoch, for a checkpoint. They then must know of the same failures, for
    them to make as many exchanges: `present` is collective.
    """

    unit = "ratings"
    is_made_up = False  # users of a failed rank catch up at once

    def __init__(self, ratings: DealtRatings, meets: bool) -> None:
        self._ratings, self._meets = ratings, meets
        super().__init__(len(ratings.train.ratings))

    def rows(self, rank: int) -> int:
        return int(self._ratings.ratings_of_ranks()[rank])

    def present(self) -> tuple[int, ...]:
        return tuple(harness.by_rank(None)) if self._meets else super().present()
