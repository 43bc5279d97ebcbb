"""Rotation: the rows of items are cut into blocks, each of which one rank holds at a time and passes on.

Nothing is averaged, so the rows are as good as if one rank had trained all ratings (Gemulla et al., KDD 2011; Yun et
al., NOMAD, VLDB 2014). In an epoch each rank trains each block on the ratings of its own users.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.data import deal
from malt.models.factors.dealt import DealtRatings
from malt.models.factors.learner import Learner, Settings
from malt.models.factors.problem import Numbers, Rows
from malt.session.session import size
from malt.session.vectors.blocks import blocks

BLOCKS: Final = 2
"""The most blocks for each rank. While one is on its way there is another one to train."""
RUN: Final = 4
"""The fewest ratings of a user in a block, on average: his row is loaded for each of these runs."""

UPDATES: Final = 1000
"""The most updates of an item in a visit, on average. The rows of a few items with many ratings would follow the users
of one visit too far."""


class Rotation(Learner):
    """A learner that holds some blocks of items at a time."""

    def __init__(
        self, ratings: DealtRatings, settings: Settings, generator: np.random.Generator, state: Mapping[str, Any]
    ) -> None:  # fmt: skip
        block_of = deal(ratings.item_counts, count_of_blocks(ratings))
        lone_ranks = ratings.lone_ranks()
        order = np.lexsort((lone_ranks >= 0, block_of))
        self.places = np.empty(order.size, np.int32)
        self.places[order] = np.arange(order.size, dtype=np.int32)
        self.sizes = np.bincount(block_of).tolist()
        self.how = f"items in {len(self.sizes)} block{'s'[: len(self.sizes) > 1]} of rows"
        self.travelling = np.sort(self.places)
        self._rounds = rounds_of_an_epoch(ratings)
        super().__init__(ratings, settings, generator, state)
        self.items = blocks(self.first_items(), self.sizes, lone_ranks[order], name="the items")

    def present(self) -> tuple[int, ...]:
        """Return the ranks that pass blocks on."""
        return tuple(self.items.ranks)

    def order(self) -> Numbers:
        """The places of the users in a new random order."""
        return self._generator.permutation(len(self.mine)).astype(np.int32)

    def learn(self, epoch: int, order: Numbers) -> int:
        """Train the epoch on each block while it is here. Returns the number of ratings."""
        steps = self._steps(epoch)
        for users in np.array_split(order, self._rounds):
            for visit in self.items.round():
                self._train(self.data[visit.block], users, self.items.array, *steps)
        self.rows_sent = self.items.statistics().bytes_sent // self.items.array[0].nbytes
        if self._settings.meets:  # none may still wait for a block then
            self.items.barrier()
        return int(self.counts.sum())

    def end(self) -> None:
        """Return once no rank waits for a block any more. Collective."""
        self.items.barrier()

    def newest(self) -> NDArray[np.bool_]:
        """Return True for the rows of the blocks that this rank holds."""
        mask: NDArray[np.bool_] = self.items.newest()
        return mask

    def reported(self) -> dict[str, float | None]:
        """Return the number of blocks that were lost with the rank that held them."""
        return {"passes_lost": self.items.passes_lost}

    def _common_items(self) -> Rows:
        rows: Rows = self.items.common()
        return rows


def count_of_blocks(ratings: DealtRatings) -> int:
    """The number of blocks: BLOCKS for each rank, or fewer where users have few ratings; one in a world of one."""
    ranks, users = size(), len(ratings.user_counts)
    for_each = min(BLOCKS, max(1, len(ratings.train.ratings) // (RUN * users * ranks)))
    return 1 if ranks == 1 else min(ranks * for_each, len(ratings.item_counts))


def rounds_of_an_epoch(ratings: DealtRatings) -> int:
    """The number of rounds in which the blocks go to all ranks once, each with another part of the users."""
    updates = len(ratings.train.ratings) / (len(ratings.item_counts) * size())
    return 1 if size() == 1 else math.ceil(updates / UPDATES)
