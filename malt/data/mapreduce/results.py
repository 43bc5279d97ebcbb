"""The results of all ranks, reduced along the tree: the same value, bit by bit, on all of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dstorm.reduction import Traffic
from malt.data.mapreduce.chunk_errors import ChunkError
from malt.data.mapreduce.tree import Node, insert
from malt.data.shards import bounds
from malt.files.values import NUMBERS, Array, Bytes, Head, Packed, joined, pack, parted, unpack

Reduce = Callable[[Any, Any], Any]
Values = dict[Node, Any]

_ADDABLE: Final = ((int, float, complex, np.number), str, Counter)
WHOLE_NBYTES: Final = 1 << 16
"""Arrays up to so many bytes are sent whole to all ranks. Of larger ones each rank adds up a part for all."""


class Report(NamedTuple):
    """The results of a rank."""

    error: ChunkError | None
    """Why it could not do a chunk."""
    nodes: list[Node]
    heads: list[Head]
    """Those of the values of the nodes."""
    values: list[Any]
    """The values; none, if their arrays are to be added in parts."""


def message(error: ChunkError | None, values: Values, in_parts: bool) -> bytes:
    """A report, to be sent. `in_parts`: arrays may be added in parts."""
    packed = [pack(values[node]) for node in sorted(values)]
    is_whole = not in_parts or sum(one.nbytes for one in packed) <= WHOLE_NBYTES
    head = {"error": error, "nodes": sorted(values), "heads": [one.head for one in packed]}
    return joined([pack(head), *(packed if is_whole else ())]).tobytes()


def report(data: bytes) -> Report:
    """The report in a message."""
    head, *values = parted(np.frombuffer(data, np.uint8))
    return Report(head["error"], [(level, place) for level, place in head["nodes"]], head["heads"], values)


def copied(value: Any) -> Any:
    """A copy of `value` of this rank's own, which can be written to. TypeError: it cannot be exchanged."""
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if type(value) in (int, float, str):
        return value
    if type(value) is np.ndarray and value.dtype.kind in NUMBERS:
        return value.copy()  # as below, but ten times as fast
    text, arrays = pack(value)
    return unpack(Packed(text, [array.copy() for array in arrays]))


def added(left: Any, right: Any) -> Any:
    """The sum of two results, element by element of lists and tuples; texts are joined. `left` may be changed.

    ValueError, TypeError: they cannot be added.
    """
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        if left.dtype == right.dtype == bool:  # NumPy's sum of two is true where one is, and counts nothing
            raise TypeError("results of dtype bool cannot be added: astype(int) counts what is true, or pass reduce=")
        if (left.shape, left.dtype) == (right.shape, right.dtype):
            with np.errstate(all="ignore"):
                return np.add(left, right, out=left)
    elif isinstance(left, (list, tuple)) and type(left) is type(right):
        if len(left) == len(right):
            return type(left)(added(one, other) for one, other in zip(left, right, strict=True))
    elif any(isinstance(left, kind) and isinstance(right, kind) for kind in _ADDABLE):
        return left + right
    elif not isinstance(left, (np.ndarray, list, tuple)) and type(left) is type(right):
        raise TypeError(f"results of type {type(left).__name__} cannot be added: pass reduce=")
    raise ValueError(f"results must be alike to be added, got {_in_words(left)} and {_in_words(right)}")


def _in_words(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} of {value.dtype}"
    return f"a {type(value).__name__}" + (f" of {len(value)}" if isinstance(value, (list, tuple)) else "")


def reduced(
    traffic: Traffic, reports: Mapping[int, Report], own: Values, count: int, combine: Reduce
) -> Any:  # fmt: skip
    """The value of all `count` chunks, the same on all ranks. Collective.

    `reports`: by rank, ascending; together they cover all chunks. `own`: the values of this rank, which stay as they
    are. RanksChanged, on all: one has failed.
    """
    if all(len(one.values) == len(one.nodes) for one in reports.values()):
        whole = [(node, copied(value)) for one in reports.values() for node, value in zip(*one[1::2], strict=True)]
        return _root(whole, count, combine)
    return _added_in_parts(traffic, reports, own, count)


def _root(values: Iterable[tuple[Node, Any]], count: int, combine: Reduce) -> Any:
    """The value of the root, where `values` cover all chunks."""
    found: Values = {}
    try:
        for node, value in values:
            insert(found, node, value, count, combine)
    except (TypeError, ValueError) as error:
        if combine is added:
            raise type(error)(f"malt.map_reduce: {error}") from None
        raise
    [root] = found.values()
    return root


def _added_in_parts(traffic: Traffic, reports: Mapping[int, Report], own: Values, count: int) -> Any:
    """Return the sum of the results: each rank adds up a part of each array, and sends it to all."""
    ranks, like = list(reports), np.empty(0, np.uint8)
    several = {json.dumps(kinds): kinds for one in reports.values() for _, kinds in one.heads}
    if len(several) > 1:
        raise ValueError("malt.map_reduce: results must be alike to be added, but their arrays are not in all chunks")
    [arrays] = several.values()

    def part(place: int, array: Array) -> Bytes:
        """The bytes of the part that is the one of ranks[place]."""
        first, last = bounds(array.size, place, len(ranks))
        return array.reshape(-1)[first:last].view(np.uint8)

    mine = [array for node in sorted(own) for array in pack(own[node]).arrays]
    sent = {rank: _one([part(place, array) for array in mine]) for place, rank in enumerate(ranks)}
    received, place = traffic.exchange(ranks, sent, like), ranks.index(traffic.rank)
    values = []
    for rank, one in reports.items():
        data = _Reader(received[rank])
        for node, (text, _) in zip(one.nodes, one.heads, strict=True):
            values.append((node, unpack(Packed(text, [data.part(*array, place, len(ranks)) for array in arrays]))))
    text, summed = pack(_root(values, count, added))
    everyone = traffic.exchange(ranks, dict.fromkeys(ranks, _one([one.view(np.uint8) for one in summed])), like)
    readers = [_Reader(everyone[rank]) for rank in ranks]
    whole = [
        np.concatenate([one.part(dtype, shape, place, len(ranks)) for place, one in enumerate(readers)]).reshape(shape)
        for dtype, shape in arrays
    ]
    return unpack(Packed(text, whole))


def _one(parts: Sequence[Bytes]) -> Bytes:
    return np.concatenate([np.empty(0, np.uint8), *parts])


class _Reader:
    """Parts of arrays, one after another in a message."""

    def __init__(self, data: Bytes) -> None:
        self._data, self._place = data, 0

    def part(self, dtype: str, shape: Sequence[int], place: int, parts: int) -> Array:
        """The next one: a copy of part `place` of the elements of an array."""
        first, last = bounds(math.prod(shape), place, parts)
        nbytes = (last - first) * np.dtype(dtype).itemsize
        self._place += nbytes
        return self._data[self._place - nbytes : self._place].copy().view(dtype)
