"""Sharded vectors: each rank owns a part, and reads and adds to those of others, one-sided."""

from __future__ import annotations

from contextlib import AbstractContextManager

import numpy as np

from dstorm.reduction import PIECE_NBYTES, Traffic, reduce_blocks
from dstorm.transport import Bytes
from vol.sharded.arithmetic import Arithmetic
from vol.sharded.layout import Numbers
from vol.sharded.owned import OwnedVector
from vol.update import Array


class ShardedVector(Arithmetic, OwnedVector):
    """A vector of which each rank owns a range of the rows. The constructor is that of `OwnedVector`."""

    @property
    def local(self) -> Array:
        """The rows of this rank: a view. Local.

        Read and write it at any time. What is written is whole for the pulls of others after the next malt.barrier().
        The memory lasts for as long as the vector is open, or a rank keeps a view of it. ClosedError.
        """
        self._check_open()
        return self._parts.local

    def take_reduced(self, traffic: Traffic, array: Array, op: str) -> None:
        """Take the reduction of the arrays of all ranks for the vector. Collective. It is new: nobody reads it yet.

        `array`: C-contiguous, of the shape and dtype of the vector. `op`: as `Transport.allreduce`. RanksChanged, on
        all ranks: one has failed; the values are undefined.
        """
        layout, local = self._layout, self.local
        length = max(PIECE_NBYTES // (layout.row_nbytes * len(layout.ranks)), 1)
        for start in range(0, max(map(layout.count, layout.ranks)), length):
            ranges = {rank: layout.rows(rank) for rank in layout.ranks}
            blocks = {rank: array[rows][start : start + length].reshape(-1) for rank, rows in ranges.items()}
            reduce_blocks(traffic, layout.ranks, blocks, local[start : start + length].reshape(-1), op)
        self._transport.barrier(f"{self.name}.take_reduced")

    def leave(self) -> None:
        super().leave()
        if self.closed:
            self._parts.let_go()

    @property
    def can_free(self) -> bool:
        """True if this rank has closed it, and keeps no view of `local`. Local."""
        return super().can_free and not self._parts.are_kept

    # -- private -------------------------------------------------------------------------------------------------

    def _changing(self, rows: slice) -> AbstractContextManager[None]:
        self._check_open()
        return self._parts.changing(rows)

    def _read(self, call: str, rows: Numbers | slice, result: Bytes) -> None:
        self._puller.read(call, rows, result)

    def _add(self, rows: slice | Numbers, values: Array) -> None:
        """Add values to rows of this rank."""
        span = rows if isinstance(rows, slice) else slice(int(rows.min()), int(rows.max()) + 1)
        with self._changing(span), np.errstate(all="ignore"):  # an error would be the owner's, not the pusher's
            if isinstance(rows, slice):
                self.local[rows] += values
            else:
                np.add.at(self.local, rows, values)
