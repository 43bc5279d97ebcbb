"""Collective calls among those who live, by Puts alone: a rank may die in the middle of one, and the others all come
to the same result. MPI's own collectives know nothing of a rank that is gone.

Each rank has a mailbox: for each other rank two cells, written in turns. In each round all put a piece of what they
have into everyone's mailbox, meet (dstorm/membership/barrier.py), and read. Who was dead at the meeting is the same for
all; who was not has put its piece before it came.
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
    """The memory that the mailboxes of `size` ranks take of each."""
    return 2 * size * _CELL_NBYTES


class _Round(NamedTuple):
    living: list[int]
    """Who had not failed when it ended, ascending: the same on all."""
    start: int
    """Where in the data its pieces begin."""
    pieces: dict[int, Bytes]
    """By rank, of those who lived and had one: views, good until the next round."""


class Collectives:
    """The living, as one of them meets them. `window` has nbytes(transport.size) bytes and serves nothing else."""

    def __init__(self, transport: Transport, window: Window, barrier: Barrier) -> None:
        self._rank, self._size = transport.rank, transport.size
        self._window = window
        self._view, self._barrier = transport.view, barrier
        self._rounds = 0
        self._piece = np.zeros(_CELL_NBYTES, np.uint8)

    def allgather(self, data: bytes, what: str = "allgather") -> list[bytes]:
        """What every rank gave, by rank, the same on all; b"" of the dead. Collective."""
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
            pass  # from the beginning: one failed between two pieces
        np.copyto(array, result.reshape(array.shape))

    def _reduce(
        self, mine: NDArray[Any], result: NDArray[Any], op: str, weights: Mapping[int, float] | None
    ) -> bool:  # fmt: skip
        """Write what the arrays of the living come to into `result`; whether all its pieces are of the same ranks."""
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
        """Round by round what all give, until all of it has come. All stop at the same round, also where they break off
        at the same one."""
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
        """Who lives at a meeting of all, ascending, the same on all of them."""
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
