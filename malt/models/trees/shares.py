"""The columns that a rank splits at: a range of them, of about as many bins as the others'."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.models.trees.bundles import Layout


class Share(NamedTuple):
    """Columns one after the other."""

    origin: int
    """Their first bin in the histogram of all columns."""
    starts: NDArray[np.int64]
    """From there on, column c of them has the bins starts[c]:starts[c + 1]."""
    features: NDArray[np.int64]
    """Theirs, ascending."""

    @property
    def columns(self) -> int:
        """The number of columns."""
        return len(self.starts) - 1

    @property
    def bins(self) -> int:
        """The number of bins of all columns."""
        return int(self.starts[-1])


def share_of(layout: Layout, place: int, count: int) -> Share:
    """The share of the rank in `place` of `count`. Local."""
    goals = np.array([place, place + 1]) * layout.starts[-1] // count
    first, last = np.searchsorted(layout.starts, goals)
    starts, origin = layout.starts[first : last + 1], int(layout.starts[first])
    return Share(origin, starts - origin, np.flatnonzero((first <= layout.column) & (layout.column < last)))
