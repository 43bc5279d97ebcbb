"""Joins of rows that wait to leave for another host with the next ones. Pure.

Of a row that is in both messages the newer one stays, or their sum. All other rows are kept: in the new message where
there is room for them, else in one before it. Where the step of a row counts, as the highest wins, each keeps its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dstorm.queues.sending.unsent import Join, Unsent
from vol.merging.merge import wide_dtype
from vol.sparse.error_feedback import Residual
from vol.sparse.rows import union
from vol.sparse.wire import RowFormat, RowValues, Staging, decode, encode, encode_rows
from vol.update import Array


def row_join(form: RowFormat, adds: bool, keeps: int = 0, dates: bool = False) -> Join:
    """Return the function that joins messages of rows. Local.

    `adds`: whether rows that are in both are added up; else the newer ones stay. `keeps`: so many messages wait before
    any are joined, as it is not known what they say. `dates`: whether a row that goes along with newer ones keeps its
    step.
    """

    def join(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """The messages that wait from now on."""
        if not waiting or len(waiting) < keeps:
            return [*waiting, new]
        kept = [(new, _content(form, new))]  # newest first
        for older in reversed(waiting):
            rest = _content(form, older)
            if not dates:  # nobody asks for ages that they may have, and there may be no room for these
                rest = replace(rest, ages=None)
            for place, (newer, rows) in enumerate(kept):
                shared, rest = _divided(rest, rows)
                if adds and len(shared.rows):
                    kept[place] = newer, _united(form, shared, rows, adds)
            newest, rows = kept[0]
            room = form.aged_capacity if dates else form.capacity
            if len(rest.rows) and len(rest.rows) + len(rows.rows) <= room and (adds or older.weight == newest.weight):
                along = _aged(rest, newest.step - older.step) if dates else rest
                kept[0] = newest, _united(form, along, rows, adds)
            elif len(rest.rows):
                kept.append((older, rest))
        return [_unsent(form, one, rows) for one, rows in reversed(kept)]

    return join


def largest_join(form: RowFormat, dtype: np.dtype[np.generic]) -> Join:
    """Return the function that joins messages of the largest rows of arrays of `dtype`. Local.

    What waits goes back, and the largest rows of all of it leave. The rest is a residual of each peer alone, as others
    may have got it.
    """

    def join(waiting: Sequence[Unsent], new: Unsent) -> Sequence[Unsent]:
        """The largest rows of what waits, of the new message and of the residual of the peer."""
        before: Residual | None = new.rest
        if not waiting and (before is None or not len(before.largest(1))):
            return [new]
        residual = Residual(dtype, form) if before is None else before.copy()
        for one in (*waiting, new):
            content = _content(form, one)
            residual.take_back(content.rows, content.part(0, len(content.rows)))
        rows = residual.largest(form.capacity)
        if not len(rows):  # they have added up to zeros, of which one row goes, as it carries the step
            rows = content.rows[:1]
        encoded = encode(form, rows, residual.values, Staging(), saturate=True)
        payload = np.concatenate([encoded.body, encoded.tail])
        residual.sent(rows)
        return [new._replace(encoding=encoded.encoding, payload=payload, rest=residual)]

    return join


def _content(form: RowFormat, unsent: Unsent) -> RowValues:
    content = decode(form, unsent.encoding, unsent.payload)
    assert content is not None, "this rank has encoded it"
    return content


def _unsent(form: RowFormat, unsent: Unsent, content: RowValues) -> Unsent:
    encoding, payload = encode_rows(form, content)
    return unsent._replace(encoding=encoding, payload=payload)


def _divided(content: RowValues, rows: RowValues) -> tuple[RowValues, RowValues]:
    """Return what `content` says of the rows that are in `rows` too, and of the others."""
    others = content.without(rows.rows)
    return content.without(others.rows) if len(others.rows) else content, others


def _united(form: RowFormat, older: RowValues, newer: RowValues, adds: bool) -> RowValues:
    """The rows of both: the newer ones, or the sum, where both have a row."""
    rows = union([older.rows, newer.rows], form.n)
    values: Array = np.zeros((len(rows), form.width), wide_dtype(newer.values.dtype))
    ages = None if older.ages is None else np.zeros(len(rows), older.ages.dtype)
    for content in (older, newer):
        place, part = np.searchsorted(rows, content.rows), content.part(0, len(content.rows))
        values[place] = values[place] + part if adds else part
        if ages is not None and content.ages is not None:
            ages[place] = content.ages
    return RowValues(rows, values, ages=ages)


def _aged(content: RowValues, steps: int) -> RowValues:
    """The same rows in a message that is so many steps newer."""
    ages = np.zeros(len(content.rows), np.uint32) if content.ages is None else content.ages
    return RowValues(content.rows, content.part(0, len(content.rows)), ages=ages + np.uint32(steps))
