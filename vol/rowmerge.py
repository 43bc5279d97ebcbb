"""Gather functions row by row: how messages of some rows merge into a rank's own array.

Each row merges what came for it, as vol.merge merges whole arrays: in the order of ranks, own included, divided last,
float16 in float32. Where all rows come the result has the same bits. The cost is that of the rows that came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from vol.merge import AVG, REPLACE, SUM, WEIGHTED, GatherFunction, Own
from vol.rows import Rows
from vol.update import Array
from vol.wire import RowValues

_BLOCK = 16_384
"""Elements merged at once: a block of each message and the sum stay in a core's cache."""


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
    return newest


def _average(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (own[r] + sum of received) / (1 + number of those who sent r)."""
    _combine(own, newest_by_row(updates), rows, _Rule(divide=True))


def _sum(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- own[r] + sum of received."""
    _combine(own, updates, rows, _Rule())


def _weighted(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- (w own[r] + sum of w_s received_s) / (w + sum of w_s), over those who sent r; all zero: own stays."""
    _combine(own, newest_by_row(updates), rows, _Rule(divide=True, weighted=True))


def _replace(own: Own, updates: Sequence[RowUpdate], rows: Rows) -> None:
    """own[r] <- what came with the highest step, then from the highest rank."""
    for update in sorted(updates, key=lambda one: (one.step, one.sender)):
        content = update.content
        block = _rows_at_once(own)
        for start in range(0, len(content.rows), block):
            own.values[content.rows[start : start + block]] = content.part(start, start + block)


ROW_MERGES: dict[GatherFunction, RowMerge] = {AVG: _average, SUM: _sum, REPLACE: _replace, WEIGHTED: _weighted}
"""PUSH_SUM has none: each row would have a mass of its own, and every message would have to carry those."""


@dataclass(frozen=True)
class _Rule:
    divide: bool = False
    weighted: bool = False


_Index = Rows | slice
_ALL: _Index = slice(None)
_Term = tuple[float, "RowValues | None"]
"""A weight, and what is weighed: None is the own array."""


def _combine(own: Own, updates: Sequence[RowUpdate], rows: Rows, rule: _Rule) -> None:
    keyed = [((one.sender, one.step), one.weight, one.content) for one in updates]
    ordered = sorted([*keyed, ((own.rank, 0), own.weight, None)], key=lambda term: term[0])
    terms: list[_Term] = [(weight if rule.weighted else 1.0, content) for _, weight, content in ordered]
    wide = np.dtype(np.float32) if own.values.dtype == np.float16 else own.values.dtype
    block = _rows_at_once(own)
    total = np.empty((min(block, len(rows)), own.values.shape[1]), wide)
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        _combine_block(own.values, terms, some, total[: len(some)], rule)


def _combine_block(target: Array, terms: Sequence[_Term], rows: Rows, total: Array, rule: _Rule) -> None:
    """target[rows] <- the sum of terms, divided by that of their weights where the rule says so."""
    # -0.0 is what any number may be added to without changing a bit; a weighted sum starts from 0.0, as vol.merge's.
    total.fill(-0.0 if total.dtype.kind == "f" and not rule.weighted else 0)
    divisor = np.zeros(len(rows))
    place = _place(rows)
    for weight, content in terms:
        if content is None:
            at, values = _ALL, target[place]
        else:
            first, last = np.searchsorted(content.rows, (rows[0], rows[-1] + 1))
            at, values = _within(rows, content.rows[first:last]), content.part(first, last)
        if rule.weighted:
            values = np.multiply(values, total.dtype.type(weight), dtype=total.dtype)
        total[at] += values
        divisor[at] += weight
    if not rule.divide:
        target[place] = total
        return
    counted = divisor > 0
    if not counted.all():
        place, total, divisor = rows[counted], total[counted], divisor[counted]
    target[place] = np.divide(total, divisor.astype(total.dtype)[:, None], out=total)


def _rows_at_once(own: Own) -> int:
    return max(_BLOCK // int(own.values.shape[1]), 1)


def _place(rows: Rows) -> _Index:
    """An index for `rows`: a slice where they follow one another."""
    return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows


def _within(rows: Rows, some: Rows) -> _Index:
    """Where in `rows` each of `some`, all of which are there, stands."""
    if len(some) == len(rows):
        return _ALL
    if rows[-1] - rows[0] + 1 == len(rows):
        offsets: Rows = some - rows[0]
        return offsets
    return np.searchsorted(rows, some)
