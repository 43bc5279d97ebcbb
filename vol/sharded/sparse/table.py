"""A rank's entries, by key: a table with open addressing and linear probing. Pure: no MPI, no clock.

An entry lies in the row that its key's hash says, or in the first empty one behind it; row 0 is behind the last. No
entry moves, and none is removed but with all others. So who looks for a key from the row of its hash on finds it before
the first empty row, or it is not there.
"""

from __future__ import annotations

import numpy as np

from vol.sharded.layout import Numbers
from vol.sharded.sparse import layout
from vol.sharded.sparse.layout import MARK, VALUE, hashed
from vol.update import Array


def capacity_for(count: int) -> int:
    """The rows of a table with room for as many entries again: a power of two. Pure."""
    return max(layout.FIRST_CAPACITY, 1 << (2 * count - 1).bit_length() if count else 1)


def first_rows(keys: Numbers, capacity: int) -> Numbers:
    """The rows of a table where keys are looked for first. Pure."""
    return (hashed(keys) & np.uint64(capacity - 1)).astype(np.int64)


class Table:
    """A table in `rows`, entries as `HashedLayout.entry` has them, of which all are empty. Local."""

    def __init__(self, rows: Array) -> None:
        self.rows, self.capacity, self.count = rows, len(rows), 0
        self.marks: Numbers = rows[MARK]
        self.values: Array = rows[VALUE]

    def has_room(self, more: int) -> bool:
        """Return whether a quarter of the rows stays empty with so many more entries."""
        return 4 * (self.count + more) <= 3 * self.capacity

    def find(self, keys: Numbers) -> Numbers:
        """The rows of the entries with these keys; -1: there is none."""
        rows, marks, left = first_rows(keys, self.capacity), ~keys, np.arange(len(keys))
        found = np.full(len(keys), -1)
        while len(left):
            there = self.marks[rows[left]]
            is_it = there == marks[left]
            found[left[is_it]] = rows[left[is_it]]
            left = left[~is_it & (there != 0)]
            rows[left] = (rows[left] + 1) % self.capacity
        return found

    def insert(self, keys: Numbers) -> Numbers:
        """Make entries with these keys, each once and none in the table yet. Return their rows. There is room.

        Their values are -0.0: plus any number, that is this number bit by bit.
        """
        rows, marks, left = first_rows(keys, self.capacity), ~keys, np.arange(len(keys))
        while len(left):
            here = rows[left]
            is_empty = self.marks[here] == 0
            self.marks[here[is_empty]] = marks[left[is_empty]]  # of several in one row, one stays
            left = left[self.marks[here] != marks[left]]
            rows[left] = (rows[left] + 1) % self.capacity
        self.values[rows] = -0.0
        self.count += len(keys)
        return rows

    def entries(self) -> tuple[Numbers, Array]:
        """The keys, in any order, and their values: copies."""
        held = np.flatnonzero(self.marks)
        return ~self.marks[held], self.values[held]

    def copied(self, rows: Array) -> Table:
        """A table in `rows`, which are empty, with these entries."""
        made, (keys, values) = Table(rows), self.entries()
        made.values[made.insert(keys)] = values
        return made
