"""Grows a tree, level by level: ranks add up histograms of their rows, and split at the best of all features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from malt.models.common import gathered
from malt.models.trees import binning as bins_
from malt.models.trees import bundles, histograms, losses, splits
from malt.models.trees.binning import Binning
from malt.models.trees.bundles import Share, share_of
from malt.models.trees.ensemble import Nodes, leaves
from malt.models.trees.losses import Scale
from malt.session import session
from malt.session.collectives import reduce_rows

MOST_DEPTH: Final = 12
MOST_ROWS: Final = 1 << 24
"""Sums of more rows would leave too few bits for a Hessian."""
WORD_BITS: Final = 30
"""The bits of a gradient or Hessian of a row, at most."""
_LARGEST: Final = 1e300
"""Values of leaves are smaller: scores, the sums of those of all trees, are finite then, and so are gradients."""
SMALL_NBYTES: Final = 1 << 17
"""Histograms of a level that are no larger go from each rank to all others: an exchange instead of three."""


def compile_kernels() -> None:
    """Compile all kernels of boosted trees, or load them from numba's cache. Local."""
    for module in (bins_, bundles, histograms, losses, splits):
        module.kernel.compile()


@dataclass(frozen=True)
class Growth:
    """The parameters of the growth of trees."""

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

    def finished(self, binning: Binning) -> Nodes:
        """Its nodes."""
        nodes: Any = self.nodes
        made = Nodes(*(array[: self.count].copy() for array in nodes))
        inner = np.flatnonzero(made.left != np.arange(self.count))
        made.threshold[inner] = binning.thresholds(made.feature[inner], made.bin[inner])
        return made


class _Level:
    """The nodes of a level that may be split: the root, or pairs of children."""

    def __init__(self, numbers: NDArray[np.int64], parents: NDArray[np.int64], sums: NDArray[np.int64]) -> None:
        self.numbers, self.parents = numbers, parents
        """`parents`: the place in the level above, of each pair."""
        pairs = sums[numbers, 1].reshape(len(parents), -1)
        self.counted = pairs.argmin(axis=1)
        """Which of each pair is counted: the smaller. The other is what is left."""
        self.small = numbers.reshape(pairs.shape)[np.arange(len(parents)), self.counted]


class _Histograms(NamedTuple):
    """The histograms of the nodes of a level, over the rows of all ranks."""

    values: NDArray[np.int64]
    """Of shape (nodes, bins, 2)."""
    share: Share
    """The columns of these bins."""


class Grower:
    """Grows trees on this rank's rows, of which `bins` are given. `rows`: those of all ranks.

    The constructor is Collective.
    """

    def __init__(self, bins: NDArray[np.uint8], binning: Binning, growth: Growth, rows: int) -> None:
        self._binning, self._growth, self._count = binning, growth, rows
        self.layout = bundles.bundled(bins, binning)
        columns = bundles.encoded(bins, self.layout, binning.missing)
        self._fours, self._columns = columns.view(np.uint32), np.ascontiguousarray(columns.T)
        self._loss = losses.LOSSES[growth.loss]
        self._is_squared = growth.loss == "squared"
        self._order, self._spare = np.empty(len(bins), np.int32), np.empty(len(bins), np.int32)
        self._words = np.empty((len(bins), 2), np.int32)
        total = int(self.layout.starts[-1])
        # Columns that fill up fours have a bin each, which nobody reads.
        self._starts = np.append(self.layout.starts, total + np.arange(1, 4))
        self._scratch = np.zeros(2 * (total + 4), np.int64)
        self._all = share_of(self.layout, 0, 1)
        self._ranks: list[int] = []
        """The ranks that grow the tree, once that is known."""
        self._weights: NDArray[np.float64] | None = None
        self._heaviest = 1.0

    def weigh(self, weights: NDArray[np.float64], heaviest: float) -> None:
        """Give the rows of this rank weights. Local. `heaviest`: the largest weight of all ranks."""
        self._weights, self._heaviest = weights[:, np.newaxis] / heaviest, heaviest

    def grow(
        self, scores: NDArray[np.float64], y: NDArray[np.float32], chances: NDArray[np.float64] | None = None
    ) -> Nodes:  # fmt: skip
        """The next tree, the same on all ranks; its values are added to the scores. Collective.

        `y`: numbers, or +1 and -1 of two classes. `chances`: for the softmax, the probabilities of y = 1.

        PeerLost, on all ranks: a rank has failed. The scores are as before. FloatingPointError, on all ranks: the
        trees diverge.
        """
        growth = self._growth
        scale = self._begin(scores if chances is None else chances, y)
        tree, made = _Tree(growth.depth, len(y)), None
        level = _Level(np.zeros(1, np.int64), np.zeros(1, np.int64), tree.sums)
        for _ in range(growth.depth):
            made = self._histograms(tree, level, made, scale)
            found = self._splits(tree, level, made, scale)
            children = self._divide(tree, level, found, scale)
            may_split = (tree.sums[children, 1] >> scale.bits >= 2 * growth.min_rows).any(axis=1)
            if not may_split.any():
                break
            parents = np.flatnonzero(found["gain"] > 0)[may_split]
            level = _Level(children[may_split].reshape(-1), parents, tree.sums)
        splits.add_leaves(
            scores, self._order, tree.spans, tree.sums, tree.nodes.left, scale, growth.l2, growth.learning_rate,
            tree.nodes.value[: tree.count],
        )  # fmt: skip
        if not (np.abs(tree.nodes.value[: tree.count]) < _LARGEST).all():
            raise FloatingPointError(f"the trees diverge: the learning rate, {growth.learning_rate:g}, is too large")
        return tree.finished(self._binning)

    def _begin(self, scores: Any, y: Any) -> Scale:
        """Let all rows be in the root, and find their words. Collective."""
        self._ranks, largest = [], 1.0
        if self._is_squared or not self._is_small(1):
            reports = gathered([losses.largest_gradient(self._loss, scores, y), len(y)])
            self._check_rows(reports, sum(rows for _, rows in reports.values()))
            self._ranks, largest = list(reports), max(largest for largest, _ in reports.values())
        bits = self._count.bit_length()
        _, exponent = math.frexp(largest)
        below = 63 - bits
        hessian = min(below - bits, WORD_BITS) + 2 * (not self._is_squared)
        scale = Scale(2.0 ** (min(62 - bits, WORD_BITS) - exponent), 2.0**hessian, below)
        self._order[:] = np.arange(len(y))
        losses.gradients(self._loss, scores, y, scale, self._words)
        if self._weights is None:
            return scale
        np.rint(self._words * self._weights, out=self._words, casting="unsafe")
        return scale._replace(gradient=scale.gradient / self._heaviest, hessian=scale.hessian / self._heaviest)

    def _is_small(self, slots: int) -> bool:
        """Return whether so many histograms of a level go from each rank to all others."""
        return 16 * slots * self._all.bins * (session.size() - 1) <= SMALL_NBYTES

    def _check_rows(self, reports: Any, rows: int) -> None:
        if rows != self._count:
            raise PeerLost(_missing(reports), "its rows are missing")

    def _histograms(self, tree: _Tree, level: _Level, above: _Histograms | None, scale: Scale) -> _Histograms:
        """Those of the nodes of the level, of the columns that this rank splits at. Collective.

        `above`: those of the level above, from which the larger node of each pair is found.
        """
        slots = len(level.small)
        if self._is_small(slots) and (above is None or above.share is self._all):
            share, counted = self._all, self._summed(tree, level, scale)
        else:
            share, counted = self._reduced(tree, level, scale)
        if above is None:
            values = counted.reshape(1, -1, 2)
            if share.columns:  # a rank without columns has no sums
                tree.sums[0] = values[0, : share.starts[1]].sum(axis=0)
            return _Histograms(values, share)
        values, before = np.empty((len(level.numbers), share.bins, 2), np.int64), above.values
        if above.share is self._all and share is not self._all:
            before = np.ascontiguousarray(before[:, share.origin : share.origin + share.bins])
        histograms.complete(counted, share.starts, before, level.parents, level.counted, values)
        return _Histograms(values, share)

    def _counted(self, tree: _Tree, level: _Level, scale: Scale, bases: Any, bins: int) -> NDArray[np.int64]:
        """The histograms of this rank's rows, each column where `bases` says. Local."""
        counted = np.zeros(2 * bins * len(level.small), np.int64)
        histograms.add_histograms(
            self._fours, self._order, tree.spans, level.small, self._words, 1 << scale.bits, self._starts, bases,
            counted, self._scratch,
        )  # fmt: skip
        return counted

    def _summed(self, tree: _Tree, level: _Level, scale: Scale) -> NDArray[np.int64]:
        """All columns, which all ranks add up. Collective."""
        parts = gathered(self._counted(tree, level, scale, self.layout.starts[:-1], self._all.bins))
        if tree.count == 1 and not self._ranks:
            whole = sum(part[: 2 * self._all.starts[1]].reshape(-1, 2)[:, 1].sum() for part in parts.values())
            self._check_rows(parts, int(whole) >> scale.bits)
            self._ranks = list(parts)
        self._check_ranks(parts)
        first, *others = parts.values()
        for part in others:
            first += part
        return np.asarray(first)

    def _reduced(self, tree: _Tree, level: _Level, scale: Scale) -> tuple[Share, NDArray[np.int64]]:
        """The columns of this rank, over the rows of all. Collective."""
        count = len(self._ranks)
        shares = [share_of(self.layout, place, count) for place in range(count)]
        longest = max(share.bins for share in shares)
        bases = np.concatenate([place * longest + share.starts[:-1] for place, share in enumerate(shares)])
        counted = self._counted(tree, level, scale, bases, count * longest)
        mine = reduce_rows(counted.reshape(count, -1), "sum").reshape(-1)
        share = shares[self._ranks.index(session.rank())]
        length = 2 * share.bins * len(level.small)
        # Where a rank has failed rows are not by rank, as all will see: nothing then comes of them.
        return share, mine[:length] if len(mine) >= length else np.zeros(length, np.int64)

    def _splits(self, tree: _Tree, level: _Level, made: _Histograms, scale: Scale) -> Any:
        """The best split of each node, as records of SPLIT; of gain 0 where there is none. Collective."""
        share, growth = made.share, self._growth
        found = np.zeros(len(level.numbers), splits.SPLIT)
        splits.best_splits(
            made.values, tree.sums[level.numbers], self.layout, share.features, share.origin,
            self._binning.has_missing, scale, growth.l2, growth.min_rows, found,
        )  # fmt: skip
        if share is self._all:
            return found
        reports = gathered(np.frombuffer(tree.sums[0].tobytes() + found.tobytes(), np.uint8))
        self._check_ranks(reports)
        sums = [report[:16].view(np.int64) for report in reports.values()]
        tree.sums[0] = max(sums, key=lambda one: one[1])  # a rank without columns has none
        every = np.array([report[16:].view(splits.SPLIT) for report in reports.values()])
        best = np.lexsort((every["feature"], -every["gain"]), axis=0)[0]  # of equal ones the first feature
        return every[best, np.arange(len(found))]

    def _check_ranks(self, reports: Any) -> None:
        if list(reports) != self._ranks:
            raise PeerLost(_missing(reports), "it failed as a tree grew")

    def _divide(self, tree: _Tree, level: _Level, found: Any, scale: Scale) -> NDArray[np.int64]:
        """Make two of each node that has a split, and of its rows on this rank. Return the pairs' numbers. Local."""
        nodes, first = tree.nodes, tree.count
        tree.count = splits.divide(
            self._columns, self._order, self._spare, level.numbers, found, self.layout, self._binning.has_missing,
            scale.bits, nodes.feature, nodes.bin, nodes.missing_left, nodes.left, nodes.right, tree.sums, tree.spans,
            first,
        )  # fmt: skip
        return np.arange(first, tree.count).reshape(-1, 2)


def _missing(reports: Any) -> int:
    return min(set(range(session.size())) - set(reports), default=0)
