"""Averaging: each rank trains a replica of all items' rows, and takes the mean of its own rows and those of others.

The items' rows are a sparse vector, which is scattered and gathered when an exchange is due. At the end ranks take
their mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.models.common import Sharing, by_rank
from malt.models.factors.dealt import DealtRatings
from malt.models.factors.learner import Learner, Settings
from malt.models.factors.problem import Numbers, Rows
from malt.session.collectives import allreduce, barrier
from malt.session.replica.exchanges import Exchanges
from malt.session.session import alive, rank, size
from malt.session.vectors.vector import vector
from vol import AVG

USUAL: Final = 50_000
"""The ratings of a rank between two exchanges where ranks exchange together, and at the start."""


class Averaging(Learner):
    """A learner that exchanges rows of items after so many ratings. ValueError: `sharing` is wrong."""

    def __init__(
        self, ratings: DealtRatings, settings: Settings, generator: np.random.Generator, state: Mapping[str, Any],
        sharing: Sharing,
    ) -> None:  # fmt: skip
        self._pace = pace_of(ratings, sharing, vectors := [])
        self.places = np.arange(len(ratings.item_counts), dtype=np.int32)
        often = f"every {sharing.every:,} ratings" if isinstance(sharing.every, int) else "as often as pays"
        self.how = f"rows of items exchanged {often}"
        self.sizes, self.travelling = [len(self.places)], self.places[:0]
        super().__init__(ratings, settings, generator, state)
        self.items = vector(
            self.first_items(), kind="sparse", track=False, graph=sharing.graph, sync=sharing.sync, check_finite=True,
            capacity=capacity(ratings, sharing),
        )  # fmt: skip
        vectors.append(self.items)
        self._sent = 0
        """The messages sent up to the last exchange."""

    def take(self) -> Numbers:
        """Take the users that this rank owns now. Return the places of the new ones in `mine`. Local."""
        new = super().take()
        self._is_shared = self.ratings.lone_ranks() < 0
        """Whether several ranks have ratings of an item, by item."""
        return new

    def present(self) -> tuple[int, ...]:
        """The ranks that take part. Where all meet after each epoch they know of the same failures: collective."""
        return tuple(by_rank(None)) if self._settings.meets else alive()

    def _exchanges_of_an_epoch(self) -> int:
        """The number of exchanges in an epoch.

        There are enough of them for the rows of a message to fit in its slot. With checkpoints ranks synchronize after
        each epoch, and all make the same number of exchanges. Otherwise a rank could wait in an exchange for one that
        already waits for the checkpoint.
        """
        ratings = self.ratings.ratings_of_ranks()
        most = ratings.max() if self._settings.meets else ratings[rank()]
        return int(-(-most // self._pace.every))

    def order(self) -> list[Numbers]:
        """The places of the users in a new random order, cut into parts. An exchange is due after each part."""
        order = self._generator.permutation(len(self.mine)).astype(np.int32)
        exchanges = self._exchanges_of_an_epoch()
        if not exchanges:
            return []
        totals = np.cumsum(self.counts[order])
        whole = int(self.counts.sum())
        cuts = np.searchsorted(totals, whole * np.arange(1, exchanges) / exchanges)
        return [part for part in np.split(order, cuts) if len(part) or self._settings.meets]

    def learn(self, epoch: int, order: Iterable[Numbers]) -> int:
        """Train on the parts of `order`, with an exchange after each. Return the number of ratings. One-sided."""
        steps, trained = self._steps(epoch), 0
        for part in order:
            self._train(self.data[0], part, self.items.array, *steps)
            count = int(self.counts[part].sum())
            self._pace.count(count)
            trained += count
            with self._pace.exchange():
                self._exchange()
        return trained

    def _exchange(self) -> None:
        """Send the rows trained on since the last exchange, and merge those that came, by their mean with the own row.

        A rank does not send rows that it does not train on: these would dilute the rows of others.
        """
        self._touched &= self._is_shared
        if size() > 1:
            self.items.scatter(rows=self._touched)
            self.items.gather(AVG)
            sent, self._sent = self._sent, self.items.statistics().sent
            self.rows_sent += int(np.count_nonzero(self._touched)) * (self._sent - sent)
        self._touched[:] = False

    def end(self) -> None:
        """Close the vector of items; return once all ranks have trained all epochs. Collective."""
        self.items.close()
        barrier()

    def newest(self) -> NDArray[np.bool_]:
        """Those that this rank alone trains."""
        mask: NDArray[np.bool_] = self.ratings.lone_ranks() == rank()
        return mask

    def _common_items(self) -> Rows:
        """The row of an item is the mean over ranks, weighted by their ratings of it."""
        mine = np.bincount(self.data[0].items, minlength=len(self.ratings.item_counts))
        share = (mine / self.ratings.item_counts).astype(np.float32)[:, np.newaxis]
        sums = np.concatenate((self.items.array * share, share), axis=1)
        allreduce(sums)
        items: Rows = np.divide(sums[:, :-1], sums[:, -1:], out=self.items.array.copy(), where=sums[:, -1:] > 0)
        return items


def pace_of(ratings: DealtRatings, sharing: Sharing, vectors: Sequence[Any] = ()) -> Exchanges:
    """Return the interval at which a rank exchanges. Local."""
    epoch = -(-len(ratings.train.ratings) // size())
    return Exchanges(sharing.every, epoch=epoch, first=USUAL, vectors=vectors)


def capacity(ratings: DealtRatings, sharing: Sharing) -> int:
    """The most rows of items in a message: those of the ratings between two exchanges, and of one user more. Local."""
    return int(min(len(ratings.item_counts), pace_of(ratings, sharing).most + int(ratings.user_counts.max())))
