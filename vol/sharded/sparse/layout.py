"""The owners of the entries of a sparse sharded vector: a key's hash tells. Pure: no MPI, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vol.sharded.layout import Numbers, ShardLayout

FIRST_CAPACITY: Final = 1 << 12
"""The rows of a table in the window in which a vector begins."""
MARK: Final = "mark"
VALUE: Final = "value"

Hashes = NDArray[np.uint64]


class HashedLayout(ShardLayout):
    """The layout of a sparse vector over the ranks. Its rows are entries, which are named by keys: 0 to n - 1."""

    @property
    def entry(self) -> np.dtype[Any]:
        """A row of a table: ~key, which is never 0, and the value. It is 0 where the row is empty."""
        return np.dtype([(MARK, np.int64), (VALUE, self.dtype)], align=True)

    @property
    def stored(self) -> ShardLayout:
        """The layout of the tables in which a vector begins."""
        return self.table(FIRST_CAPACITY)

    def table(self, capacity: int) -> ShardLayout:
        """The layout of the tables of all ranks, each of `capacity` rows: that of a dense vector of entries."""
        return ShardLayout((capacity * len(self.ranks),), self.ranks, self.entry)

    def count(self, rank: int) -> int:
        """The number of keys that messages to `rank` may name."""
        return self.shape[0]

    def nbytes(self, rank: int) -> int:
        """The size of the memory in which the table of `rank` begins."""
        return self.stored.nbytes(rank)

    def owns(self, rank: int, rows: slice | Numbers) -> bool:
        """Return whether these are keys of `rank`."""
        if isinstance(rows, slice) or not super().owns(rank, rows):
            return False
        return bool((self.places(hashed(rows)) == self.ranks.index(rank)).all())

    def dealt(self, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers]]:
        """For each owner of some of the keys: its rank, their places in `rows`, ascending, and those keys."""
        places = self.places(hashed(rows))
        for place in np.unique(places).tolist():
            chosen = np.flatnonzero(places == place)
            yield self.ranks[place], chosen, rows[chosen]

    def places(self, hashes: Hashes) -> Numbers:
        """The owners of keys with these hashes, as places in `ranks`."""
        high = hashes >> np.uint64(32)
        return (high * np.uint64(len(self.ranks)) >> np.uint64(32)).astype(np.int64)

    def __str__(self) -> str:
        return f"shape {self.shape}, sparse, on ranks {', '.join(map(str, self.ranks))}"


def hashed(keys: Numbers) -> Hashes:
    """The hashes of keys: all bits of each depend on all of its key's (MurmurHash3's fmix64). Pure."""
    found = keys.astype(np.uint64)
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        found ^= found >> np.uint64(33)
        found *= np.uint64(factor)
    found ^= found >> np.uint64(33)
    return found
