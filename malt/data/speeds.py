"""Rows dealt in proportion to the speed of ranks. Pure.

Step sizes must then follow the epochs of a rank, and not its examples: a slow rank with few rows would else take steps
that are too large.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-6
"""Added before numbers of rows are rounded down, as sums of shares may end just below an integer."""

Numbers = Sequence[float] | NDArray[np.float64]


def deal(count: int, speeds: Numbers) -> NDArray[np.float64]:
    """Return the number of rows of each rank, integers whose sum is `count`: so that all end at the same time.

    `speeds`: the rows that each rank trains in a second; 0 for a rank that gets none. If all are 0, all are equally
    fast.
    """
    fast = np.asarray(speeds, np.float64)
    if not fast.any():
        fast = np.ones_like(fast)
    return np.diff(np.floor(np.cumsum([0.0, *fast]) / fast.sum() * count + _ROUNDING))


def guessed(found: Sequence[float | None]) -> list[float]:
    """Return the speeds of all ranks: the mean for those that are 0, not known; 0 for None, a failed rank."""
    known = [speed for speed in found if speed]
    mean = sum(known) / len(known) if known else 1.0
    return [0.0 if speed is None else speed or mean for speed in found]


def parts(numbers: Numbers) -> list[tuple[int, int]]:
    """Return, for each rank, the first of its rows and the one after the last, where rank 0 has the first rows."""
    ends = [int(end) for end in accumulate(numbers)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
