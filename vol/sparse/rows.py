"""Sets of rows: checked row numbers of users, and unions of sets. Pure.

A set of rows is an ascending array of intp, each row once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm.words import shown

Rows = NDArray[np.intp]

_SHOWN = 5
"""The number of invalid rows that an error message lists."""
_SORT_BELOW = 8
"""Below 1 / _SORT_BELOW of all rows a union sorts; above it uses a mark for each row."""


def checked_rows(rows: Any, n: int) -> Rows:
    """Return the set of rows that `rows` names, as a new array. Local.

    `rows`: integers in any order, or a mask of all n rows. ValueError: a number is out of range, repeated or not
    whole; the message lists them. TypeError: `rows` does not hold numbers.
    """
    named = _as_array(rows)
    if named.dtype == bool:
        if named.shape != (n,):
            raise ValueError(f"a mask of rows must have shape ({n},), got {named.shape}")
        return np.flatnonzero(named)
    named = np.atleast_1d(named)
    if named.ndim > 1:
        raise ValueError(f"rows must be a flat list of row numbers, got shape {named.shape}")
    if not named.size:
        return np.empty(0, np.intp)
    if named.dtype.kind not in "iu":
        fractions = named[named != np.floor(named)] if named.dtype.kind == "f" else named
        raise ValueError(f"rows must be integers: {listed(fractions if fractions.size else named)}")
    outside = named[(named < 0) | (named >= n)]
    if outside.size:
        raise ValueError(f"rows must be from 0 to {n - 1}: {listed(outside)}")
    ascending = np.sort(named.astype(np.intp), kind="stable")
    repeated = ascending[1:][ascending[1:] == ascending[:-1]]
    if repeated.size:
        raise ValueError(f"rows must be named once: {listed(np.unique(repeated))}")
    return ascending


def is_set_of_rows(rows: NDArray[np.integer], n: int) -> bool:
    """Return whether `rows` is a set of rows from 0 to n - 1. Local."""
    return not rows.size or bool(rows[0] >= 0 and rows[-1] < n and (rows[1:] > rows[:-1]).all())


def union(sets: Sequence[Rows], n: int) -> Rows:
    """Return the union of `sets`, at least one, of rows of n. Local. The result may be one of the sets, not a copy."""
    largest = max(sets, key=len)
    if len(largest) == n or len(sets) == 1:
        return largest
    if sum(map(len, sets)) * _SORT_BELOW < n:
        ascending = np.sort(np.concatenate(sets), kind="stable")  # a stable sort merges ascending runs
        first = np.ones(len(ascending), bool)
        np.not_equal(ascending[1:], ascending[:-1], out=first[1:])
        return ascending[first]
    marks = np.zeros(n, bool)
    for rows in sets:
        marks[rows] = True
    return np.flatnonzero(marks)


def listed(rows: Any) -> str:
    """Return the end of an error message that lists the first of `rows`. Local."""
    first = ", ".join(str(row) for row in list(rows)[:_SHOWN])
    return f"got {first}{f' and {len(rows) - _SHOWN} more' if len(rows) > _SHOWN else ''}"


def _as_array(rows: Any) -> NDArray[Any]:
    is_numbers = isinstance(rows, np.ndarray) and rows.dtype != object
    if not is_numbers and hasattr(rows, "__iter__") and not isinstance(rows, (str, bytes)):
        rows = list(rows)
    named = np.asarray(rows)
    if named.dtype == object and all(isinstance(row, int) for row in named.reshape(-1)):  # larger than 64 bits
        outside = [row for row in named.reshape(-1) if not -(2**63) <= row < 2**63]
        raise ValueError(f"rows must be 0 or more and within the vector: {listed(outside)}")
    if named.dtype.kind not in "biufc":
        raise TypeError(f"rows must be integers or a mask, got {shown(rows)}")
    return named
