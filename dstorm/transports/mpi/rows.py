"""Rows of another host's memory that one Get reads, as few ranges of bytes.

MPI sends each range of a datatype by itself over TCP. Open MPI 5 takes 60 bytes and some 10 us for each, so a range for
each of many rows of 8 bytes is eight times the bytes, and slow. Where few rows lie between two that are wanted, they
are read, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm.transport import Places

GAP_NBYTES = 256
"""The longest gap between two rows that is read with them."""


class Ranges(NamedTuple):
    """Ranges of rows, in ascending order, and where the rows that are wanted are among the rows of all of them."""

    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    wanted: NDArray[np.int64]


def ranges(places: Places, width: int) -> Ranges:
    """The ranges that hold the rows `places`, of `width` bytes each. Pure.

    `places`: in any order; a row may be there twice.
    """
    ascending = np.sort(places)
    ends = np.flatnonzero((np.diff(ascending) - 1) * width > GAP_NBYTES)
    starts = ascending[np.concatenate(([0], ends + 1))]
    counts = ascending[np.concatenate((ends, [len(places) - 1]))] + 1 - starts
    before = np.cumsum(counts) - counts
    which = np.searchsorted(starts, places, side="right") - 1
    return Ranges(starts, counts, before[which] + places - starts[which])
