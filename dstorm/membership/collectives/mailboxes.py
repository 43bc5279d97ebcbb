"""Collectives of the live ranks, by Puts alone, in a job that goes on when a rank fails.

MPI's own collectives do not end when a rank fails in them.

Each rank has a mailbox: two cells for each rank, which are written in turns. In each round every rank puts a piece of
its data into all mailboxes, enters a barrier (dstorm/membership/barriers/barrier.py), and reads its mailbox.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.collectives.rounds import NOTHING, Round, RoundCollectives
from dstorm.transport import Bytes, Transport, Window

PIECE_NBYTES = 1 << 18
_HEAD = np.dtype(np.int64)
"""Two of them stand before a piece: the length of the longest data of its sender, and of that for the receiver."""
_CELL_NBYTES = PIECE_NBYTES + 64


def nbytes(size: int) -> int:
    """Bytes that a mailbox for `size` ranks takes of each rank's memory."""
    return 2 * size * _CELL_NBYTES


class Collectives(RoundCollectives):
    """The collectives of one rank. `window` has nbytes(transport.size) bytes and is used for nothing else."""

    def __init__(self, transport: Transport, window: Window, barrier: Barrier) -> None:
        super().__init__(transport.rank, transport.view, barrier)
        self._window = window
        self._under_way: Callable[[Sequence[int]], object] | None = None
        """Sends ranks what they get of the round whose barrier this rank has not left; None: there is none."""

    def send_again(self, peer: int) -> None:
        """Send what is under way to `peer`, too, which has come back. One-sided."""
        if (send := self._under_way) is not None:
            send([peer])

    def _exchange_each(self, parts: Mapping[int, Bytes], what: str) -> Iterator[Round]:
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
            yield Round(living, start, pieces)
            start += PIECE_NBYTES

    def _put_pieces(self, parts: Mapping[int, Bytes], start: int, what: str, parity: int) -> list[int]:
        """Put a piece to each rank, and enter a barrier; return the ranks that had not failed at it, ascending."""
        longest = max((part.nbytes for part in parts.values()), default=0)
        sources: dict[int, Bytes] = {}
        """By the data that they are a piece of."""

        def source(rank: int) -> Bytes:
            """Return what is put for a rank: both lengths, and this piece of its part."""
            part = parts.get(rank, NOTHING)
            if id(part) not in sources:
                head = np.array([longest, part.nbytes, *[0] * 6], _HEAD).view(np.uint8)
                sources[id(part)] = np.concatenate([head, part[start : start + PIECE_NBYTES]])
            return sources[id(part)]

        def send(peers: Sequence[int]) -> None:
            """Put them their pieces. One-sided."""
            for peer in peers:
                self._window.put(source(peer), peer, here)
            self._window.flush(peers)

        here = _offset(self._rank, parity)
        mine = source(self._rank)
        self._window.memory[here : here + len(mine)] = mine
        self._under_way = send  # before the ranks are listed: one may come back now
        send([rank for rank in self._view.alive if rank != self._rank])
        try:
            return sorted(set(range(self._size)) - self._barrier.enter(what))
        finally:
            self._under_way = None


def _offset(rank: int, parity: int) -> int:
    """Return where the cell of `rank` begins. `parity`: that of the number of the round's barrier.

    A cell is written again two barriers later, when all have read it.
    """
    return (2 * rank + parity) * _CELL_NBYTES
