"""Collectives in rounds. In each round every rank gives others a piece of its data, and enters a barrier.

The barrier gives all ranks the same list of failed ranks. So where a rank fails in the middle of a call, all others get
the same result. A rank that is not in the list has given its piece before it entered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.errors import PeerLost
from dstorm.membership.barriers.barrier import Barrier
from dstorm.transport import Bytes
from dstorm.view import View

_COPIED_NBYTES = 1 << 24
"""What is copied from one heartbeat to the next."""
NOTHING = np.empty(0, np.uint8)

Array = NDArray[Any]


class Round(NamedTuple):
    """A round, as one rank has taken part in it."""

    living: list[int]
    """The ranks that had not failed at its barrier, ascending; the same on all ranks."""
    start: int
    """Offset of its pieces in the data, where all ranks get the same of it."""
    pieces: dict[int, Bytes]
    """The pieces of the live ranks that had one, by rank: views, valid until the next round."""


class RoundCollectives(ABC):
    """The base of the collectives of `rank`. `view`, `barrier`: of that rank."""

    def __init__(self, rank: int, view: View, barrier: Barrier) -> None:
        self._rank, self._size, self._view, self._barrier = rank, view.size, view, barrier

    def allgather(self, data: bytes, what: str = "allgather") -> list[bytes]:
        """Return the `data` of every rank, by rank, the same on all ranks. Collective. `what`: the name of the call."""
        parts: list[list[bytes]] = [[] for _ in range(self._size)]
        for one in self._exchange(np.frombuffer(data, np.uint8), what):
            for rank, piece in one.pieces.items():
                parts[rank].append(piece.tobytes())
        whole = [b""] * self._size
        for rank in one.living:
            whole[rank] = b"".join(parts[rank])
        return whole

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank. Collective."""
        received = {rank: [NOTHING] for rank in range(self._size)}
        for one in self._exchange_each({rank: part for rank, part in parts.items() if rank != self._rank}, "alltoall"):
            for rank, piece in one.pieces.items():
                received[rank].append(piece.copy())
        received[self._rank].append(parts.get(self._rank, NOTHING))
        return {rank: np.concatenate(received[rank]) for rank in one.living}

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
        mine = array.reshape(-1).view(np.uint8)
        given, is_whole = np.empty_like(mine), False
        while not is_whole:
            sender = self._view.lowest if root is None else root  # a failed one, where a rank has not noticed that
            for living, start, pieces in self._exchange(mine if self._rank == sender else mine[:0], "broadcast"):
                if root is not None and root not in living:
                    raise PeerLost(root, "broadcast needs its array")
                for piece in pieces.values():
                    given[start : start + len(piece)] = piece
                is_whole = bool(pieces) or not mine.size  # else begin again
        self._copy(given, mine)

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective."""
        wide = reduction.accumulator(array.dtype)
        result = np.empty(array.size, array.dtype)
        while not self._reduce(array.astype(wide, copy=False).reshape(-1), result, op, weights):
            pass  # a rank has failed between two pieces: begin again
        self._copy(result, array.reshape(-1))

    def _reduce(self, mine: Array, result: Array, op: str, weights: Mapping[int, float] | None) -> bool:
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
                self._combine(result[here : here + parts[ranks[0]].size], parts, op, weights)
        return True

    def _combine(
        self, result: Array, parts: Mapping[int, Array], op: str, weights: Mapping[int, float] | None
    ) -> None:  # fmt: skip
        """Reduce one piece of each rank that counts into `result`. Collective."""
        reduction.reduce_into(result, parts, op, weights)

    def _copy(self, source: Array, target: Array) -> None:
        """Copy a flat array, and give heartbeats: the others may be further on, and wait for this rank."""
        length = _COPIED_NBYTES // source.itemsize
        for start in range(0, source.size, length):
            target[start : start + length] = source[start : start + length]
            self._barrier.heartbeat()

    def _exchange(self, mine: Bytes, what: str) -> Iterator[Round]:
        """Exchange the data of all ranks, round by round, until all of it has come: `mine` is for all ranks.

        All ranks make the same number of rounds. A caller that stops early must stop at the same round on all ranks.
        """
        return self._exchange_each(dict.fromkeys(range(self._size), mine), what)

    @abstractmethod
    def _exchange_each(self, parts: Mapping[int, Bytes], what: str) -> Iterator[Round]:
        """Exchange data that differ by receiver, in the same way. `parts`: this rank's, by receiver."""
