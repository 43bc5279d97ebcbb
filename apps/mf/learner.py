"""One rank's part in a factorization: the rows of its users, a replica of the items' rows, how they are trained.

The distributed work: a sparse vector of the items' rows, scatter and gather where an exchange is due, and in the end
the mean.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import malt
from apps.mf import factors
from apps.mf.factors import Numbers, Rows
from apps.mf.ratings import DealtRatings


class Learner:
    """This rank's users, whose rows nobody else needs, and a replica of the items' rows, a sparse vector.

    Collective to make. `state`: rows of all users and items to go on with, the same on all ranks; empty: from the
    start. ValueError: --graph or --sync.
    """

    def __init__(
        self, ratings: DealtRatings, options: Namespace, generator: np.random.Generator, state: Mapping[str, Any]
    ) -> None:  # fmt: skip
        self.ratings = ratings
        """What all ranks know alike."""
        self._options, self._generator, self._state = options, generator, state
        self.kernels = factors.kernels(ratings.rank)
        self.mine = np.empty(0, np.intp)
        """The numbers of this rank's users, ascending."""
        self.users: Rows = np.empty((0, ratings.rank + 1), np.float32)
        """Their rows."""
        self.take()
        first_items = ratings.first_items()
        if state:
            first_items[:] = state["items"]
        self.items = malt.vector(
            first_items, kind="sparse", track=False, graph=options.graph, sync=options.sync, check_finite=True,
            capacity=min(len(ratings.item_counts), options.exchange_every + int(ratings.user_counts.max())),
        )  # fmt: skip
        self._touched = np.zeros(len(ratings.item_counts), bool)
        self.rows_sent = 0

    def take(self) -> Numbers:
        """Take the users that are this rank's now. Those that it had keep their rows; the places of the others, whose
        rows begin anew, or as in the checkpoint that this run goes on from. Local."""
        ratings, had, rows = self.ratings, self.mine, self.users
        self.mine = np.flatnonzero(ratings.owners == malt.rank())
        self.counts = ratings.user_counts[self.mine]
        """How many ratings each has."""
        self._exchanges = self._exchanges_of_an_epoch()
        self.data = self._shard()
        self.users = ratings.first_users(self.mine, self._generator)
        if self._state:
            self.users[:] = self._state["users"][self.mine]
        self.users[np.searchsorted(self.mine, had)] = rows
        self._l2 = [factors.penalties(counts, self._options.l2) for counts in (self.counts, ratings.item_counts)]
        self.is_shared = ratings.is_shared()
        """Which items several ranks have ratings of."""
        return np.flatnonzero(~np.isin(self.mine, had)).astype(np.int32)

    def _shard(self) -> factors.Shard:
        train, ratings = self.ratings.train, self.ratings
        mine = ratings.owners[train.users] == malt.rank()
        rows = np.searchsorted(self.mine, train.users[mine]).astype(np.int32)
        return factors.shard(
            rows, train.items[mine], ratings.scaled(train.ratings[mine]), len(self.mine), self._generator
        )  # fmt: skip

    def _exchanges_of_an_epoch(self) -> int:
        """About --exchange-every ratings apart, never so few that a message would hold more rows than its slot. So it
        changes with whose users are this rank's.

        Where ranks meet after epochs, for checkpoints, they all make as many in one: a rank that waits in an exchange
        for one that waits for a checkpoint would wait long.
        """
        ratings = self.ratings.ratings_of_ranks()
        most = ratings[malt.rank()] if self._options.checkpoint is None else ratings.max()
        return int(-(-most // self._options.exchange_every))

    def order(self) -> list[Numbers]:
        """The users in a new order, cut where an exchange is due."""
        order = self._generator.permutation(len(self.mine)).astype(np.int32)
        if not self._exchanges:
            return []
        totals = np.cumsum(self.counts[order])
        whole = int(self.counts.sum())
        cuts = np.searchsorted(totals, whole * np.arange(1, self._exchanges) / self._exchanges)
        return [part for part in np.split(order, cuts) if len(part) or self._options.checkpoint is not None]

    def learn(self, epoch: int, parts: Iterable[Numbers]) -> int:
        """Train epoch number `epoch`, from 0, and exchange after each part; the number of ratings. One-sided.

        FloatingPointError: the rows are no longer finite."""
        steps, trained = self._steps(epoch), 0
        for part in parts:
            self._train(part, self.items.array, self._touched, *steps)
            trained += int(self.counts[part].sum())
            self._exchange()
        return trained

    def catch_up(self, users: Numbers, epochs: Iterable[int]) -> None:
        """Train these users, places in `mine`, as they would have been in these epochs, from 0, and no items. Local."""
        for epoch in epochs:
            items = self.items.array.copy()
            self._train(self._generator.permutation(users), items, np.zeros(len(items), bool), *self._steps(epoch))
            malt.heartbeat()

    def _steps(self, epoch: int) -> tuple[tuple[Rows, Rows], float]:
        """What is kept of rows at an example, and the step size."""
        step = factors.step_size(self._options.step, epoch, self._options.epochs)
        return (factors.keeps(self._l2[0], step), factors.keeps(self._l2[1], step)), step

    def _train(
        self, users: Numbers, items: Rows, touched: NDArray[np.bool_], kept: tuple[Rows, Rows], step: float
    ) -> None:
        factors.train(
            self.kernels, self.data, users, self.users, items, kept, step, touched, self.ratings.biases
        )  # fmt: skip

    def _exchange(self) -> None:
        """Send the rows trained on since the last time, merge those that came: row by row the mean of own and theirs.

        A row that a rank does not train on it does not send, so that it dilutes nobody's.
        """
        self._touched &= self.is_shared
        if malt.size() > 1:
            before = self.items.statistics().sent
            self.items.scatter(rows=self._touched)
            self.items.gather(malt.AVG)
            self.rows_sent += int(np.count_nonzero(self._touched)) * (self.items.statistics().sent - before)
        self._touched[:] = False

    def common(self) -> tuple[Rows, Rows]:
        """The rows of all users, each from the rank that has it, and of all items: the mean of those of all ranks, by
        their ratings of each. Collective.

        FloatingPointError: they are not finite. Rows of users are zeros whose rank has failed meanwhile.
        """
        items = self._common_items()
        users = np.zeros((len(self.ratings.owners), self.ratings.rank + 1), np.float32)
        for rank, theirs in enumerate(malt.allgather(self.users)):
            if theirs is not None:
                users[self.ratings.owners == rank] = theirs
        return users, items

    def _common_items(self) -> Rows:
        mine = np.bincount(self.data.items, minlength=len(self.ratings.item_counts))
        share = (mine / self.ratings.item_counts).astype(np.float32)[:, np.newaxis]
        sums = np.concatenate((self.items.array * share, share), axis=1)
        malt.allreduce(sums)
        items: Rows = np.divide(sums[:, :-1], sums[:, -1:], out=self.items.array.copy(), where=sums[:, -1:] > 0)
        if not np.isfinite(items).all():
            raise FloatingPointError(f"the factors are not finite: the step size, {self._options.step:g}, is too large")
        return items

    def put(self, users: Rows, items: Rows) -> None:
        """Replace the rows by those of all users and items. Local."""
        self.users, self.items.array[:] = users[self.mine], items
