"""Gather functions for rows: AVG, MEAN, SUM, REPLACE and WEIGHTED, row by row. Pure.

Each row merges the messages that hold it, as vol.merging.merge merges whole arrays: in rank order with the own row, the
division last, float16 in float32. Messages of all rows give the same bits as there. The cost follows the rows received.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vol.merging.merge import AVG, MEAN, REPLACE, SUM, WEIGHTED, GatherFunction, Own, who_counts
from vol.sparse.rows import Rows
from vol.sparse.wire import RowValues
from vol.update import Array, Update

_BLOCK = 65_536
"""Elements merged at once: a block of each message and the sum stay in the cache of a core."""
_THIN = 64
"""Rows are found by bisection if fewer than 1 / _THIN of their range is there, else by a table of positions."""


@dataclass(frozen=True, eq=False)
class RowUpdate:
    """One message of some rows."""

    sender: int
    step: int
    weight: float
    content: RowValues


RowMerge = Callable[[Own, Sequence[RowUpdate], Rows], None]
"""Changes own.values, of shape (n, width), in the given rows: the union of the rows of all updates."""


def newest_by_row(updates: Sequence[RowUpdate]) -> list[RowUpdate]:
    """Return the updates without the rows that a newer update of the same sender holds. Local."""
    newest: list[RowUpdate] = []
    for update in sorted(updates, key=lambda one: one.step, reverse=True):
        content = update.content
        for newer in newest:
            if newer.sender == update.sender:
                content = content.without(newer.content.rows)
        newest.append(update if content is update.content else replace(update, content=content))
    return [update for update in newest if len(update.content.rows)]


def _average(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (own[r] + sum of received) / (1 + number of senders of r), or as `_weighted` by own.counted."""
    if own.counted is not None:
        return _weighted(*_weighed(own, updates, own.counted), rows)
    _combine(AVG, own, newest_by_row(updates), rows)


def _mean(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (w own[r] + sum of w_s received_s) / (sum of w over all that count), w: own.counted, for all `rows`.

    A row that a message lacks is zeros in it. The sum begins at 0.0, so that -0.0 ends with the bits of a row that was
    not sent.
    """
    counted = who_counts(own, (one.sender for one in updates))
    if len(counted) > 1:
        divisor = sum(counted[rank] for rank in sorted(counted))
        _combine(MEAN, *_weighed(own, updates, counted), rows, divisor)


def _weighed(
    own: Own, updates: Sequence[RowUpdate], weights: Mapping[int, float]
) -> tuple[Own, list[RowUpdate]]:  # fmt: skip
    """Return the terms with `weights`, by rank. A sender without one does not count: it has failed meanwhile."""
    return (
        own._replace(weight=weights[own.rank]),
        [replace(one, weight=weights.get(one.sender, 0.0)) for one in updates],
    )


def _sum(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- own[r] + sum of received."""
    _combine(SUM, own, updates, rows)


def _weighted(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (w own[r] + sum of w_s received_s) / (w + sum of w_s), over the senders s of r.

    If all weights are zero, own[r] stays.
    """
    _combine(WEIGHTED, own, newest_by_row(updates), rows)


def _replace(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- the received row of the highest step, then of the highest rank."""
    for update in sorted(updates, key=lambda one: (one.step, one.sender)):
        content = update.content
        block = _rows_at_once(own)
        for start in range(0, len(content.rows), block):
            own.values[content.rows[start : start + block]] = content.part(start, start + block)


ROW_MERGES: dict[GatherFunction, RowMerge] = {
    AVG: _average, MEAN: _mean, SUM: _sum, REPLACE: _replace, WEIGHTED: _weighted
}  # fmt: skip
"""PUSH_SUM is not among them: each row would need a mass of its own, which messages do not carry."""


_Index = Rows | slice
_ALL: _Index = slice(None)
_Term = tuple[float, "RowValues | None"]
"""(weight, rows); None stands for the own array."""


def _combine(
    function: GatherFunction, own: Own, updates: Sequence[RowUpdate], rows: Rows, divisor: float | None = None
) -> None:  # fmt: skip
    if not len(rows):
        return
    if divisor is None and all(len(one.content.rows) == len(own.values) for one in updates):
        whole = [Update(one.sender, one.step, 0, one.weight, 0.0, None, one.content.values) for one in updates]
        function.merge(own, whole)
        return
    keyed = [((one.sender, one.step), one.weight, one.content) for one in updates]
    ordered = sorted([*keyed, ((own.rank, 0), own.weight, None)], key=lambda term: term[0])
    has_weights = function in (MEAN, WEIGHTED)
    terms: list[_Term] = [(weight if has_weights else 1.0, content) for _, weight, content in ordered]
    wide = np.dtype(np.float32) if own.values.dtype == np.float16 else own.values.dtype
    block = _rows_at_once(own)
    shape = min(block, len(rows)), own.values.shape[1]
    total, mine = np.empty(shape, wide), np.empty(shape, own.values.dtype)
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        _combine_block(function, own.values, terms, some, total[: len(some)], mine[: len(some)], divisor)


def _combine_block(
    function: GatherFunction, target: Array, terms: Sequence[_Term], rows: Rows, total: Array, mine: Array,
    divisor: float | None,
) -> None:  # fmt: skip
    """target[rows] <- the sum of the terms, divided by `divisor`, or the sum of their weights unless `function` is SUM.

    `total` and `mine` are buffers of the shape of these rows.
    """
    # -0.0 + x has the bits of x for every x. A weighted sum starts from 0.0, as in vol.merging.merge.
    total.fill(-0.0 if total.dtype.kind == "f" and function not in (MEAN, WEIGHTED) else 0)
    everywhere, somewhere = 0.0, None
    place = _place(rows)
    for weight, content in terms:
        at, values = (_ALL, _taken(target, place, mine)) if content is None else _part(content, rows)
        if weight != 1:
            values = np.multiply(values, total.dtype.type(weight), dtype=total.dtype)
        if somewhere is None and at is not _ALL and divisor is None:
            somewhere = np.full(len(rows), everywhere)
        if at is _ALL:
            np.add(total, values, out=total)
            everywhere += weight
        else:
            total[at] += values
        if somewhere is not None:
            somewhere[at] += weight
    if function is SUM:
        _store(target, place, total)
    elif somewhere is None:
        _divide(target, place, total, divisor or everywhere)
    else:
        _divide_by_row(target, rows, total, somewhere)


def _part(content: RowValues, rows: Rows) -> tuple[_Index, Array]:
    """Return the positions in `rows` of the rows of `content`, and the values of these."""
    first, last = np.searchsorted(content.rows, (rows[0], rows[-1] + 1))
    return _within(rows, content.rows[first:last]), content.part(first, last)


def _divide(target: Array, place: _Index, total: Array, divisor: float) -> None:
    if divisor > 0:
        _store(target, place, np.divide(total, total.dtype.type(divisor), out=total))


def _divide_by_row(target: Array, rows: Rows, total: Array, divisor: NDArray[np.float64]) -> None:
    counted = divisor > 0
    if not counted.all():
        rows, total, divisor = rows[counted], total[counted], divisor[counted]
    if len(rows):
        _store(target, _place(rows), np.divide(total, divisor.astype(total.dtype)[:, None], out=total))


def _taken(source: Array, place: _Index, out: Array) -> Array:
    """Return source[place], as a view or in `out`, in a third of the time of the index expression."""
    if isinstance(place, slice):
        return source[place]
    return np.take(source, place, axis=0, out=out, mode="clip")  # the mode "raise" would buffer; a set is within range


def _store(target: Array, place: _Index, values: Array) -> None:
    """target[place] = values. Each row moves as one item, in a third of the time of the index expression."""
    if isinstance(place, slice):
        target[place] = values
        return
    item = np.dtype((np.void, target.strides[0]))
    items = values.astype(target.dtype, copy=False).view(item)
    np.put(target.view(item), place, items, mode="clip")


def _rows_at_once(own: Own) -> int:
    return max(_BLOCK // int(own.values.shape[1]), 1)


def _place(rows: Rows) -> _Index:
    """Return an index for `rows`: a slice if they are consecutive."""
    return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows


def _within(rows: Rows, some: Rows) -> _Index:
    """Return the positions in `rows` of `some`, a subset of it."""
    if len(some) == len(rows):
        return _ALL
    spread = int(rows[-1] - rows[0]) + 1
    if spread == len(rows):
        offsets: Rows = some - rows[0]
        return offsets
    if spread > _THIN * len(rows):
        return np.searchsorted(rows, some)
    places = np.empty(spread, np.intp)
    places[rows - rows[0]] = np.arange(len(rows))
    found: Rows = places[some - rows[0]]
    return found
