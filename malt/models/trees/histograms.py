"""Histograms of nodes: of the rows of a node, and of the larger of two children, which is what is left. Compiled.

A row has two words of 32 bits: its gradient and its Hessian, in fixed point. Sums have two words of 64 bits: that of
gradients, and the count of rows above that of Hessians. They are the same in any order.

A histogram has the bins of all columns, one column after the other.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from malt.kernels import Kernels
from malt.kernels.compiler import cgutils, intrinsic, types
from malt.kernels.prefetching import prefetched
from malt.models.trees import interpreted
from malt.models.trees.losses import array_of

_BLOCK_ROWS: Final = 512
"""Rows whose bins and words are gathered at once."""
_AHEAD: Final = 48
"""A row is prefetched so many rows early: 1.5 to 2 times as fast where a node has a tenth of the rows."""

_I8, _I4, _I8_2, _I8_3 = array_of(types.i8), array_of(types.i4), array_of(types.i8, 2), array_of(types.i8, 3)
_READ_I8 = array_of(types.i8, readonly=True)

kernel = Kernels(slower=30)


def _added_pair(_context: Any, sums: Any, place: Any, pairs: Any, row: Any) -> Any:
    """sums[place:place + 2] += pairs[row:row + 2], in one instruction: Numba adds them one by one."""
    internals: Any = cgutils
    two_words = internals.ir.VectorType(internals.ir.IntType(64), 2).as_pointer()

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        """Its instructions."""
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
    array_of(types.u4, 2), _I4, _I8_2, _READ_I8, array_of(types.i4, 2), types.i8, _READ_I8, _READ_I8, _I8, _I8,
)  # fmt: skip
def add_histograms(
    bins: Any, order: Any, spans: Any, nodes: Any, words: Any, one: Any, starts: Any, bases: Any, out: Any, scratch: Any
) -> None:  # fmt: skip
    """out[bases[c] * slots:] = those of column c: of nodes[0], nodes[1], up to nodes[slots - 1].

    `spans`: node n has the rows order[spans[n, 0]:spans[n, 1]]. `bins`: of four columns each. `one`: a count of 1.
    `starts`: column c has the bins starts[c]:starts[c + 1]; columns that fill up fours have none. `bases`: in bins, as
    `starts`; `out` and `scratch` have two words a bin. `scratch` is zeros, and is zeros again.
    """
    for slot in range(nodes.size):
        _add_rows(bins, order, spans[nodes[slot], 0], spans[nodes[slot], 1], words, one, starts, scratch)
        for c in range(bases.size):
            words_here = 2 * (starts[c + 1] - starts[c])
            mine, place = 2 * starts[c], 2 * bases[c] * nodes.size + slot * words_here
            for k in range(words_here):
                out[place + k] = scratch[mine + k]
        scratch[:] = 0


@kernel(interpreted=interpreted.add_rows)
def _add_rows(
    bins: Any, order: Any, first: Any, last: Any, words: Any, one: Any, starts: Any, sums: Any
) -> None:  # fmt: skip
    """Add rows to a histogram.

    Of a block of rows, bins and words are gathered first, for which the rows need not wait for each other. The
    histograms of four columns then stay in the cache.
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
        for group in range(groups):
            at = np.uint64(4) * group
            p, q = np.uint64(starts[at]), np.uint64(starts[at + np.uint64(1)])
            r, s = np.uint64(starts[at + two]), np.uint64(starts[at + np.uint64(3)])
            for j in range(rows):
                four = np.uint64(block[group, j])
                _add_pair(sums, (p + (four & byte)) * two, pairs, two * j)
                _add_pair(sums, (q + ((four >> np.uint64(8)) & byte)) * two, pairs, two * j)
                _add_pair(sums, (r + ((four >> np.uint64(16)) & byte)) * two, pairs, two * j)
                _add_pair(sums, (s + (four >> np.uint64(24))) * two, pairs, two * j)


@kernel(_I8, _READ_I8, _I8_3, _READ_I8, _READ_I8, _I8_3)
def complete(counted: Any, starts: Any, above: Any, parents: Any, places: Any, out: Any) -> None:
    """out = the histograms of pairs of nodes, (nodes, bins, 2): of each pair one is counted, the other is what is left.

    `counted`: as `out` of `add_histograms`, of columns that have the bins starts[c]:starts[c + 1]. `above`: those of
    the level above, `parents`: the places of the pairs in it. `places`: which of a pair is counted, 0 or 1.
    """
    at = 0
    for c in range(starts.size - 1):
        for pair in range(parents.size):
            whole, place = above[parents[pair]], 2 * pair + places[pair]
            mine, other = out[place], out[4 * pair + 1 - place]
            for b in range(starts[c], starts[c + 1]):
                for k in range(2):
                    mine[b, k] = counted[at]
                    other[b, k] = whole[b, k] - counted[at]
                    at += 1
