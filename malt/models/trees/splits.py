"""Splits: the best one of a node, the rows and the nodes that it makes, leaves. Compiled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from malt.kernels import Kernels
from malt.kernels.compiler import from_dtype, types
from malt.models.trees import interpreted
from malt.models.trees.bundles import LAYOUT
from malt.models.trees.losses import SCALE, array_of

_LEAST_HESSIAN: Final = 1e-3
_TINY: Final = 1e-15
"""As in scikit-learn: the least sum of Hessians of a leaf, and what is added where it divides."""

_F8, _I8_2, _I8_3, _I4, _U1_2, _B1 = (
    array_of(types.f8), array_of(types.i8, 2), array_of(types.i8, 3), array_of(types.i4), array_of(types.u1, 2),
    array_of(types.b1),
)  # fmt: skip
_READ_I4, _READ_I8 = (array_of(kind, readonly=True) for kind in (types.i4, types.i8))

_FIELDS: Final = [(name, "f8" if name == "gain" else "i8") for name in (
    "gain", "feature", "bin", "goes_left", "g", "word"
)]  # fmt: skip
SPLIT: Final = np.dtype((np.record, _FIELDS))
"""A split of a node, and the sums of words of its left child, which has the bins up to `bin`. `goes_left`: whether
missing values go left; 2: there are none."""

_SPLIT: Final[Any] = from_dtype(np.dtype(_FIELDS))

kernel = Kernels(slower=300)


@kernel()
def _count(word: Any, bits: Any) -> Any:
    return word >> bits


@kernel()
def _hessian(word: Any, scale: Any) -> Any:
    return np.float64(word & ((np.int64(1) << scale.bits) - 1)) / scale.hessian


@kernel()
def score(g: Any, word: Any, scale: Any, l2: Any) -> Any:
    """The value of a leaf that minimizes its loss, of these sums of words, before the learning rate."""
    return -(np.float64(g) / scale.gradient) / (_hessian(word, scale) + l2 + _TINY)


@kernel()
def _gained(g: Any, word: Any, scale: Any, l2: Any) -> Any:
    return -(np.float64(g) / scale.gradient) * score(g, word, scale, l2)


@kernel(
    _I8_3, _I8_2, LAYOUT, _READ_I8, types.i8, types.b1, SCALE, types.f8, types.i8, array_of(_SPLIT)
)  # fmt: skip
def best_splits(
    histograms: Any, totals: Any, layout: Any, features: Any, origin: Any, has_missing: Any, scale: Any, l2: Any,
    least: Any, found: Any,
) -> None:  # fmt: skip
    """The best split of each node among these features: the first of equal ones; as it was where there is none.

    `histograms`: (nodes, bins, 2), of the bins from `origin` on. `totals`: the sums of words of each node. `features`:
    ascending. found[node]: a SPLIT.
    """
    for node in range(found.size):
        g, w = totals[node, 0], totals[node, 1]
        rows, before, most = _count(w, scale.bits), _gained(g, w, scale, l2), found[node].gain
        for f in features:
            width, common = layout.widths[f], layout.common[f]
            first = layout.starts[layout.column[f]] - origin + layout.shift[f]
            bins = histograms[node, first : first + width + has_missing - (common >= 0)]
            rest_g, rest_w = _rest(bins, g, w) if common >= 0 else (np.int64(0), np.int64(0))
            missing_g, missing_w = np.int64(0), np.int64(0)
            if has_missing:
                missing_g, missing_w = (rest_g, rest_w) if common == width else (bins[-1, 0], bins[-1, 1])
            missing = _count(missing_w, scale.bits)
            for goes_left in range(2 if missing else 1):
                left_g, left_w = np.int64(0), np.int64(0)
                if goes_left:
                    left_g, left_w = missing_g, missing_w
                # All values may go left where missing ones go right.
                for b in range(width if missing and not goes_left else width - 1):
                    if b == common:
                        left_g += rest_g
                        left_w += rest_w
                    else:
                        stored = b - (0 <= common < b)
                        left_g += bins[stored, 0]
                        left_w += bins[stored, 1]
                    left_rows = _count(left_w, scale.bits)
                    if left_rows < least or _hessian(left_w, scale) < _LEAST_HESSIAN:
                        continue
                    if rows - left_rows < least or _hessian(w - left_w, scale) < _LEAST_HESSIAN:
                        break
                    gain = _gained(left_g, left_w, scale, l2) + _gained(g - left_g, w - left_w, scale, l2) - before
                    if gain > most:
                        split = found[node]
                        most = split.gain = gain
                        split.feature, split.bin, split.goes_left = f, b, goes_left if missing else 2
                        split.g, split.word = left_g, left_w


@kernel()
def _rest(bins: Any, g: Any, w: Any) -> Any:
    """The sums of the common bin: those of the node, g and w, less those of the other bins."""
    for b in range(bins.shape[0]):
        g -= bins[b, 0]
        w -= bins[b, 1]
    return g, w


@kernel(
    _U1_2, _I4, _I4, _READ_I8, array_of(_SPLIT), LAYOUT, types.b1, types.i8, _I4, _I4, _B1, _I4, _I4, _I8_2, _I8_2,
    types.i8,
)  # fmt: skip
def divide(
    columns: Any, order: Any, spare: Any, numbers: Any, splits: Any, layout: Any, has_missing: Any, bits: Any,
    feature: Any, bin_: Any, missing_left: Any, left: Any, right: Any, sums: Any, spans: Any, count: Any,
) -> Any:  # fmt: skip
    """Make two of each of the nodes `numbers` whose split gains, from node `count` on; return how many nodes there are.

    Rows that go left are moved before the others, each in their order. `columns`: those of all rows, by column. `bits`:
    those below a count.
    """
    goes_left = np.empty(256, np.uint8)
    for k in range(numbers.size):
        node, split = numbers[k], splits[k]
        if not split.gain > 0:
            continue
        left[node], right[node], feature[node], bin_[node] = count, count + 1, split.feature, split.bin
        sums[count, 0], sums[count, 1] = split.g, split.word
        sums[count + 1, 0], sums[count + 1, 1] = sums[node, 0] - split.g, sums[node, 1] - split.word
        # Where no value was missing, missing ones go the way of most rows; right, where both sides have as many.
        most_left = _count(split.word, bits) > _count(sums[count + 1, 1], bits)
        missing_left[node] = most_left if split.goes_left == 2 else split.goes_left == 1
        _find_ways(layout, has_missing, split.feature, split.bin, missing_left[node], goes_left)
        first, last = spans[node, 0], spans[node, 1]
        middle = _partition(columns[layout.column[split.feature]], order, first, last, goes_left, spare)
        spans[count, 0], spans[count, 1] = first, middle
        spans[count + 1, 0], spans[count + 1, 1] = middle, last
        count += 2
    return count


@kernel()
def _find_ways(layout: Any, has_missing: Any, feature: Any, bin_: Any, missing_left: Any, goes_left: Any) -> None:
    """goes_left[value of the feature's column] = whether rows with it go left, up to bin `bin_`."""
    width, common, shift = layout.widths[feature], layout.common[feature], layout.shift[feature]
    goes_left[:] = missing_left if common == width else common <= bin_
    for b in range(width + has_missing):
        if b != common:
            goes_left[shift + b - (0 <= common < b)] = missing_left if b == width else b <= bin_


@kernel(interpreted=interpreted.partition)
def _partition(bins: Any, order: Any, first: Any, last: Any, goes_left: Any, spare: Any) -> Any:
    """Move rows that go left before the others, each in their order. Return where the others begin."""
    left, right = np.uint64(first), np.uint64(0)
    for j in range(np.uint64(first), np.uint64(last)):
        i = order[j]
        order[left] = spare[right] = i  # one of them counts: a branch would be mispredicted half of the time
        goes = np.uint64(goes_left[bins[np.uint64(i)]])
        left += goes
        right += np.uint64(1) - goes
    order[left:last] = spare[:right]
    return left


@kernel(_F8, _I4, _I8_2, _I8_2, _I4, SCALE, types.f8, types.f8, _F8)
def add_leaves(
    scores: Any, order: Any, spans: Any, sums: Any, left: Any, scale: Any, l2: Any, rate: Any, values: Any
) -> None:  # fmt: skip
    """Find the values of leaves, `rate` times their scores, and add them to the scores of their rows."""
    for node in range(values.size):
        if left[node] == node:
            values[node] = rate * score(sums[node, 0], sums[node, 1], scale, l2)
            for j in range(spans[node, 0], spans[node, 1]):
                scores[order[j]] += values[node]


@kernel(
    _U1_2, _READ_I4, _READ_I4, array_of(types.b1, readonly=True), _READ_I4, _READ_I4, array_of(types.f8, readonly=True),
    types.i8, types.i8, _F8,
)  # fmt: skip
def add_tree(
    bins: Any, feature: Any, bin_: Any, missing_left: Any, left: Any, right: Any, value: Any, root: Any, missing: Any,
    scores: Any,
) -> None:  # fmt: skip
    """Add to the scores of all rows what the tree with this root says. A leaf is its own left child."""
    for i in range(scores.size):
        node = root
        while left[node] != node:
            b = bins[i, feature[node]]
            goes_left = missing_left[node] if b == missing else b <= bin_[node]
            node = left[node] if goes_left else right[node]
        scores[i] += value[node]
