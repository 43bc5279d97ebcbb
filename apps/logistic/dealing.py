"""The rows of each rank while ranks fail: all at once for a pass, in blocks for steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import malt
from apps.harness import BadInput, Measures, Shares
from apps.logistic.rows import Rows
from malt.data import rows_of
from malt.models.linear import Block, Found, Objective, blocks, narrow_block


class Dealt:
    """This rank's share of the rows. `every`: the rows of a block. `narrows`: as in `blocks`. Local."""

    def __init__(self, rows: Rows, shares: Shares, seed: int, every: int, narrows: bool) -> None:
        self._rows, self._shares, self._seed, self._every, self._narrows = rows, shares, seed, every, narrows
        # A permutation, as a file may be sorted by label.
        self._order = np.random.default_rng(seed).permutation(len(rows.train.y))
        self.count = len(self._order)
        """The rows of all ranks."""
        self.visited = 0
        """The rows that this rank has visited, each time that it did."""
        self.take()

    def take(self) -> None:
        """Take the rows that this rank has from here on. Local."""
        rank, failed = malt.rank(), self._shares.failed
        self._mine = self._rows.chosen(self._order[rows_of(self.count, rank, failed)])
        self.train = self._block(self._mine)
        test = self._rows.test
        self.test = None if test is None else self._block(self._rows.tested(rows_of(len(test.y), rank, failed)))
        self._blocks: list[Block] = []

    def _block(self, data: Any) -> Block:
        return narrow_block(data, self._rows.n_features) if self._narrows else Block(data, None)

    def renew(self) -> None:
        """Take the rows of ranks that have failed. Collective."""
        if self._shares.changed(self._shares.present()):
            self.take()

    def whole(self, find: Callable[[Block], Found], test: bool = False) -> Found:
        """Return the result of find() for the blocks of this rank, with all rows, to train or to test on. Collective.

        If a rank fails meanwhile, the others take over its rows, and call find() again.
        """
        count = len(self._rows.test.y) if test and self._rows.test is not None else self.count
        while True:
            block = self.test if test and self.test is not None else self.train
            found = find(block)
            self.visited += 0 if test else len(block.data.labels)
            if found.rows == count:
                return found
            self.renew()

    def measures(self, objective: Objective, point: Any, value: float = math.nan) -> Measures:
        """The objective of `point`, which is `value` where that is known; the accuracy on the test rows. Collective.

        BadInput, on all ranks: the objective is not finite.
        """
        visited, find = self.visited, partial(objective.found, point, measures=True)
        tests = 0 if self._rows.test is None else len(self._rows.test.y)
        if math.isnan(value):
            value = self.whole(partial(find, rows=self.count)).value
        if not math.isfinite(value):
            raise BadInput("the objective is not finite: scale the features, or take a smaller --step")
        right = self.whole(partial(find, rows=tests), test=True).right if tests else 0
        self.visited = visited
        return {"objective": value, "test_accuracy": right / tests if tests else None}

    def epoch(self, number: int, learn: Callable[[Block, float, int], None]) -> int:
        """Call learn(block, rows of such a block of all ranks, ranks) for each block; return the rows. Collective.

        The order of the blocks is another one in each epoch, and the same on all ranks.
        """
        ranks = len(self._shares.alive)
        count = -(-max(self._shares.rows(rank) for rank in self._shares.alive) // self._every)
        self._blocks = self._blocks or list(blocks(self._mine, count, self._rows.n_features, self._narrows))
        for place in np.random.default_rng([self._seed, number]).permutation(count):
            learn(self._blocks[place], self.count / count, ranks)
        self.visited += len(self._mine.labels)
        return len(self._mine.labels)
