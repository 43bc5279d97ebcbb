"""How a tree grows, level by level: ranks add up histograms of their rows, and each splits at its own features."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import PeerLost
from malt.kernels.trees import compiled
from malt.kernels.trees.binning import MOST_BINS, Binning
from malt.kernels.trees.compiled import Scale
from malt.kernels.trees.ensemble import Nodes, growing, joined
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


@dataclass
class _Node:
    """A node that may be split."""

    number: int
    first: int
    last: int
    """The rows of this rank that are in it: order[first:last]."""
    g: int
    word: int
    """The sums of words of the rows of all ranks."""
    histogram: Any = field(default=None)
    """That of this rank's features, over the rows of all ranks."""


class Grower:
    """Grows trees on this rank's rows, of which `bins` are given. `rows`: those of all ranks."""

    def __init__(self, bins: NDArray[np.uint8], binning: Binning, growth: Growth, rows: int) -> None:
        self._binning, self._growth, self._count = binning, growth, rows
        self._fours, self._columns = bins.view(np.uint32), np.ascontiguousarray(bins.T)
        self._loss = compiled.LOSSES[growth.loss]
        self._order, self._spare = np.empty(len(bins), np.int32), np.empty(len(bins), np.int32)
        self._words = np.empty((len(bins), 2), np.int32)
        self._scratch = np.zeros(2 * bins.shape[1] * binning.width, np.int64)

    def grow(self, scores: NDArray[np.float64], y: NDArray[np.float32]) -> Nodes:
        """The next tree, the same on all ranks; its values are added to the scores. Collective.

        PeerLost, on all ranks: a rank has failed. The scores are as before.
        """
        ranks, scale = self._begin(scores, y)
        leaves = growing()
        tree = [next(leaves)]
        level: list[tuple[_Node, ...]] = [(_Node(0, 0, len(y), 0, 0),)]
        ended: list[_Node] = []
        for depth in range(self._growth.depth):
            nodes = self._with_histograms(level, scale)
            splits = self._splits(nodes, ranks, scale, is_root=depth == 0)
            level = []
            for node, split in zip(nodes, splits, strict=True):
                if split is None:
                    ended.append(node)
                    continue
                pair = self._divide(node, split, tree, leaves, scale)
                level += [pair] if depth + 1 < self._growth.depth and self._may_split(pair, scale) else []
                ended += [] if level and level[-1] is pair else pair
            if not level:
                break
        for node in ended:
            value = self._growth.learning_rate * compiled.score(node.g, node.word, scale, self._growth.l2)
            tree[node.number]["value"] = value
            compiled.add_value(scores, self._order, node.first, node.last, value)
        return joined(tree)

    def _begin(self, scores: Any, y: Any) -> tuple[list[int], Scale]:
        """Let all rows be in the root, and find their words. Return the ranks that grow the tree. Collective."""
        reports = _by_rank([compiled.largest_gradient(self._loss, scores, y), len(y)])
        if sum(rows for _, rows in reports.values()) != self._count:
            raise PeerLost(_missing(reports), "its rows are missing")
        bits = self._count.bit_length()
        _, exponent = math.frexp(max(largest for largest, _ in reports.values()))
        below = 63 - bits
        hessian = min(below - bits, WORD_BITS) + 2 * (self._loss == compiled.LOGISTIC)
        scale = Scale(2.0 ** (min(62 - bits, WORD_BITS) - exponent), 2.0**hessian, below)
        self._order[:] = np.arange(len(y))
        compiled.gradients(self._loss, scores, y, scale, self._words)
        return list(reports), scale

    def _with_histograms(self, level: list[tuple[_Node, ...]], scale: Scale) -> list[_Node]:
        """The nodes of the level, with histograms. Of a pair the smaller is counted, the other is what is left."""
        small = [min(pair, key=lambda node: node.word) for pair in level]
        binning, one = self._binning, 1 << scale.bits
        counted = np.empty((len(binning.widths), len(small), binning.width, 2), np.int64)
        for slot, node in enumerate(small):
            compiled.add_histogram(
                self._fours, self._order, node.first, node.last, self._words, one, counted, slot, self._scratch
            )
        mine = reduce_rows(counted, "sum")
        for slot, (node, pair) in enumerate(zip(small, level, strict=True)):
            node.histogram, whole = mine[:, slot].copy(), node.histogram
            for other in pair:
                if other is not node and whole.shape == node.histogram.shape:
                    other.histogram = whole - node.histogram
        return [node for pair in level for node in pair]

    def _splits(self, nodes: list[_Node], ranks: list[int], scale: Scale, is_root: bool) -> list[Any]:
        """The best split of each node: gain, feature, bin, missing_left, the words of its left child. Collective."""
        place, features = ranks.index(session.rank()), len(self._binning.widths)
        first, last = place * features // len(ranks), (place + 1) * features // len(ranks)
        gains, found = np.zeros(len(nodes)), np.zeros((len(nodes), 5), np.int64)
        totals: list[int] = []
        histograms = np.array([node.histogram for node in nodes])
        if first < last and histograms.shape[1] == last - first:  # else a rank has failed, as all will see
            if is_root:
                totals = histograms[0, 0].sum(axis=0).tolist()
                nodes[0].g, nodes[0].word = totals
            words = np.array([(node.g, node.word) for node in nodes], np.int64)
            compiled.best_splits(
                histograms, words, self._binning.widths[first:last], self._binning.has_missing, scale,
                self._growth.l2, self._growth.min_rows, gains, found,
            )  # fmt: skip
            found[:, 0] += first
        reports = _by_rank([totals, gains.tolist(), found.tolist()])
        if list(reports) != ranks:
            raise PeerLost(_missing(reports), "it failed as a tree grew")
        if is_root:
            nodes[0].g, nodes[0].word = next(sums for sums, _, _ in reports.values() if sums)
        best = np.argmax([theirs for _, theirs, _ in reports.values()], axis=0)  # the first of equal ones
        everyone = list(reports.values())
        return [everyone[rank][2][place] if everyone[rank][1][place] > 0 else None for place, rank in enumerate(best)]

    def _divide(self, node: _Node, split: list[int], tree: list[Any], leaves: Any, scale: Scale) -> tuple[_Node, _Node]:
        """Make two of a node, and of its rows on this rank. The larger has its histogram. Local."""
        feature, bin_, goes_left, g, word = split
        rest = node.word - word
        # Where no value was missing, missing ones go the way of most rows; right, where both sides have as many.
        missing_left = bool(goes_left) if goes_left < 2 else word >> scale.bits > rest >> scale.bits
        bins = self._columns[feature]
        middle = compiled.partition(
            bins, self._order, node.first, node.last, self._left_bins(bin_, missing_left), self._spare
        )
        left, right = len(tree), len(tree) + 1
        tree += [next(leaves), next(leaves)]
        tree[node.number] |= dict(
            feature=feature, bin=bin_, threshold=self._binning.threshold(feature, bin_), missing_left=missing_left,
            left=left, right=right,
        )  # fmt: skip
        whole = node.histogram
        return (
            _Node(left, node.first, middle, g, word, whole), _Node(right, middle, node.last, node.g - g, rest, whole)
        )  # fmt: skip

    def _left_bins(self, bin_: int, missing_left: bool) -> NDArray[np.bool_]:
        """Which bins go left."""
        goes_left = np.arange(MOST_BINS + 1) <= bin_
        if self._binning.has_missing:
            goes_left[self._binning.missing] = missing_left
        return goes_left

    def _may_split(self, pair: tuple[_Node, _Node], scale: Scale) -> bool:
        """Whether one of them has the rows for two leaves."""
        return any(node.word >> scale.bits >= 2 * self._growth.min_rows for node in pair)


def _by_rank(value: Any) -> dict[int, Any]:
    """The `value` of each live rank, by rank, ascending. Collective."""
    return {rank: one for rank, one in enumerate(allgather(value)) if one is not None}


def _missing(reports: Any) -> int:
    return min(set(range(session.size())) - set(reports), default=0)
