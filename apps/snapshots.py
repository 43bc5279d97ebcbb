"""How good a factorization was at the end of each epoch, found when all of it is over: nobody waits, no clock runs.

A rank keeps the rows that the ratings of its own users take, and evaluates those. What it has not got are rows of
items that no other of its ratings is of: items in the test that one other rank alone trains on, which come from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import malt
from apps import factors
from apps.factors import Kernels, Numbers, Rows, Shard
from apps.ratingproblem import Pairs, Problem
from malt.world.agreement import exchange

NBYTES: Final = 1 << 29
"""What a rank may keep; where that is not enough, only some epochs are measured, the last included."""


class Snapshots:
    """The rows of one rank by epoch, for those epochs, counted from 0, that it trains. Local, all but `measures`."""

    def __init__(self, problem: Problem, kernels: Kernels, data: Shard, tests: Pairs, is_shared: NDArray[np.bool_],
                 epochs: range) -> None:  # fmt: skip
        self._problem, self._kernels, self._tests, self._epochs = problem, kernels, tests, epochs
        whose = np.repeat(np.arange(len(data.starts) - 1, dtype=np.int32), np.diff(data.starts))
        self._trained = Pairs(whose, data.items, data.ratings)
        self._seen = np.unique(np.concatenate((data.items, tests.items[tests.items >= 0])))
        lone = problem.tested_items()
        self._lone = lone[~is_shared[lone]]
        self._mine = np.isin(self._lone, data.items)
        self._lone_seen = np.isin(self._lone, self._seen)
        self._kept: dict[int, tuple[Rows, Rows]] = {}
        rows = len(problem.user_counts) + len(problem.item_counts)  # all of them: so it is the same on all ranks
        nbytes = rows * (problem.rank + 1) * np.dtype(np.float32).itemsize
        self._stride = max(1, math.ceil(len(epochs) * nbytes / NBYTES))

    def keep(self, epoch: int, users: Rows, items: Rows) -> None:
        """The rows as they are now, after `epoch`, counted from 0. Local."""
        if (self._epochs.stop - 1 - epoch) % self._stride == 0:
            self._kept[epoch] = users.copy(), items[self._seen]

    def measures(self, users: Rows, items: Rows) -> tuple[list[dict[str, float | None]], tuple[int, ...]]:
        """How good all ranks were at the end of each epoch, and, the last, with these rows; and whose errors are in it,
        those of all who live. Collective."""
        theirs = exchange(malt.init().transport, sorted(self._kept))
        common = set.intersection(*map(set, theirs.values()))
        kept = [self._kept[epoch] if epoch in common else None for epoch in self._epochs]
        squares = [one and self._squares(*one) for one in [*kept, (users, items[self._seen])]]
        said = exchange(malt.init().transport, squares)
        problem = self._problem
        counts = [len(problem.train.ratings), 0 if problem.test is None else len(problem.test.ratings)]
        found = [
            {
                "train_rmse": _rmse([one and one[0] for one in sums], counts[0], problem.spread),
                "test_rmse": _rmse([one and one[1] for one in sums], counts[1], problem.spread),
            }
            for sums in zip(*said.values(), strict=True)
        ]
        return found, tuple(said)

    def _squares(self, users: Rows, items: Rows) -> tuple[float, float]:
        """The sums of squared errors in training and test, of this rank's users. Collective."""
        items, (low, high) = self._completed(items), self._problem.bounds
        trained, tested = (
            factors.squares(
                self._kernels, users, items, pairs.users, self._places(pairs.items), pairs.ratings, low, high
            )
            for pairs in (self._trained, self._tests)
        )
        return trained, tested

    def _completed(self, items: Rows) -> Rows:
        """The rows of `seen`, those that one rank alone trains on from there."""
        lone = np.zeros((len(self._lone), items.shape[1] + 1), np.float32)
        lone[self._mine, :-1] = items[self._places(self._lone[self._mine])]
        lone[self._mine, -1] = 1
        malt.allreduce(lone)
        known = self._lone_seen & (lone[:, -1] > 0)
        items[self._places(self._lone[known])] = lone[known, :-1] / lone[known, -1:]
        return items

    def _places(self, items: Numbers) -> Numbers:
        return np.where(items < 0, -1, np.searchsorted(self._seen, items)).astype(np.int32)


def _rmse(sums: Sequence[Any], count: int, spread: float) -> float | None:
    return None if not count or None in sums else spread * math.sqrt(sum(sums) / count)
