"""Rows of another host's memory that Gets read, as few ranges of bytes, and not too many of them in one Get. Pure.

MPI sends each range of a datatype by itself over TCP. Open MPI 5 takes 60 bytes and some 10 us for each, so a range for
each of many rows of 8 bytes is eight times the bytes, and slow. Where few rows lie between two that are wanted, they
are read, too.

Over TCP the request of Open MPI's Get is as long as what it reads, unless malt run has started the job
(malt/launch/machine/network.py), and takes twice as many bytes in all once that is longer than a message of its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm.transport import Places

GAP_NBYTES = 256
"""The longest gap between two rows that is read with them."""
MOST_NBYTES = 96 << 10
"""The most bytes that one Get reads. Of 1 MB, 11 Gets under one flush take 0.6 of the time of one."""


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


def pieces(found: Ranges, width: int) -> Iterator[tuple[slice, Ranges]]:
    """The ranges for one Get after the other, cut where need be, and the rows that each reads of all of them. Pure."""
    ends, most = np.cumsum(found.counts), max(MOST_NBYTES // width, 1)
    for start in range(0, int(ends[-1]), most):
        rows = slice(start, min(start + most, int(ends[-1])))
        some = slice(np.searchsorted(ends, rows.start, side="right"), np.searchsorted(ends, rows.stop) + 1)
        starts, counts = found.starts[some].copy(), found.counts[some].copy()
        counts[-1] -= ends[some][-1] - rows.stop
        late = rows.start - (ends[some][0] - found.counts[some][0])
        starts[0] += late
        counts[0] -= late
        yield rows, Ranges(starts, counts, found.wanted)
