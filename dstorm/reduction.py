"""The mean, sum, maximum and minimum of the arrays of all ranks; algorithms of allreduce. Pure: no MPI, no clock.

Arrays are combined element by element, in rank order. So the result does not depend on how they were cut into pieces.

Of m bytes on k ranks, the rank that sends and receives most moves

    reduce-scatter   4 m (k - 1) / k    each rank combines a block for all, and sends it to all (MLlib*, ICDE 2019)
    tree             2 m log2(k)        in each round half of the ranks that are left send to the other half; then back
    star             2 m (k - 1)        the lowest rank combines all arrays, and sends the result to all (a driver)

The result has the same bits on all ranks: one of them combines an element. reduce-scatter and star combine in rank
order; tree combines neighbours first, then pairs of them, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dstorm.transport import Bytes, Transport

Array = NDArray[Any]
Weights = Mapping[int, float] | None

_COMBINE: Final[dict[str, np.ufunc]] = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
OPERATIONS: Final = tuple(_COMBINE)
PIECE_NBYTES = 1 << 23
"""What is reduced at once, so that buffers stay small."""


def accumulator(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype in which arrays of `dtype` are combined: float32 for float16, otherwise `dtype`."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def counting(weights: Weights, ranks: Collection[int]) -> list[int]:
    """The ranks of `ranks` that have a positive weight, ascending; all of them where `weights` is None.

    ValueError: no rank has a positive weight.
    """
    found = sorted(rank for rank in ranks if weights is None or weights.get(rank, 0.0) > 0)
    if not found:
        raise ValueError("all weights are zero")
    return found


def reduce_into(result: Array, parts: Mapping[int, Array], op: str, weights: Weights = None) -> None:
    """Write the reduction of `parts` into `result`.

    `parts`: arrays by rank, of the shape of `result` and of dtype accumulator(result.dtype), of ranks that count.
    `weights`: positive weights by rank, for a mean. Equal weights give the same bits as no weights. NaN, infinities and
    overflow pass as in NumPy, without a warning: an error raised here would be raised on one rank alone.
    """
    ranks = sorted(parts)
    by_weight = factors(op, weights, ranks)
    with np.errstate(all="ignore"):
        if by_weight:
            total = parts[ranks[0]] * by_weight[0]
            for rank, factor in zip(ranks[1:], by_weight[1:], strict=True):
                np.add(total, parts[rank] * factor, out=total)
        else:
            total = parts[ranks[0]].copy()
            for rank in ranks[1:]:
                _COMBINE[op](total, parts[rank], out=total)
        if op == "mean":
            np.divide(total, math.fsum(by_weight) if by_weight else len(ranks), out=total)
        np.copyto(result, total, casting="same_kind")


def factors(op: str, weights: Weights, ranks: Sequence[int]) -> list[float]:
    """The weights of `ranks` in a mean, scaled by a power of two so that the largest lies between 1/2 and 1.

    Scaled so, no product overflows and no digit is lost. []: all are equal, or `op` is no mean.
    """
    given = [weights[rank] for rank in ranks] if weights and op == "mean" else []
    if len(set(given)) < 2:
        return []
    exponent = math.frexp(max(given))[1]
    return [math.ldexp(weight, -exponent) for weight in given]


class RanksChanged(Exception):
    """A rank has failed: all others begin again. `ranks`: those that go on, the same on all of them."""

    def __init__(self, ranks: Sequence[int]) -> None:
        super().__init__(f"ranks {list(ranks)} go on")
        self.ranks = ranks


class Traffic:
    """Exchanges of arrays among ranks, and the bytes of them that this rank has sent and received, by peer."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.rank = transport.rank
        self.sent = dict.fromkeys(range(transport.size), 0)
        self.received = dict.fromkeys(range(transport.size), 0)

    def exchange(self, ranks: Sequence[int], parts: Mapping[int, Array], like: Array) -> dict[int, Array]:
        """The arrays that `ranks` have sent to this one, by rank; flat, of the dtype of `like`. Collective.

        `parts`: what this rank sends, by receiver. RanksChanged, on all: others than `ranks` are alive.
        """
        received = self._transport.alltoall({rank: _bytes(part) for rank, part in parts.items()})
        for peer, part in parts.items():
            self.sent[peer] += part.nbytes if peer != self.rank else 0
        for peer, data in received.items():
            self.received[peer] += data.nbytes if peer != self.rank else 0
        if list(received) != list(ranks):
            raise RanksChanged(list(received))
        return {rank: data.view(like.dtype) for rank, data in received.items()}


def allreduce(
    traffic: Traffic, ranks: Sequence[int], array: Array, op: str, weights: Weights, algorithm: str
) -> None:  # fmt: skip
    """Replace `array`, C-contiguous, by its reduction over `ranks`, or those of them that do not fail. Collective.

    `algorithm`: a name in ALGORITHMS. `weights`: of a mean, by rank. ValueError, on all: no live rank has one.
    """
    mine, result = array.reshape(-1), np.empty(array.size, array.dtype)
    length = max(PIECE_NBYTES // array.itemsize, 1)
    while True:
        counting(weights, ranks)
        try:
            for start in range(0, mine.size, length):
                piece = mine[start : start + length].astype(accumulator(array.dtype), copy=False)
                ALGORITHMS[algorithm](traffic, ranks, piece, result[start : start + length], op, weights)
            break
        except RanksChanged as change:
            ranks = change.ranks
    array[...] = result.reshape(array.shape)


def reduce_rows(traffic: Traffic, ranks: Sequence[int], array: Array, op: str) -> Array:
    """The rows of this rank of the reduction of `array`, C-contiguous, over `ranks`. Collective. RanksChanged.

    The rank in place p of N has the rows from p * n // N up to (p + 1) * n // N.
    """
    ends = [place * len(array) // len(ranks) for place in range(len(ranks) + 1)]
    wide = array.astype(accumulator(array.dtype), copy=False)
    parts = {rank: wide[first:last] for rank, (first, last) in zip(ranks, pairwise(ends), strict=True)}
    result = np.empty_like(array[: len(parts[traffic.rank])])
    length = max(PIECE_NBYTES // max(wide[:1].nbytes * len(ranks), 1), 1)
    for start in range(0, max(map(len, parts.values())), length):
        blocks = {rank: part[start : start + length].reshape(-1) for rank, part in parts.items()}
        reduce_blocks(traffic, ranks, blocks, result[start : start + length].reshape(-1), op)
    return result


def reduce_blocks(
    traffic: Traffic, ranks: Sequence[int], blocks: Mapping[int, Array], result: Array, op: str, weights: Weights = None
) -> None:  # fmt: skip
    """Combine the blocks that `ranks` have for this one into `result`, in rank order. Collective.

    `blocks`: by rank, what this one has for it, of the dtype in which arrays are combined. RanksChanged.
    """
    received = traffic.exchange(ranks, blocks, blocks[traffic.rank])
    _reduce(received, result, op, weights)


def _reduce_scatter(
    traffic: Traffic, ranks: Sequence[int], piece: Array, result: Array, op: str, weights: Weights
) -> None:  # fmt: skip
    cuts = [place * piece.size // len(ranks) for place in range(1, len(ranks))]
    parts = dict(zip(ranks, np.split(result, cuts), strict=True))
    own = parts[traffic.rank]
    reduce_blocks(traffic, ranks, dict(zip(ranks, np.split(piece, cuts), strict=True)), own, op, weights)
    for rank, block in traffic.exchange(ranks, dict.fromkeys(ranks, own), result).items():
        parts[rank][...] = block


def _star(
    traffic: Traffic, ranks: Sequence[int], piece: Array, result: Array, op: str, weights: Weights
) -> None:  # fmt: skip
    root = ranks[0]
    received = traffic.exchange(ranks, {root: piece}, piece)
    if traffic.rank == root:
        _reduce(received, result, op, weights)
    given = dict.fromkeys(ranks, result) if traffic.rank == root else {}
    result[...] = traffic.exchange(ranks, given, result)[root]


def _tree(
    traffic: Traffic, ranks: Sequence[int], piece: Array, result: Array, op: str, weights: Weights
) -> None:  # fmt: skip
    counted = counting(weights, ranks)
    order = [*counted, *(rank for rank in ranks if rank not in counted)]
    place, count = order.index(traffic.rank), len(counted)
    by_weight = factors(op, weights, counted)
    whole = piece * by_weight[place] if by_weight and place < count else piece
    for distance in _distances(count):
        gives = place % (2 * distance) == distance and place < count
        received = traffic.exchange(ranks, {order[place - distance]: whole} if gives else {}, piece)
        if place % (2 * distance) == 0 and place + distance < count:
            parts, whole = {0: whole, 1: received[order[place + distance]]}, np.empty_like(piece)
            reduce_into(whole, parts, "sum" if op == "mean" else op)
    if place == 0:
        divisor = (math.fsum(by_weight) if by_weight else count) if op == "mean" else None
        np.copyto(result, whole if divisor is None else whole / divisor, casting="same_kind")
    for distance in reversed(_distances(len(order))):
        gives = place % (2 * distance) == 0 and place + distance < len(order)
        received = traffic.exchange(ranks, {order[place + distance]: result} if gives else {}, result)
        if place % (2 * distance) == distance:
            result[...] = received[order[place - distance]]


def _distances(count: int) -> list[int]:
    """The powers of two below `count`."""
    return [1 << level for level in range((count - 1).bit_length())]


def _reduce(parts: Mapping[int, Array], result: Array, op: str, weights: Weights) -> None:
    """Combine the arrays of the ranks that count."""
    reduce_into(result, {rank: parts[rank] for rank in counting(weights, parts)}, op, weights)


def _bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).view(np.uint8)


ALGORITHMS: Final[dict[str, Callable[[Traffic, Sequence[int], Array, Array, str, Weights], None]]] = {
    "reduce-scatter": _reduce_scatter,
    "tree": _tree,
    "star": _star,
}
