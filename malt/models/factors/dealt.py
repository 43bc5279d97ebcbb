"""The ratings that are factorized, and which rank owns which users."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.data import Ratings, owners
from malt.models.factors.model import Model, numbered
from malt.models.factors.problem import Rows, first_rows
from malt.session import session


class DealtRatings:
    """The ratings, their scale, the owners of the users and the first rows: the same on all ranks. Local.

    `start`: a model to go on from, whose scale is kept. `seed`: of the first rows of items.
    """

    def __init__(
        self, train: Ratings, rank: int, biases: bool, seed: Sequence[int], start: Model | None = None
    ) -> None:
        self.train, self.rank, self.biases, self.start = train, rank, biases, start
        self._seed = seed
        self.mean = start.mean if start else float(train.ratings.mean(dtype=np.float64))
        self.spread = start.spread if start else float(train.ratings.std(dtype=np.float64)) or 1.0
        self.low, self.high = float(train.ratings.min()), float(train.ratings.max())
        if start:
            self.low, self.high = min(self.low, start.low), max(self.high, start.high)
        self.owners = owners(train)
        """The rank that owns each user."""
        self.user_counts = np.bincount(train.users, minlength=train.user_ids.size)
        self.item_counts = np.bincount(train.items, minlength=train.item_ids.size)
        self.totals = self.user_counts, self.item_counts
        """The ratings of each user and of each item that rows are trained on, here and before."""

    @property
    def row_nbytes(self) -> int:
        """The size of a row of a user or an item."""
        return np.dtype(np.float32).itemsize * (self.rank + 1)

    def deal(self, failed: Collection[int]) -> None:
        """Deal the users of the failed ranks to the others."""
        self.owners = owners(self.train, failed)

    def ratings_of_ranks(self) -> NDArray[np.int64]:
        """The number of ratings that each rank trains on, by rank."""
        return np.bincount(self.owners, self.user_counts, session.size()).astype(np.int64)

    def lone_ranks(self) -> NDArray[np.int64]:
        """The rank that alone has ratings of an item, by item; -1: several ranks have."""
        ranks = self.owners[self.train.users]
        lowest = np.full(len(self.item_counts), session.size())
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

    def first_items(self) -> Rows:
        """The first rows of all items, the same on all ranks."""
        rows = first_rows(len(self.item_counts), self.rank, np.random.default_rng([*self._seed, 0, 1]))
        start = (self.start.item_ids, self.start.items) if self.start else None
        return self._go_on(rows, self.train.item_ids, start)

    def first_users(self, users: NDArray[np.intp], generator: np.random.Generator) -> Rows:
        """The first rows of these users."""
        rows = first_rows(len(users), self.rank, generator)
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
