"""All of gradient-boosted trees that is compiled. The kernels release the GIL; numba's cache looks at one file's time.

A row has two words of 32 bits: its gradient and its Hessian, in fixed point. Sums have two words of 64 bits: that of
gradients, and the count of rows above that of Hessians. They are the same in any order. A histogram is (features, bins,
2).
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic

from malt.kernels import Kernels
from malt.kernels.prefetching import prefetched

LOGISTIC, SQUARED, SOFTMAX = 0, 1, 2
LOSSES: Final = {"logistic": LOGISTIC, "squared": SQUARED, "softmax": SOFTMAX}
_LEAST_HESSIAN: Final = 1e-3
_TINY: Final = 1e-15
"""As in scikit-learn: the least sum of Hessians of a leaf, and what is added where it divides."""
_BLOCK_ROWS: Final = 512
"""Rows whose bins and words are gathered at once."""
_AHEAD: Final = 48
"""A row is prefetched so many rows early: 1.5 to 2 times as fast where a node has a tenth of the rows."""


def _array(kind: Any, dimensions: int = 1, readonly: bool = False) -> Any:
    return types.Array(kind, dimensions, "C", readonly=readonly)


_F8, _I8_2, _I8_4, _I4, _U1_2 = (
    _array(types.f8), _array(types.i8, 2), _array(types.i8, 4), _array(types.i4), _array(types.u1, 2),
)  # fmt: skip
_READ_F4, _READ_I4, _READ_I8 = (_array(kind, readonly=True) for kind in (types.f4, types.i4, types.i8))


class Scale(NamedTuple):
    """How numbers become words: the same on all ranks."""

    gradient: float
    """The words of a gradient of 1: a power of two."""
    hessian: float
    bits: int
    """The bits below the count."""


SPLIT: Final = np.dtype([(name, "f8" if name == "gain" else "i8") for name in (
    "gain", "feature", "bin", "goes_left", "g", "word"
)])  # fmt: skip
"""A split of a node, and the sums of words of its left child, which has the bins up to `bin`. `goes_left`: whether
missing values go left; 2: there are none."""

_SPLIT: Final[Any] = from_dtype(SPLIT)
_SCALE: Final[Any] = cast(Any, types).NamedTuple((types.f8, types.f8, types.i8), Scale)


kernel = Kernels()
compile_kernels = kernel.compile


@kernel(_READ_F4, _READ_I4, _READ_I8, _F8, _READ_I8, _array(types.u1), _U1_2)
def fill_bins(values: Any, columns: Any, starts: Any, edges: Any, ends: Any, empty: Any, bins: Any) -> None:
    """bins[i, f] = the number of edges of feature f below the value of row i; empty[f] where the row has none.

    The edges of feature f are edges[ends[f]:ends[f + 1]].
    """
    for i in range(starts.size - 1):
        bins[i, : empty.size] = empty
        for j in range(starts[i], starts[i + 1]):
            f = columns[j]
            if f >= empty.size:  # it is not in the training rows
                continue
            low, high, value = ends[f], ends[f + 1], np.float64(values[j])
            while low < high:
                middle = (low + high) >> 1
                if edges[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            bins[i, f] = low - ends[f]


@kernel(types.i8, _F8, _READ_F4)
def largest_gradient(loss: Any, scores: Any, y: Any) -> float:
    """The largest |gradient|: 1 where it is a difference of probabilities."""
    if loss != SQUARED:
        return 1.0
    largest = 0.0
    for i in range(y.size):
        largest = max(largest, abs(scores[i] - y[i]))
    return largest


@kernel(types.i8, _F8, _READ_F4, _SCALE, _array(types.i4, 2))
def gradients(loss: Any, scores: Any, y: Any, scale: Any, words: Any) -> None:
    """The words of each row.

    logistic: g = p - (y + 1) / 2, h = p (1 - p), p = 1 / (1 + exp(-score))    squared: g = score - y, h = 1
    softmax: as logistic, of the probability p of the class, which is given instead of the score
    """
    for i in range(y.size):
        if loss != SQUARED:
            p = 1.0 / (1.0 + math.exp(-scores[i])) if loss == LOGISTIC else scores[i]
            words[i, 0] = np.int32(np.rint((p - 0.5 * (y[i] + 1.0)) * scale.gradient))
            words[i, 1] = np.int32(np.rint(p * (1.0 - p) * scale.hessian))
        else:
            words[i, 0] = np.int32(np.rint((scores[i] - y[i]) * scale.gradient))
            words[i, 1] = np.int32(scale.hessian)


@kernel(_array(types.f8, 2))
def softmax(scores: Any) -> Any:
    """exp(scores[k, i]) / sum over k of exp(scores[k, i]): the probability of class k in row i."""
    chances = np.empty_like(scores)
    for i in range(scores.shape[1]):
        most, total = scores[0, i], 0.0
        for k in range(1, scores.shape[0]):
            most = max(most, scores[k, i])
        for k in range(scores.shape[0]):
            chances[k, i] = math.exp(scores[k, i] - most)
            total += chances[k, i]
        for k in range(scores.shape[0]):
            chances[k, i] /= total
    return chances


@kernel(types.i8, _F8, _READ_F4)
def total_loss(loss: Any, scores: Any, y: Any) -> float:
    """The sum of log(1 + exp(-y score)), or of (score - y)^2."""
    total = 0.0
    for i in range(y.size):
        z = y[i] * scores[i]
        if loss == SQUARED:
            total += (scores[i] - y[i]) ** 2
        elif z > 0:
            total += math.log1p(math.exp(-z))
        else:
            total += math.log1p(math.exp(z)) - z
    return total


def _added_pair(_context: Any, sums: Any, place: Any, pairs: Any, row: Any) -> Any:
    """sums[place:place + 2] += pairs[row:row + 2], in one instruction: Numba adds them one by one."""
    internals: Any = cgutils
    two_words = internals.ir.VectorType(internals.ir.IntType(64), 2).as_pointer()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = (context.make_array(signature.args[at])(context, builder, arguments[at]) for at in (0, 2))
        places = (builder.gep(array.data, [arguments[at]]) for at, array in zip((1, 3), arrays, strict=True))
        mine, added = (builder.bitcast(place, two_words) for place in places)
        total = builder.add(builder.load(mine, align=8), builder.load(added, align=8))
        builder.store(total, mine, align=8)
        return context.get_dummy_value()

    return types.void(sums, place, pairs, row), generate


_add_pair: Final[Any] = intrinsic(_added_pair)


def _prefetch_item(_context: Any, table: Any, row: Any, column: Any) -> Any:
    """Prefetch the memory of table[row, column] for reading."""
    return types.void(table, row, column), prefetched(0)


_prefetch: Final[Any] = intrinsic(_prefetch_item)


@kernel(
    _array(types.u4, 2), _I4, _I8_2, _READ_I8, _array(types.i4, 2), types.i8, _I8_4, _array(types.i8)
)  # fmt: skip
def add_histograms(
    bins: Any, order: Any, spans: Any, nodes: Any, words: Any, one: Any, out: Any, scratch: Any
) -> None:  # fmt: skip
    """out[:, slot] = the histogram of the rows of nodes[slot]. `scratch` is zeros, and is zeros again.

    `spans`: node n has the rows order[spans[n, 0]:spans[n, 1]]. `bins`: of four features each. `one`: a count of 1.
    """
    two, place = np.uint64(2), np.uint64(0)
    for slot in range(nodes.size):
        _add_rows(
            bins, order, spans[nodes[slot], 0], spans[nodes[slot], 1], words, one, np.uint64(out.shape[2]), scratch
        )
        place = np.uint64(0)
        for f in range(out.shape[0]):
            for b in range(out.shape[2]):
                out[f, slot, b, 0], out[f, slot, b, 1] = scratch[place], scratch[place + np.uint64(1)]
                place += two
        scratch[:] = 0


@kernel()
def _add_rows(
    bins: Any, order: Any, first: Any, last: Any, words: Any, one: Any, width: Any, sums: Any
) -> None:  # fmt: skip
    """Add rows to a histogram.

    Of a block of rows, bins and words are gathered first, for which the rows need not wait for each other. The
    histograms of four features then stay in the cache.
    """
    groups, two, byte = np.uint64(bins.shape[1]), np.uint64(2), np.uint64(255)
    block, pairs = np.empty((bins.shape[1], _BLOCK_ROWS), np.uint32), np.empty(2 * _BLOCK_ROWS, np.int64)
    for start in range(np.uint64(first), np.uint64(last), np.uint64(_BLOCK_ROWS)):
        rows = min(np.uint64(_BLOCK_ROWS), np.uint64(last) - start)
        for j in range(rows):
            ahead = np.uint64(order[min(start + j + np.uint64(_AHEAD), np.uint64(last) - np.uint64(1))])
            _prefetch(bins, ahead, np.uint64(0))
            _prefetch(bins, ahead, groups - np.uint64(1))
            _prefetch(words, ahead, np.uint64(0))
            i = np.uint64(order[start + j])
            pairs[two * j], pairs[two * j + np.uint64(1)] = words[i, 0], one + words[i, 1]
            for group in range(groups):
                block[group, j] = bins[i, group]
        base = np.uint64(0)
        for group in range(groups):
            for j in range(rows):
                four = np.uint64(block[group, j])
                place = base
                for _ in range(4):
                    _add_pair(sums, (place + (four & byte)) * two, pairs, two * j)
                    four >>= np.uint64(8)
                    place += width
            base += np.uint64(4) * width


@kernel(_I8_4, _I8_4, _READ_I8, _READ_I8, _I8_4)
def complete(counted: Any, above: Any, parents: Any, places: Any, out: Any) -> None:
    """out = the histograms of pairs of nodes, (nodes, features, bins, 2): of each pair one is counted.

    The other is what is left.

    `counted`: (features, pairs, bins, 2). `above`: those of the level above, `parents`: the places of the pairs in it.
    `places`: which of a pair is counted, 0 or 1.
    """
    for pair in range(parents.size):
        whole, place = above[parents[pair]], 2 * pair + places[pair]
        mine, other = out[place], out[4 * pair + 1 - place]
        for f in range(whole.shape[0]):
            for b in range(whole.shape[1]):
                for k in range(2):
                    mine[f, b, k] = counted[f, pair, b, k]
                    other[f, b, k] = whole[f, b, k] - counted[f, pair, b, k]


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


@kernel(_I8_4, _I8_2, _array(types.i8), types.b1, _SCALE, types.f8, types.i8, types.i8, _array(_SPLIT))
def best_splits(
    histograms: Any, totals: Any, widths: Any, has_missing: Any, scale: Any, l2: Any, least: Any, first: Any, found: Any
) -> None:  # fmt: skip
    """The best split of each node among these features: the first of equal ones; as it was where there is none.

    `histograms`: (nodes, features, bins, 2), the last bin of which is that of missing values. `totals`: the sums of
    words of each node. `widths`: the bins of each feature. `first`: the number of the first feature. found[node]: a
    SPLIT.
    """
    for node in range(found.size):
        g, w = totals[node, 0], totals[node, 1]
        rows, before, most = _count(w, scale.bits), _gained(g, w, scale, l2), found[node].gain
        for f in range(widths.size):
            bins = histograms[node, f]
            missing = _count(bins[-1, 1], scale.bits) if has_missing else 0
            for goes_left in range(2 if missing else 1):
                left_g, left_w = np.int64(0), np.int64(0)
                if goes_left:
                    left_g, left_w = bins[-1, 0], bins[-1, 1]
                # All values may go left where missing ones go right.
                for b in range(widths[f] if missing and not goes_left else widths[f] - 1):
                    left_g += bins[b, 0]
                    left_w += bins[b, 1]
                    left_rows = _count(left_w, scale.bits)
                    if left_rows < least or _hessian(left_w, scale) < _LEAST_HESSIAN:
                        continue
                    if rows - left_rows < least or _hessian(w - left_w, scale) < _LEAST_HESSIAN:
                        break
                    gain = _gained(left_g, left_w, scale, l2) + _gained(g - left_g, w - left_w, scale, l2) - before
                    if gain > most:
                        split = found[node]
                        most = split.gain = gain
                        split.feature, split.bin, split.goes_left = first + f, b, goes_left if missing else 2
                        split.g, split.word = left_g, left_w


@kernel(
    _U1_2, _I4, _READ_I8, _I4, _I4, _array(types.b1), _I4, _I4, types.i8, _I8_2, _I4
)  # fmt: skip
def divide(
    columns: Any, order: Any, nodes: Any, feature: Any, bin_: Any, missing_left: Any, left: Any, right: Any,
    missing: Any, spans: Any, spare: Any,
) -> None:  # fmt: skip
    """Move the rows of each of `nodes` that go left before the others, each in their order; they are its children's.

    `columns`: the bins of all rows, by feature. `missing`: the bin of missing values.
    """
    goes_left = np.empty(256, np.uint8)
    for node in nodes:
        for b in range(256):
            goes_left[b] = b <= bin_[node]
        if missing >= 0:
            goes_left[missing] = missing_left[node]
        first, last = spans[node, 0], spans[node, 1]
        middle = _partition(columns[feature[node]], order, first, last, goes_left, spare)
        spans[left[node], 0], spans[left[node], 1] = first, middle
        spans[right[node], 0], spans[right[node], 1] = middle, last


@kernel()
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


@kernel(_F8, _I4, _I8_2, _I8_2, _I4, _SCALE, types.f8, types.f8, _F8)
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
    _U1_2, _READ_I4, _READ_I4, _array(types.b1, readonly=True), _READ_I4, _READ_I4, _array(types.f8, readonly=True),
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
