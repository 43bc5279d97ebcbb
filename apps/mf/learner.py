"""One rank's part of a factorization: the rows of its users, a replica of the items' rows, and their training.

The items' rows are a sparse vector, which is scattered and gathered when an exchange is due. At the end ranks take
their mean.
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
    """The rows of this rank's users, which no other rank needs, and a replica of all items' rows, a sparse vector.

    The constructor is collective. `state` has the rows of all users and items to resume from, the same on all ranks. It
    is empty if training starts from the beginning. ValueError: --graph or --sync is not valid.
    """

    def __init__(
        self, ratings: DealtRatings, options: Namespace, generator: np.random.Generator, state: Mapping[str, Any]
    ) -> None:  # fmt: skip
        self.ratings = ratings
        """The ratings and their owners, the same on all ranks."""
        self._options, self._generator, self._state = options, generator, state
        self.kernels = factors.kernels(ratings.rank)
        self.mine = np.empty(0, np.intp)
        """The indices of this rank's users, ascending."""
        self.users: Rows = np.empty((0, ratings.rank + 1), np.float32)
        """The rows of `mine`, (users, rank + 1)."""
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
        """Take the users that this rank owns now. Returns the places of the new ones in `mine`. Local.

        Users that it had keep their rows. The rows of new users come from the checkpoint that the run resumes from, or
        are random.
        """
        ratings, had, rows = self.ratings, self.mine, self.users
        self.mine = np.flatnonzero(ratings.owners == malt.rank())
        self.counts = ratings.user_counts[self.mine]
        """The number of ratings of each of `mine`."""
        self._exchanges = self._exchanges_of_an_epoch()
        self.data = self._shard()
        self.users = ratings.first_users(self.mine, self._generator)
        if self._state:
            self.users[:] = self._state["users"][self.mine]
        self.users[np.searchsorted(self.mine, had)] = rows
        self._l2 = [factors.penalties(counts, self._options.l2) for counts in (self.counts, ratings.item_counts)]
        self.is_shared = ratings.is_shared()
        """Whether several ranks have ratings of an item, by item."""
        return np.flatnonzero(~np.isin(self.mine, had)).astype(np.int32)

    def _shard(self) -> factors.Shard:
        train, ratings = self.ratings.train, self.ratings
        mine = ratings.owners[train.users] == malt.rank()
        rows = np.searchsorted(self.mine, train.users[mine]).astype(np.int32)
        return factors.shard(
            rows, train.items[mine], ratings.scaled(train.ratings[mine]), len(self.mine), self._generator
        )  # fmt: skip

    def _exchanges_of_an_epoch(self) -> int:
        """The number of exchanges in an epoch, one about every --exchange-every ratings.

        There are enough of them for the rows of a message to fit in its slot. With checkpoints ranks synchronize after
        each epoch, and all make the same number of exchanges. Otherwise a rank could wait in an exchange for one that
        already waits for the checkpoint.
        """
        ratings = self.ratings.ratings_of_ranks()
        most = ratings[malt.rank()] if self._options.checkpoint is None else ratings.max()
        return int(-(-most // self._options.exchange_every))

    def order(self) -> list[Numbers]:
        """The places of the users in a new random order, cut into parts. An exchange is due after each part."""
        order = self._generator.permutation(len(self.mine)).astype(np.int32)
        if not self._exchanges:
            return []
        totals = np.cumsum(self.counts[order])
        whole = int(self.counts.sum())
        cuts = np.searchsorted(totals, whole * np.arange(1, self._exchanges) / self._exchanges)
        return [part for part in np.split(order, cuts) if len(part) or self._options.checkpoint is not None]

    def learn(self, epoch: int, parts: Iterable[Numbers]) -> int:
        """Train epoch number `epoch`, from 0, with an exchange after each part. One-sided.

        Returns the number of ratings. FloatingPointError: the rows are no longer finite.
        """
        steps, trained = self._steps(epoch), 0
        for part in parts:
            self._train(part, self.items.array, self._touched, *steps)
            trained += int(self.counts[part].sum())
            self._exchange()
        return trained

    def catch_up(self, users: Numbers, epochs: Iterable[int]) -> None:
        """Train the users in these places of `mine` for these epochs, from 0. Items are not trained. Local."""
        for epoch in epochs:
            items = self.items.array.copy()
            self._train(self._generator.permutation(users), items, np.zeros(len(items), bool), *self._steps(epoch))
            malt.heartbeat()

    def _steps(self, epoch: int) -> tuple[tuple[Rows, Rows], float]:
        """The `keeps` of users and of items, and the step size."""
        step = factors.step_size(self._options.step, epoch, self._options.epochs)
        return (factors.keeps(self._l2[0], step), factors.keeps(self._l2[1], step)), step

    def _train(
        self, users: Numbers, items: Rows, touched: NDArray[np.bool_], kept: tuple[Rows, Rows], step: float
    ) -> None:
        factors.train(
            self.kernels, self.data, users, self.users, items, kept, step, touched, self.ratings.biases
        )  # fmt: skip

    def _exchange(self) -> None:
        """Send the rows trained on since the last exchange, and merge those that came, by their mean with the own row.

        A rank does not send rows that it does not train on: these would dilute the rows of others.
        """
        self._touched &= self.is_shared
        if malt.size() > 1:
            before = self.items.statistics().sent
            self.items.scatter(rows=self._touched)
            self.items.gather(malt.AVG)
            self.rows_sent += int(np.count_nonzero(self._touched)) * (self.items.statistics().sent - before)
        self._touched[:] = False

    def common(self) -> tuple[Rows, Rows]:
        """The rows of all users, each from its owner, and of all items. Collective.

        The row of an item is the mean over ranks, weighted by their ratings of it. Users whose owner has failed in the
        meantime have rows of zeros. FloatingPointError: a row is not finite.
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
        """Replace the rows by those given for all users and items. Local."""
        self.users, self.items.array[:] = users[self.mine], items
