"""Gather functions row by row: how messages of some rows merge into a rank's own array.

Each row merges what came for it, as vol.merge merges whole arrays: in the order of ranks, own included, divided last,
float16 in float32. Where all rows come the result has the same bits. The cost is that of the rows that came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from vol.merge import AVG, REPLACE, SUM, WEIGHTED, GatherFunction, Own
from vol.sparse.rows import Rows
from vol.sparse.wire import RowValues
from vol.update import Array, Update

_BLOCK = 65_536
"""Elements merged at once: a block of each message and the sum stay in a core's cache."""
_THIN = 64
"""Rows are found by a table of places, or where they are thinner than one in so many, by bisection."""


@dataclass(frozen=True, eq=False)
class RowUpdate:
    """What one message says of some rows."""

    sender: int
    step: int
    weight: float
    content: RowValues


RowMerge = Callable[[Own, Sequence[RowUpdate], Rows], None]
"""Changes own.values, of shape (n, width), in the given rows: all that some update holds."""


def newest_by_row(updates: Sequence[RowUpdate]) -> list[RowUpdate]:
    """The updates without the rows for which their sender has a newer one among them. *Local.*"""
    newest: list[RowUpdate] = []
    for update in sorted(updates, key=lambda one: one.step, reverse=True):
        content = update.content
        for newer in newest:
            if newer.sender == update.sender:
                content = content.without(newer.content.rows)
        newest.append(update if content is update.content else replace(update, content=content))
    return [update for update in newest if len(update.content.rows)]


def _average(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (own[r] + sum of received) / (1 + number of those who sent r)."""
    _combine(AVG, own, newest_by_row(updates), rows)


def _sum(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- own[r] + sum of received."""
    _combine(SUM, own, updates, rows)


def _weighted(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (w own[r] + sum of w_s received_s) / (w + sum of w_s), over those who sent r; all zero: own stays."""
    _combine(WEIGHTED, own, newest_by_row(updates), rows)


def _replace(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- what came with the highest step, then from the highest rank."""
    for update in sorted(updates, key=lambda one: (one.step, one.sender)):
        content = update.content
        block = _rows_at_once(own)
        for start in range(0, len(content.rows), block):
            own.values[content.rows[start : start + block]] = content.part(start, start + block)


ROW_MERGES: dict[GatherFunction, RowMerge] = {AVG: _average, SUM: _sum, REPLACE: _replace, WEIGHTED: _weighted}
"""PUSH_SUM has none: each row would have a mass of its own, and every message would have to carry those."""


_Index = Rows | slice
_ALL: _Index = slice(None)
_Term = tuple[float, "RowValues | None"]
"""A weight, and what is weighed: None is the own array."""


def _combine(function: GatherFunction, own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    if all(len(one.content.rows) == len(own.values) for one in updates):
        whole = [Update(one.sender, one.step, 0, one.weight, 0.0, None, one.content.values) for one in updates]
        function.merge(own, whole)
        return
    keyed = [((one.sender, one.step), one.weight, one.content) for one in updates]
    ordered = sorted([*keyed, ((own.rank, 0), own.weight, None)], key=lambda term: term[0])
    terms: list[_Term] = [(weight if function is WEIGHTED else 1.0, content) for _, weight, content in ordered]
    wide = np.dtype(np.float32) if own.values.dtype == np.float16 else own.values.dtype
    block = _rows_at_once(own)
    shape = min(block, len(rows)), own.values.shape[1]
    total, mine = np.empty(shape, wide), np.empty(shape, own.values.dtype)
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        _combine_block(function, own.values, terms, some, total[: len(some)], mine[: len(some)])


def _combine_block(
    function: GatherFunction, target: Array, terms: Sequence[_Term], rows: Rows, total: Array, mine: Array
) -> None:  # fmt: skip
    """target[rows] <- the sum of terms, divided by that of their weights but for SUM. `mine` has room for the rows."""
    # -0.0 is what any number may be added to without changing a bit; a weighted sum starts from 0.0, as vol.merge's.
    total.fill(-0.0 if total.dtype.kind == "f" and function is not WEIGHTED else 0)
    everywhere, somewhere = 0.0, None
    place = _place(rows)
    for weight, content in terms:
        at, values = (_ALL, _taken(target, place, mine)) if content is None else _part(content, rows)
        if function is WEIGHTED:
            values = np.multiply(values, total.dtype.type(weight), dtype=total.dtype)
        if somewhere is None and at is not _ALL:
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
        _divide(target, place, total, everywhere)
    else:
        _divide_by_row(target, rows, total, somewhere)


def _part(content: RowValues, rows: Rows) -> tuple[_Index, Array]:
    """Where in `rows` those of `content` stand, and their values."""
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
    """source[place], as a view or in `out`: a third of the time that the index takes."""
    if isinstance(place, slice):
        return source[place]
    return np.take(source, place, axis=0, out=out, mode="clip")  # "raise" would buffer; a set is within range


def _store(target: Array, place: _Index, values: Array) -> None:
    """target[place] = values: rows moved as single items, in a third of the time that the index takes."""
    if isinstance(place, slice):
        target[place] = values
        return
    item = np.dtype((np.void, target.strides[0]))
    items = values.astype(target.dtype, copy=False).view(item)
    np.put(target.view(item), place, items, mode="clip")


def _rows_at_once(own: Own) -> int:
    return max(_BLOCK // int(own.values.shape[1]), 1)


def _place(rows: Rows) -> _Index:
    """An index for `rows`: a slice where they follow one another."""
    return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows


def _within(rows: Rows, some: Rows) -> _Index:
    """Where in `rows` each of `some`, all of which are there, stands."""
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
