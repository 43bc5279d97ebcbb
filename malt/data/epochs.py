"""The rows of one epoch, dealt to ranks one by one, and dealt anew while ranks fail and come back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.data.dealing import inherit

Rows = NDArray[np.integer[Any]]


class Epoch:
    """This rank's part of the `rows` of an epoch, in the order in which it trains them. Local.

    Rank r has rows r, r + size, r + 2 size... of them. Nobody is given a row more than once: parts may differ by one.
    """

    def __init__(self, rows: Rows, rank: int, size: int) -> None:
        self._rows, self._rank, self._size = rows, rank, size
        self._order: NDArray[np.intp] = np.arange(rank, len(rows), size)
        """The places among `rows` of those that are this rank's."""
        self._drawn = 0
        """The number of these that were drawn."""
        self.is_redealt = False
        """Whether it has been dealt anew."""
        self.lengths = len(rows) // size, -(-len(rows) // size)
        """The least and the most rows of a live rank."""

    def __len__(self) -> int:
        return len(self._order)

    def begin_at(self, place: int) -> None:
        """Draw from `place` on, of this rank's rows. Local."""
        self._drawn = place

    def draw(self) -> int | None:
        """The next row. None: there is no more. Local."""
        if self._drawn >= len(self._order):
            return None
        self._drawn += 1
        return int(self._rows[self._order[self._drawn - 1]])

    def first(self, count: int) -> Rows:
        """The first so many of this rank's rows. Local."""
        found: Rows = self._rows[self._order[:count]]
        return found

    def deal_anew(self, failed: Collection[int]) -> None:
        """Have what is not drawn be what this rank has where the ranks `failed` have failed. Local.

        It is as by `inherit`: those that have failed leave all their rows of the epoch to the others, as nobody knows
        which they have trained. Ranks need not learn of a failure at the same moment.
        """
        places = np.arange(len(self._rows))
        owners = inherit((places % self._size).astype(np.int32), failed, self._size)
        mine = places[owners == self._rank]
        drawn = self._order[: self._drawn]
        self._order = np.concatenate([drawn, mine[~np.isin(mine, drawn)]])
        self.is_redealt |= len(failed) > 0
        counts = np.bincount(owners, minlength=self._size)[sorted(set(range(self._size)) - set(failed))]
        self.lengths = int(counts.min()), int(counts.max())


def left_of(rows: Rows, counts: Sequence[int | None]) -> Rows:
    """The rows that are left where rank r has trained the first counts[r] of those that it was dealt; None: all."""
    is_left = np.ones(len(rows), bool)
    for rank, count in enumerate(counts):
        is_left[rank :: len(counts)][:count] = False
    found: Rows = rows[is_left]
    return found
