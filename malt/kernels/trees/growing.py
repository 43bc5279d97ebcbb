"""How a tree grows, level by level: ranks add up histograms of their rows, and each splits at its own features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from malt.kernels.trees import compiled
from malt.kernels.trees.binning import Binning
from malt.kernels.trees.compiled import Scale
from malt.kernels.trees.ensemble import Nodes, leaves
from malt.session import session
from malt.session.collectives import allgather, reduce_rows

MOST_DEPTH: Final = 12
MOST_ROWS: Final = 1 << 24
"""Sums of more rows would leave too few bits for a Hessian."""
WORD_BITS: Final = 30
"""The bits of a gradient or Hessian of a row, at most."""


@dataclass(frozen=True)
class Growth:
    """How trees grow."""

    loss: str = "logistic"
    """A name in LOSSES."""
    depth: int = 6
    learning_rate: float = 0.1
    l2: float = 0.0
    """What shrinks leaves."""
    min_rows: int = 20
    """Of a leaf, at least."""


class _Tree:
    """A tree that grows, and which rows its nodes have. All arrays are by the number of a node."""

    def __init__(self, depth: int, rows: int) -> None:
        self.count = 1
        self.nodes = leaves(2 ** (depth + 1) - 1)
        self.spans = np.zeros((len(self.nodes.value), 2), np.int64)
        """The rows of this rank that are in it: order[first:last]."""
        self.sums = np.zeros((len(self.nodes.value), 2), np.int64)
        """The sums of words of the rows of all ranks."""
        self.spans[0, 1] = rows

    def finished(self) -> Nodes:
        """Its nodes."""
        nodes: Any = self.nodes
        return Nodes(*(array[: self.count].copy() for array in nodes))


class _Level:
    """The nodes of a level that may be split: the root, or pairs of children."""

    def __init__(self, numbers: NDArray[np.int64], parents: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
        self.numbers, self.parents = numbers, parents
        """`parents`: the place in the level above, of each pair."""
        pairs = sums[numbers, 1].reshape(len(parents), -1)
        self.counted = pairs.argmin(axis=1)
        """Which of each pair is counted: the smaller. The other is what is left."""
        self.small = numbers.reshape(pairs.shape)[np.arange(len(parents)), self.counted]


class Grower:
    """Grows trees on this rank's rows, of which `bins` are given. `rows`: those of all ranks."""

    def __init__(self, bins: NDArray[np.uint8], binning: Binning, growth: Growth, rows: int) -> None:
        self._binning, self._growth, self._count = binning, growth, rows
        self._widths, self._width = binning.widths, binning.width
        self._fours, self._columns = bins.view(np.uint32), np.ascontiguousarray(bins.T)
        self._loss = compiled.LOSSES[growth.loss]
        self._order, self._spare = np.empty(len(bins), np.int32), np.empty(len(bins), np.int32)
        self._words = np.empty((len(bins), 2), np.int32)
        self._scratch = np.zeros(2 * bins.shape[1] * self._width, np.int64)

    def grow(
        self, scores: NDArray[np.float64], y: NDArray[np.float32], chances: NDArray[np.float64] | None = None
    ) -> Nodes:  # fmt: skip
        """The next tree, the same on all ranks; its values are added to the scores. Collective.

        `y`: numbers, or +1 and -1 of two classes. `chances`: for the softmax, the probabilities of y = 1.

        PeerLost, on all ranks: a rank has failed. The scores are as before.
        """
        growth = self._growth
        ranks, scale = self._begin(scores if chances is None else chances, y)
        tree, histograms = _Tree(growth.depth, len(y)), None
        level = _Level(np.zeros(1, np.int64), np.zeros(1, np.int64), tree.sums)
        for _ in range(growth.depth):
            histograms = self._histograms(tree, level, histograms, scale)
            splits = self._splits(tree, level, histograms, ranks, scale)
            children = self._divide(tree, level, splits, scale)
            may_split = (tree.sums[children, 1] >> scale.bits >= 2 * growth.min_rows).any(axis=1)
            if not may_split.any():
                break
            parents = np.flatnonzero(splits["gain"] > 0)[may_split]
            level = _Level(children[may_split].reshape(-1), parents, tree.sums)
        compiled.add_leaves(
            scores, self._order, tree.spans, tree.sums, tree.nodes.left, scale, growth.l2, growth.learning_rate,
            tree.nodes.value[: tree.count],
        )  # fmt: skip
        return tree.finished()

    def _begin(self, scores: Any, y: Any) -> tuple[list[int], Scale]:
        """Let all rows be in the root, and find their words. Return the ranks that grow the tree. Collective."""
        reports = _by_rank([compiled.largest_gradient(self._loss, scores, y), len(y)])
        if sum(rows for _, rows in reports.values()) != self._count:
            raise PeerLost(_missing(reports), "its rows are missing")
        bits = self._count.bit_length()
        _, exponent = math.frexp(max(largest for largest, _ in reports.values()))
        below = 63 - bits
        hessian = min(below - bits, WORD_BITS) + 2 * (self._loss != compiled.SQUARED)
        scale = Scale(2.0 ** (min(62 - bits, WORD_BITS) - exponent), 2.0**hessian, below)
        self._order[:] = np.arange(len(y))
        compiled.gradients(self._loss, scores, y, scale, self._words)
        return list(reports), scale

    def _histograms(self, tree: _Tree, level: _Level, above: Any, scale: Scale) -> NDArray[np.int64]:
        """Those of the nodes of the level, of this rank's features, over the rows of all ranks. Collective.

        `above`: those of the level above, from which the larger node of each pair is found.
        """
        counted = np.empty((len(self._widths), len(level.small), self._width, 2), np.int64)
        compiled.add_histograms(
            self._fours, self._order, tree.spans, level.small, self._words, 1 << scale.bits, counted, self._scratch
        )
        mine = reduce_rows(counted, "sum")
        if above is None:
            return np.ascontiguousarray(mine.swapaxes(0, 1))
        histograms = np.empty((len(level.numbers), *above.shape[1:]), np.int64)
        if len(mine) == above.shape[1]:  # else a rank has failed, as all will see
            compiled.complete(mine, above, level.parents, level.counted, histograms)
        return histograms

    def _splits(self, tree: _Tree, level: _Level, histograms: Any, ranks: list[int], scale: Scale) -> Any:
        """The best split of each node, as records of SPLIT; of gain 0 where there is none. Collective."""
        place, features = ranks.index(session.rank()), len(self._widths)
        first, last = place * features // len(ranks), (place + 1) * features // len(ranks)
        found, totals = np.zeros(len(level.numbers), compiled.SPLIT), np.zeros(2, np.int64)
        if first < last and histograms.shape[1] == last - first:  # else a rank has failed, as all will see
            totals = histograms[0, 0].sum(axis=0)
            if tree.count == 1:
                tree.sums[0] = totals
            compiled.best_splits(
                histograms, tree.sums[level.numbers], self._widths[first:last], self._binning.has_missing,
                scale, self._growth.l2, self._growth.min_rows, first, found,
            )  # fmt: skip
        # As text: a list of numbers takes far longer, and an array two exchanges.
        reports = _by_rank((totals.tobytes() + found.tobytes()).hex())
        if list(reports) != ranks:
            raise PeerLost(_missing(reports), "it failed as a tree grew")
        everything = [bytes.fromhex(text) for text in reports.values()]
        if tree.count == 1:  # a rank without features has no sums
            tree.sums[0] = max((np.frombuffer(one[:16], np.int64) for one in everything), key=lambda sums: sums[1])
        splits = np.array([np.frombuffer(one[16:], compiled.SPLIT) for one in everything])
        best = splits["gain"].argmax(axis=0)  # the first of equal ones
        return splits[best, np.arange(len(found))]

    def _divide(self, tree: _Tree, level: _Level, splits: Any, scale: Scale) -> NDArray[np.int64]:
        """Make two of each node that has a split, and of its rows on this rank. Return the pairs' numbers. Local."""
        parents, splits = level.numbers[splits["gain"] > 0], splits[splits["gain"] > 0]
        pairs = tree.count + np.arange(2 * len(parents)).reshape(-1, 2)
        tree.count += pairs.size
        tree.sums[pairs[:, 0]] = np.stack([splits["g"], splits["word"]], axis=1)
        tree.sums[pairs[:, 1]] = tree.sums[parents] - tree.sums[pairs[:, 0]]
        counts = tree.sums[pairs, 1] >> scale.bits
        # Where no value was missing, missing ones go the way of most rows; right, where both sides have as many.
        missing_left = np.where(splits["goes_left"] < 2, splits["goes_left"] == 1, counts[:, 0] > counts[:, 1])
        thresholds = self._binning.thresholds(splits["feature"], splits["bin"])
        made = splits["feature"], splits["bin"], thresholds, missing_left, pairs[:, 0], pairs[:, 1]
        nodes: Any = tree.nodes
        for array, values in zip(nodes, made, strict=False):
            array[parents] = values
        compiled.divide(
            self._columns, self._order, parents, nodes.feature, nodes.bin, nodes.missing_left, nodes.left, nodes.right,
            self._binning.missing, tree.spans, self._spare,
        )  # fmt: skip
        return pairs


def _by_rank(value: Any) -> dict[int, Any]:
    """The `value` of each live rank, by rank, ascending. Collective."""
    return {rank: one for rank, one in enumerate(allgather(value)) if one is not None}


def _missing(reports: Any) -> int:
    return min(set(range(session.size())) - set(reports), default=0)
