"""Sparse sharded vectors: each rank owns the entries whose keys its hashes say, in a table that others read.

The tables of all ranks have one capacity, and are in windows. A table that outgrows its window continues in memory of
its owner alone, and other ranks read the values of that moment. At the next malt.barrier, or save of a checkpoint, all
ranks make larger windows and copy their tables (`World.grow`), while no thread of a rank is in a call of such a vector
(`resting`). After that at least half of the rows are empty, so a pull finds its keys in few rounds.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import Any

import numpy as np

from dstorm import Transport, Window
from dstorm.transport import Bytes
from dstorm.waits import interruption
from dstorm.words import shown
from vol.sharded.layout import Numbers
from vol.sharded.operand import Operand, number
from vol.sharded.owned import OwnedVector
from vol.sharded.part import Parts
from vol.sharded.sparse.layout import MARK, VALUE, HashedLayout, hashed
from vol.sharded.sparse.table import Table, capacity_for, first_rows
from vol.update import Array


class SparseShardedVector(OwnedVector):
    """A vector of which the touched entries are kept, by key. The constructor is that of `OwnedVector`."""

    _layout: HashedLayout
    _table: Table
    _window: Window | None = None
    """The window of the tables, once they have outgrown the one behind the queues."""

    @property
    def local(self) -> tuple[Numbers, Array]:
        """The keys of this rank's entries, ascending, and their values: copies. Local. ClosedError."""
        keys, values = self._entries()
        order = np.argsort(keys)
        return keys[order], values[order]

    def copy(self, other: Operand) -> None:
        """Take the values of `other`. Local. Errors: as `axpy`. What this vector alone has touched becomes 0."""
        self._take(other)

    @interruption.whole
    def fill(self, value: Any) -> None:
        """Set all elements to 0: no entry is kept. Local. TypeError: it is no number. ValueError: it is another one."""
        if number("value", value) != 0:
            raise ValueError(f"{self.name}.fill: a sparse vector can only be filled with 0, got {shown(value)}")
        with self._begin("fill"):
            self._check_not_held("fill")
            self._empty()

    @property
    def wanted(self) -> int:
        """The rows of a table in which as many entries again as this rank has find room. Local."""
        return capacity_for(self._table.count)

    @property
    def capacity(self) -> int:
        """The rows of the table of each rank that others read. Local."""
        return self._parts.layout.count(self._rank)

    def grow(self) -> None:
        """Give the tables of all ranks the rows that any of them wants. Collective; in `resting`.

        MemoryError, on all ranks: the tables stay as they are.
        """
        wanted = self._transport.allgather(self.wanted.to_bytes(8, "little"))
        layout = self._layout.table(max(int.from_bytes(one, "little") for one in wanted))
        window = self._transport.window(layout.nbytes(self._rank))
        parts = Parts(window, layout, self._rank, [0] * self._transport.size)
        table = self._table.copied(parts.local)
        self._transport.barrier(self.name)
        with self._queues.reading:
            old, self._window = self._window, window
            self._table, self._parts, self._puller.parts = table, parts, parts
            if old is not None:
                old.free()

    def touched(self) -> int:
        """The number of entries of all ranks. Collective. Errors: as `dot`."""
        return int(sum(self._of_all("touched", lambda: self._table.count)))

    def pieces(self, rows: int) -> Iterator[tuple[Numbers, Array]]:
        """Keys and values of all ranks, out of so many rows of their tables at once. One-sided. Errors: as `pull`."""
        self._check_open()
        count = self._parts.layout.shape[0]
        return (self._piece(slice(start, min(start + rows, count))) for start in range(0, count, rows))

    # -- private -------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._table = Table(self._parts.local)

    @property
    def _values(self) -> Array:
        self._check_open()
        return self._table.values

    def _entries(self) -> tuple[Numbers, Array]:
        with self._queues.reading:
            self._check_open()
            return self._table.entries()

    def _free(self) -> None:
        del self._table, self._puller, self._parts  # views of windows
        if self._window is not None:
            self._window.free()
        super()._free()

    def _blocks(self) -> Iterator[slice]:
        size, capacity = self._parts.layout.block_rows, self._table.capacity
        return (slice(start, min(start + size, capacity)) for start in range(0, capacity, size))

    def _changing(self, rows: slice) -> AbstractContextManager[None]:
        is_outgrown = self._table.rows is not self._parts.local
        return contextlib.nullcontext() if is_outgrown else self._parts.changing(rows)

    def _changing_all(self) -> AbstractContextManager[None]:
        return self._changing(slice(0, self._table.capacity))

    def _held(self, rows: slice) -> Any:
        return self._table.marks[rows] != 0

    def _aligned(self, other: Operand) -> Array:
        assert isinstance(other, SparseShardedVector)
        keys, values = other._entries()
        rows = self._table.find(keys)
        theirs = np.zeros(self._table.capacity, other.dtype)
        theirs[rows[rows >= 0]] = values[rows >= 0]
        return theirs

    def _met(self, other: Operand) -> Array:
        assert isinstance(other, SparseShardedVector)
        self._touch(other._entries()[0])
        return self._aligned(other)

    def _rows_of(self, vectors: Sequence[Operand]) -> Any:
        """The keys that any of `vectors` has on this rank, ascending."""
        return reduce(np.union1d, [one._entries()[0] for one in vectors if isinstance(one, SparseShardedVector)])

    def _copied(self, rows: Any) -> Array:
        places = self._table.find(rows)
        return np.where(places >= 0, self._table.values[places], self.dtype.type(0))

    def _set(self, values: Array, rows: Any) -> None:
        is_set = (values != 0) | (self._table.find(rows) >= 0)
        places = self._touch(rows[is_set])
        with self._changing_all():
            self._table.values[places] = values[is_set]

    def _add(self, rows: slice | Numbers, values: Array) -> None:
        """Add values to entries of this rank, by key."""
        assert not isinstance(rows, slice)
        keys, which = np.unique(rows, return_inverse=True)
        sums = np.full(len(keys), -0.0, self.dtype)
        with np.errstate(all="ignore"):  # an error would be the owner's, not the pusher's
            np.add.at(sums, which, values)
            places = self._touch(keys)
            with self._changing_all():
                self._table.values[places] += sums

    def _touch(self, keys: Numbers) -> Numbers:
        """The rows of the table with these keys, each given once, which it has from now on."""
        places = self._table.find(keys)
        missing = places < 0
        more = int(np.count_nonzero(missing))
        if not self._table.has_room(more):
            larger = np.zeros(capacity_for(self._table.count + more), self._layout.entry)
            self._table = self._table.copied(larger)
            places = self._table.find(keys)
        if more:
            with self._changing_all():
                places[missing] = self._table.insert(keys[missing])
        return places

    def _empty(self) -> None:
        for rows in self._parts.layout.blocks(self._rank):
            with self._parts.changing(rows):
                self._parts.local[rows].view(np.uint8)[:] = 0
        self._table = Table(self._parts.local)  # also where it had outgrown the window

    def _rows(self, call: str, index: Any) -> tuple[Numbers | slice, tuple[int, ...]]:
        if index is None or isinstance(index, slice):
            raise TypeError(f"{self.name}.{call}: a sparse vector takes a list of integers, got {shown(index)}")
        return super()._rows(call, index)

    def _read(self, call: str, rows: Numbers | slice, result: Bytes) -> None:
        assert not isinstance(rows, slice)
        values, capacity = result.reshape(-1).view(self.dtype), self.capacity
        owners = self._layout.places(hashed(rows))
        is_mine = owners == self._layout.ranks.index(self._rank)
        values[:] = 0
        values[is_mine] = self._copied(rows[is_mine])
        left = np.flatnonzero(~is_mine)
        at = first_rows(rows[left], capacity)
        while len(left):
            found = self._read_rows(call, owners[left] * capacity + at, len(left))
            is_it = found[MARK] == ~rows[left]
            values[left[is_it]] = found[VALUE][is_it]
            goes_on = ~is_it & (found[MARK] != 0)
            left, at = left[goes_on], (at[goes_on] + 1) % capacity

    @interruption.whole
    def _piece(self, rows: slice) -> tuple[Numbers, Array]:
        with self._begin("pieces"):
            found = self._read_rows(f"{self.name}.pieces", rows, rows.stop - rows.start)
        held = found[found[MARK] != 0]
        return ~held[MARK], held[VALUE]

    def _read_rows(self, call: str, rows: Numbers | slice, count: int) -> Array:
        """Rows of the tables, counted from the first one of all ranks on."""
        found = np.empty(count, self._layout.entry)
        self._puller.read(call, rows, found.view(np.uint8).reshape(count, self._layout.entry.itemsize))
        return found


@contextlib.contextmanager
def resting(vectors: Sequence[SparseShardedVector], transport: Transport) -> Iterator[None]:
    """Keep the entries of `vectors` on all ranks as they are while the code block runs. Collective, as it begins.

    Calls of other threads are waited for, or wait. What is pushed meanwhile is added later.
    """
    for polls in itertools.count():
        with contextlib.ExitStack() as held:
            if all(held.enter_context(vector._queues.call_lock.lent()) for vector in vectors):
                if vectors:
                    transport.barrier("entries rest")
                for vector in vectors:
                    held.enter_context(vector._hold())
                yield
                return
        transport.pause(polls)  # with no lock held: the other thread may need it
