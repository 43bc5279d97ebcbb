"""One rank's part of a factorization: the rows of its users, a replica of the items' rows, and their training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.models.common import by_rank
from malt.models.factors import compiled, problem
from malt.models.factors.dealt import DealtRatings
from malt.models.factors.problem import Numbers, Rows, Shard
from malt.session.collectives import allgather
from malt.session.session import heartbeat, rank


@dataclass(frozen=True)
class Settings:
    """The settings of a factorization."""

    l2: float
    """The weight of the squares of rows."""
    step: float
    """The first step size."""
    epochs: int
    meets: bool = False
    """Whether ranks wait for each other after each epoch, for a collective call."""


class Pairs(NamedTuple):
    """Ratings, in units of the spread around the mean, with the rows of their users and items; -1 for no row."""

    users: Numbers
    items: Numbers
    ratings: Rows


class Learner(ABC):
    """The rows of this rank's users, which no other rank needs, and a replica of all items' rows.

    A subclass says how the rows of items come to other ranks, as `Rotation`. The constructor is collective. `state` has
    the rows of all users and items to resume from, the same on all ranks. It is empty if training starts from the
    beginning.
    """

    items: Any
    """The vector or the blocks of the items' rows: `array`, `statistics()` and `close()`."""
    places: Numbers
    """The row of each item in `items.array`."""
    sizes: list[int]
    """The numbers of rows of the blocks that the items are cut into."""
    travelling: Numbers
    """The rows whose newest values any rank may have, ascending."""
    how: str
    """How rows of items come to other ranks, in words."""

    def __init__(
        self, ratings: DealtRatings, settings: Settings, generator: np.random.Generator, state: Mapping[str, Any]
    ) -> None:  # fmt: skip
        self.ratings = ratings
        """The ratings and their owners, the same on all ranks."""
        self._settings, self._generator, self._state = settings, generator, state
        self._kernel = compiled.train_kernel(ratings.rank)
        self.mine = np.empty(0, np.intp)
        """The indices of this rank's users, ascending."""
        self.users: Rows = np.empty((0, ratings.rank + 1), np.float32)
        """The rows of `mine`, (users, rank + 1)."""
        self.take()
        self._touched = np.zeros(len(self.places), bool)
        self.rows_sent = 0

    def take(self) -> Numbers:
        """Take the users that this rank owns now. Returns the places of the new ones in `mine`. Local.

        Users that it had keep their rows. The rows of new users come from the checkpoint that the run resumes from, or
        are random.
        """
        ratings, had, rows = self.ratings, self.mine, self.users
        self.mine = np.flatnonzero(ratings.owners == rank())
        self.counts = ratings.user_counts[self.mine]
        """The number of ratings of each of `mine`."""
        self.data = self._shards()
        """The ratings of `mine`, by block of items."""
        self.users = ratings.first_users(self.mine, self._generator)
        if self._state:
            self.users[:] = self._state["users"][self.mine]
        self.users[np.searchsorted(self.mine, had)] = rows
        user_totals, item_totals = ratings.totals
        totals = user_totals[self.mine], item_totals[np.argsort(self.places)]
        self._l2 = [problem.penalties(counts, self._settings.l2) for counts in totals]
        return np.flatnonzero(~np.isin(self.mine, had)).astype(np.int32)

    def _shards(self) -> list[Shard]:
        train, ratings = self.ratings.train, self.ratings
        mine = ratings.owners[train.users] == rank()
        users = np.searchsorted(self.mine, train.users[mine]).astype(np.int32)
        items, values = self.places[train.items[mine]], ratings.scaled(train.ratings[mine])
        blocks = np.repeat(np.arange(len(self.sizes)), self.sizes)[items]
        parts = [blocks == block for block in range(len(self.sizes))]
        return [
            problem.shard(users[part], items[part], values[part], len(self.mine), self._generator) for part in parts
        ]

    def first_items(self) -> Rows:
        """The rows of the items to begin with, in their places: a copy."""
        first = self._state["items"] if self._state else self.ratings.first_items()
        rows = np.empty((len(self.places), self.ratings.rank + 1), np.float32)
        rows[self.places] = first
        return rows

    def trained(self) -> Pairs:
        """The ratings of `mine`, with the rows of their users and items."""
        whose = [np.repeat(np.arange(len(one.starts) - 1, dtype=np.int32), np.diff(one.starts)) for one in self.data]
        items, ratings = ([getattr(one, name) for one in self.data] for name in ("items", "ratings"))
        return Pairs(np.concatenate(whose), np.concatenate(items), np.concatenate(ratings))

    @abstractmethod
    def present(self) -> tuple[int, ...]:
        """The ranks that take part in the next epoch, ascending, as far as this rank knows. May be collective."""

    @abstractmethod
    def order(self) -> Any:
        """A new random order of the users, for `learn`."""

    @abstractmethod
    def learn(self, epoch: int, order: Any) -> int:
        """Train epoch number `epoch`, from 0, with its exchanges. One-sided.

        Returns the number of ratings. FloatingPointError: the rows are no longer finite.
        """

    @abstractmethod
    def end(self) -> None:
        """Return once all ranks have trained all epochs. Collective."""

    @abstractmethod
    def newest(self) -> NDArray[np.bool_]:
        """Return whether this rank has the newest values of a row that others may need, by row."""

    def reported(self) -> dict[str, float | None]:
        """Return further numbers on the whole run for the report, by name."""
        return {}

    @abstractmethod
    def _common_items(self) -> Rows:
        """The rows of all items, the same on all ranks: a copy. Collective."""

    def catch_up(self, users: Numbers, epochs: Iterable[int]) -> None:
        """Train the users in these places of `mine` for these epochs, from 0. Items are not trained. Local."""
        for epoch in epochs:
            items = self.items.array.copy()
            for data in self.data:
                self._train(data, self._generator.permutation(users), items, *self._steps(epoch))
            heartbeat()
        self._touched[:] = False

    def _steps(self, epoch: int) -> tuple[tuple[Rows, Rows], float]:
        """The `keeps` of users and of items, and the step size."""
        step = problem.step_size(self._settings.step, epoch, self._settings.epochs)
        return (problem.keeps(self._l2[0], step), problem.keeps(self._l2[1], step)), step

    def _train(self, data: Shard, users: Numbers, items: Rows, kept: tuple[Rows, Rows], step: float) -> None:
        compiled.train(
            self._kernel, data, users, self.users, items, kept, step, self._touched, self.ratings.biases
        )  # fmt: skip

    def common(self, deal: Callable[[tuple[int, ...]], None]) -> tuple[Rows, Rows]:
        """The rows of all users, each from its owner, and of all items: the same on all ranks. Collective.

        deal(ranks) deals the users to the ranks that take part, where others have failed. It is called until no rank
        fails in the meantime. FloatingPointError, on all ranks: a row is not finite.
        """
        while True:
            ranks = tuple(by_rank(None))
            deal(ranks)
            users, items = self._gathered()
            if tuple(by_rank(None)) == ranks:  # otherwise rows of users may be missing
                break
        if not (np.isfinite(items).all() and np.isfinite(users).all()):
            step = self._settings.step
            raise FloatingPointError(f"the factors are not finite: the step size, {step:g}, is too large")
        return users, items

    def _gathered(self) -> tuple[Rows, Rows]:
        """The rows of all users and items. Those of users whose owner has failed are zeros. Collective."""
        items = self._common_items()[self.places]
        users = np.zeros((len(self.ratings.owners), self.ratings.rank + 1), np.float32)
        for number, theirs in enumerate(allgather(self.users)):
            if theirs is not None:
                users[self.ratings.owners == number] = theirs
        return users, items

    def put(self, users: Rows, items: Rows) -> None:
        """Replace the rows by those given for all users and items. Local."""
        self.users, self.items.array[self.places] = users[self.mine], items
