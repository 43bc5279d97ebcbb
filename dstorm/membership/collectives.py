"""Collectives of the live ranks, by Puts alone.

Where a rank fails in the middle of one, all others get the same result. MPI's own collectives do not end when a rank
fails in them.

Each rank has a mailbox: two cells for each rank, which are written in turns. In each round every rank puts a piece of
its data into all mailboxes, enters a barrier (dstorm/membership/barrier.py), and reads its mailbox. The barrier gives
all ranks the same list of failed ranks. A rank that is not in the list has put its piece before it entered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.errors import PeerLost
from dstorm.membership.barrier import Barrier
from dstorm.transport import Bytes, Transport, Window

PIECE_NBYTES = 1 << 18
_HEAD = np.dtype(np.int64)
_CELL_NBYTES = PIECE_NBYTES + 64


def nbytes(size: int) -> int:
    """Bytes that a mailbox for `size` ranks takes of each rank's memory."""
    return 2 * size * _CELL_NBYTES


class _Round(NamedTuple):
    living: list[int]
    """The ranks that had not failed at its barrier, ascending; the same on all ranks."""
    start: int
    """Offset of its pieces in the data."""
    pieces: dict[int, Bytes]
    """The pieces of the live ranks that had one, by rank: views, valid until the next round."""


class Collectives:
    """The collectives of one rank. `window` has nbytes(transport.size) bytes and is used for nothing else."""

    def __init__(self, transport: Transport, window: Window, barrier: Barrier) -> None:
        self._rank, self._size = transport.rank, transport.size
        self._window = window
        self._view, self._barrier = transport.view, barrier
        self._rounds = 0
        self._piece = np.zeros(_CELL_NBYTES, np.uint8)

    def allgather(self, data: bytes, what: str = "allgather") -> list[bytes]:
        """As `Transport.allgather`; the same on all ranks. Collective. `what`: the name of the call."""
        mine = np.frombuffer(data, np.uint8)
        parts: list[list[bytes]] = [[] for _ in range(self._size)]
        whole = [b""] * self._size
        for one in self._exchange(mine, what):
            for rank, piece in one.pieces.items():
                parts[rank].append(piece.tobytes())
        for rank in one.living:
            whole[rank] = b"".join(parts[rank])
        return whole

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """As `Transport.broadcast`. Collective."""
        what = "broadcast"
        living = self._enter(what)
        mine = array.reshape(-1).view(np.uint8)
        while True:
            source = living[0] if root is None else root
            if source not in living:
                raise PeerLost(source, f"{what} needs its array")
            given = np.empty(mine.nbytes, np.uint8)
            for one in self._exchange(mine if self._rank == source else mine[:0], what):
                living = one.living
                if source in one.pieces:
                    given[one.start : one.start + len(one.pieces[source])] = one.pieces[source]
            if source in living:
                mine[:] = given
                return

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """As `Transport.allreduce`. Collective."""
        wide = reduction.accumulator(array.dtype)
        result = np.empty(array.size, array.dtype)
        while not self._reduce(array.astype(wide, copy=False).reshape(-1), result, op, weights):
            pass  # a rank has failed between two pieces: begin again
        np.copyto(array, result.reshape(array.shape))

    def _reduce(
        self, mine: NDArray[Any], result: NDArray[Any], op: str, weights: Mapping[int, float] | None
    ) -> bool:  # fmt: skip
        """Reduce the arrays of the live ranks into `result`; return whether all pieces are of the same ranks."""
        counts = weights is None or weights.get(self._rank, 0.0) > 0
        first: list[int] | None = None
        for living, start, pieces in self._exchange((mine if counts else mine[:0]).view(np.uint8), "allreduce"):
            first = living if first is None else first
            if living != first:
                return False
            ranks = reduction.counting(weights, living)
            if pieces:
                parts = {rank: pieces[rank].view(mine.dtype) for rank in ranks}
                here = start // mine.itemsize
                reduction.reduce_into(result[here : here + parts[ranks[0]].size], parts, op, weights)
        return True

    def _exchange(self, mine: Bytes, what: str) -> Iterator[_Round]:
        """Exchange the data of all ranks, round by round, until all of it has come.

        All ranks make the same number of rounds. A caller that stops early must stop at the same round on all ranks.
        """
        start, longest = 0, 1
        while start < longest:
            living = self._put_piece(mine, start, what)
            heads, pieces = {}, {}
            for rank in living:
                cell = self._window.memory[self._offset(rank) :][:_CELL_NBYTES]
                heads[rank] = int(cell[: _HEAD.itemsize].view(_HEAD)[0])
                left = min(heads[rank] - start, PIECE_NBYTES)
                if left > 0:
                    pieces[rank] = cell[64 : 64 + left]
            self._rounds += 1
            longest = max(heads.values())
            yield _Round(living, start, pieces)
            start += PIECE_NBYTES

    def _enter(self, what: str) -> list[int]:
        """Enter a barrier; return the ranks that had not failed at it, ascending: the same on all ranks."""
        return sorted(set(range(self._size)) - self._barrier.enter(what))

    def _put_piece(self, mine: Bytes, start: int, what: str) -> list[int]:
        piece = mine[start : start + PIECE_NBYTES]
        self._piece[: _HEAD.itemsize] = np.array([mine.nbytes], _HEAD).view(np.uint8)
        self._piece[64 : 64 + len(piece)] = piece
        source = self._piece[: 64 + len(piece)]
        here = self._offset(self._rank)
        self._window.memory[here : here + len(source)] = source
        others = [rank for rank in self._view.alive if rank != self._rank]
        for peer in others:
            self._window.put(source, peer, here)
        if others:
            self._window.flush(others)
        living = self._enter(what)
        self._window.sync()
        return living

    def _offset(self, rank: int) -> int:
        return (2 * rank + self._rounds % 2) * _CELL_NBYTES
