"""Collectives of the live ranks, by Puts alone.

Where a rank fails in the middle of one, all others get the same result. MPI's own collectives do not end when a rank
fails in them.

Each rank has a mailbox: two cells for each rank, which are written in turns. In each round every rank puts a piece of
its data into all mailboxes, enters a barrier (dstorm/membership/barriers/barrier.py), and reads its mailbox. The
barrier gives all ranks the same list of failed ranks. A rank that is not in the list has put its piece before it
entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.errors import PeerLost
from dstorm.membership.barriers.barrier import Barrier
from dstorm.transport import Bytes, Transport, Window

PIECE_NBYTES = 1 << 18
_COPIED_NBYTES = 1 << 24
"""What is copied from one heartbeat to the next."""
_HEAD = np.dtype(np.int64)
"""Two of them stand before a piece: the length of the longest data of its sender, and of that for the receiver."""
_CELL_NBYTES = PIECE_NBYTES + 64


def nbytes(size: int) -> int:
    """Bytes that a mailbox for `size` ranks takes of each rank's memory."""
    return 2 * size * _CELL_NBYTES


_NOTHING = np.empty(0, np.uint8)


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
        self._under_way: Callable[[int], Bytes] | None = None
        """What a rank gets of the round whose barrier this rank has not left; None: there is none."""
        self._here = 0

    def send_again(self, peer: int) -> None:
        """Send what is under way to `peer`, too, which has come back. One-sided."""
        if (piece := self._under_way) is not None:
            self._window.put(piece(peer), peer, self._here)
            self._window.flush([peer])

    def allgather(self, data: bytes, what: str = "allgather") -> list[bytes]:
        """Return the `data` of every rank, by rank, the same on all ranks. Collective. `what`: the name of the call."""
        mine = np.frombuffer(data, np.uint8)
        parts: list[list[bytes]] = [[] for _ in range(self._size)]
        whole = [b""] * self._size
        for one in self._exchange(mine, what):
            for rank, piece in one.pieces.items():
                parts[rank].append(piece.tobytes())
        for rank in one.living:
            whole[rank] = b"".join(parts[rank])
        return whole

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank. Collective."""
        received: dict[int, list[Bytes]] = {rank: [] for rank in range(self._size)}
        others = {rank: part for rank, part in parts.items() if rank != self._rank}
        for one in self._exchange_each(others, "alltoall"):
            for rank, piece in one.pieces.items():
                received[rank].append(piece.copy())
        received[self._rank] = [parts.get(self._rank, _NOTHING)]
        return {rank: np.concatenate([*received[rank], np.empty(0, np.uint8)]) for rank in one.living}

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
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
                self._copy(given, mine)
                return

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective."""
        wide = reduction.accumulator(array.dtype)
        result = np.empty(array.size, array.dtype)
        while not self._reduce(array.astype(wide, copy=False).reshape(-1), result, op, weights):
            pass  # a rank has failed between two pieces: begin again
        self._copy(result, array.reshape(-1))

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

    def _copy(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Copy a flat array, and give heartbeats: the others may be further on, and wait for this rank."""
        length = _COPIED_NBYTES // source.itemsize
        for start in range(0, source.size, length):
            target[start : start + length] = source[start : start + length]
            self._barrier.heartbeat()

    def _exchange(self, mine: Bytes, what: str) -> Iterator[_Round]:
        """Exchange the data of all ranks, round by round, until all of it has come: `mine` is for all ranks."""
        return self._exchange_each(dict.fromkeys(range(self._size), mine), what)

    def _exchange_each(self, parts: Mapping[int, Bytes], what: str) -> Iterator[_Round]:
        """Exchange data, round by round, until all of it has come. `parts`: this rank's, by receiver.

        All ranks make the same number of rounds. A caller that stops early must stop at the same round on all ranks.
        """
        start, longest = 0, 1
        while start < longest:
            parity = self._barrier.next_number % 2
            living = self._put_pieces(parts, start, what, parity)
            most, pieces = {}, {}
            for rank in living:
                cell = self._window.memory[_offset(rank, parity) :][:_CELL_NBYTES]
                most[rank], nbytes = cell[: 2 * _HEAD.itemsize].view(_HEAD).tolist()
                left = min(nbytes - start, PIECE_NBYTES)
                if left > 0:
                    pieces[rank] = cell[64 : 64 + left]
            longest = max(most.values())
            yield _Round(living, start, pieces)
            start += PIECE_NBYTES

    def _enter(self, what: str) -> list[int]:
        """Enter a barrier; return the ranks that had not failed at it, ascending: the same on all ranks."""
        return sorted(set(range(self._size)) - self._barrier.enter(what))

    def _put_pieces(self, parts: Mapping[int, Bytes], start: int, what: str, parity: int) -> list[int]:
        longest = max((part.nbytes for part in parts.values()), default=0)
        sources: dict[int, Bytes] = {}
        """By the data that they are a piece of."""

        def source(rank: int) -> Bytes:
            """Return what is put for a rank: both lengths, and this piece of its part."""
            part = parts.get(rank, _NOTHING)
            if id(part) not in sources:
                head = np.array([longest, part.nbytes, *[0] * 6], _HEAD).view(np.uint8)
                sources[id(part)] = np.concatenate([head, part[start : start + PIECE_NBYTES]])
            return sources[id(part)]

        here = _offset(self._rank, parity)
        mine = source(self._rank)
        self._window.memory[here : here + len(mine)] = mine
        self._here, self._under_way = here, source  # before the ranks are listed: one may come back now
        others = [rank for rank in self._view.alive if rank != self._rank]
        for peer in others:
            self._window.put(source(peer), peer, here)
        if others:
            self._window.flush(others)
        try:
            living = self._enter(what)
        finally:
            self._under_way = None
        return living


def _offset(rank: int, parity: int) -> int:
    """Return where the cell of `rank` begins. `parity`: that of the number of the round's barrier.

    A cell is written again two barriers later, when all have read it.
    """
    return (2 * rank + parity) * _CELL_NBYTES
