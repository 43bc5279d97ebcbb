"""The owners of the rows of a sharded vector, and the places of rows in their memory. Pure: no MPI, no clock.

Each of r ranks owns a range of the rows: of n rows, rank number i of them has rows i * n // r to (i + 1) * n // r. Its
memory holds the versions of its blocks, one number of 64 bits each, and behind them its rows. A block has as many rows
as fit into BLOCK_NBYTES, and one at least.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_NBYTES = 1 << 18
"""It stays in the cache while it is changed, and a version of it costs little beside."""
_VERSION_NBYTES = 8
_LINE_NBYTES = 64

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ShardLayout:
    """The layout of a vector over the ranks. Two vectors of the same layout may have different dtypes."""

    shape: tuple[int, ...]
    """(n,) or (n, k). A row is an element, or has k of them."""
    ranks: tuple[int, ...]
    """The ranks that have a part, ascending."""
    dtype: np.dtype[Any] = field(compare=False)

    @property
    def stored(self) -> ShardLayout:
        """The layout of what lies in the windows."""
        return self

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return self.shape[1:]

    @property
    def row_nbytes(self) -> int:
        """The size of a row."""
        return prod(self.row_shape) * self.dtype.itemsize

    @cached_property
    def block_rows(self) -> int:
        """The rows of a block; the last one of a part may have fewer."""
        return max(BLOCK_NBYTES // self.row_nbytes, 1)

    @cached_property
    def _ends(self) -> Numbers:
        """The rows at which the parts begin, and the end of the last one."""
        return np.array([place * self.shape[0] // len(self.ranks) for place in range(len(self.ranks) + 1)], np.int64)

    def rows(self, rank: int) -> slice:
        """The rows that `rank` owns; none for a rank without a part."""
        if rank not in self.ranks:
            return slice(0, 0)
        start, stop = self._ends[self.ranks.index(rank) :][:2].tolist()
        return slice(start, stop)

    def count(self, rank: int) -> int:
        """The number of rows that `rank` owns."""
        rows = self.rows(rank)
        return int(rows.stop - rows.start)

    def owns(self, rank: int, rows: slice | Numbers) -> bool:
        """Return whether these are rows of `rank`, counted from its first one on."""
        count = self.count(rank)
        if isinstance(rows, slice):
            return bool(0 <= rows.start <= rows.stop <= count)
        return bool(((rows >= 0) & (rows <= count - 1)).all())  # `count` may be 2**63

    def blocks(self, rank: int) -> Iterator[slice]:
        """The blocks of the part of `rank`: rows, counted from its first one on."""
        count = self.count(rank)
        return (slice(start, min(start + self.block_rows, count)) for start in range(0, count, self.block_rows))

    def block_count(self, rank: int) -> int:
        """The number of blocks of `rank`."""
        return -(-self.count(rank) // self.block_rows)

    def blocks_of(self, rows: slice) -> slice:
        """The blocks of a range of rows of an owner, counted from its first one on."""
        return slice(rows.start // self.block_rows, -(-rows.stop // self.block_rows))

    def rows_at(self, rank: int) -> int:
        """The offset of the rows in the memory of `rank`, behind the versions."""
        return -(-self.block_count(rank) * _VERSION_NBYTES // _LINE_NBYTES) * _LINE_NBYTES

    def nbytes(self, rank: int) -> int:
        """The size of the memory of `rank`."""
        return self.rows_at(rank) + self.count(rank) * self.row_nbytes

    def overlaps(self, rows: slice) -> Iterator[tuple[int, slice, slice]]:
        """For each owner of some of a range of rows: its rank, where they lie in the range, and in its part."""
        for rank in self.ranks:
            theirs = self.rows(rank)
            start, stop = max(rows.start, theirs.start), min(rows.stop, theirs.stop)
            if start < stop:
                in_range, in_part = (slice(start - first, stop - first) for first in (rows.start, theirs.start))
                yield rank, in_range, in_part

    def dealt(self, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
        """For each owner of some of `rows`: its rank, their places in `rows`, ascending, and those rows.

        These are counted from its first one on.
        """
        places = np.searchsorted(self._ends, rows, side="right") - 1
        for place in np.unique(places).tolist():
            chosen = np.flatnonzero(places == place)
            yield self.ranks[place], chosen, rows[chosen] - self._ends[place]

    def __str__(self) -> str:
        return f"shape {self.shape} on ranks {', '.join(map(str, self.ranks))}"
