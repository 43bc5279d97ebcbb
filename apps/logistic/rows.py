"""The rows of all ranks, the classes of their labels, and the rows of each rank while ranks fail."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

import malt
from apps.harness import Array, BadInput, Measures, Shares
from apps.linear.reading import load, paths
from malt.data import rows_of
from malt.models import linear
from malt.models.linear import Block, Examples, Found, Objective, blocks, narrow_block

MOST_CLASSES: Final = 1000
"""More different labels are numbers rather than classes."""

Numbers = NDArray[Any]


class Classes(NamedTuple):
    """The classes that labels stand for."""

    values: Array
    """The labels of the file: two, of which the first is -1 and the second +1, one of those, or more."""
    columns: int
    """The columns of the model: 1 for two classes, else one for each."""

    def labels(self, data: malt.Dataset, path: Any) -> NDArray[np.float32]:
        """The labels for the kernels: -1 and +1, or numbers of classes. ValueError: a label is in no class."""
        if self.columns == 1:
            return data.y
        places = np.searchsorted(self.values, data.y).clip(max=self.columns - 1)
        if strange := np.flatnonzero(self.values[places] != data.y).tolist():
            raise ValueError(f"{path}: row {strange[0]}, counted from 0, has label {data.y[strange[0]]:g}, which is "
                             "not in the training rows")  # fmt: skip
        return places.astype(np.float32)


class Rows:
    """All rows to train and to test on, and their classes. The constructor is Collective.

    OSError, ValueError: a file cannot be read, or its labels do not suit the options.
    """

    def __init__(self, options: Namespace) -> None:
        self.train, self.test = load(options, two_classes=False)
        path, test_path = paths(options)
        if isinstance(self.train.labels, str):
            values = np.unique(self.train.y)
            self.classes = Classes(values, len(values))
            if len(values) > MOST_CLASSES:
                raise ValueError(f"{path}: {len(values):,} different labels are too many classes")
        else:
            self.classes = Classes(np.array(self.train.labels), 1)
            if options.multiclass:
                raise ValueError(f"--multiclass {options.multiclass} is for more classes than {path} has")
        self.labels = self.classes.labels(self.train, path)
        self._test_labels = None if self.test is None else self.classes.labels(self.test, test_path)
        self.n_features = max(self.train.X.shape[1], 0 if self.test is None else self.test.X.shape[1])

    def chosen(self, rows: Numbers) -> Examples:
        """Copies of these training rows, in this order."""
        return linear.examples(self.train.X, self.labels, rows)

    def tested(self, rows: Numbers) -> Examples:
        """Copies of these of the test rows, which there are."""
        assert self.test is not None and self._test_labels is not None
        return linear.examples(self.test.X, self._test_labels, rows)


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
