"""MPI's collective calls, each after a barrier, which has a deadline, and leaves the core to ranks that still train."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.membership import letters
from dstorm.membership.letters import Letter
from dstorm.transport import Bytes
from dstorm.transports.mpi.library import wait_for

_BROADCAST_NBYTES = 1 << 24
"""Bytes that are broadcast at once. They must get through within the deadline."""
_REDUCE_NBYTES = 1 << 23
"""Bytes that are reduced at once, so that buffers stay small."""
_COMBINE = {"mean": MPI.SUM, "sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
_LEAST_BLOCK = 256
"""The fewest elements that one rank reduces, where a piece has as many. Fewer are not worth a message."""


class MpiCollectives:
    """The collectives of the ranks of `comm`, over networks, and before they have memory of each other. Local.

    `barrier(call)`: enters one, whose wait has a deadline and yields the core, as MPI's own does not. `calling(call)`:
    watches MPI's `call`.
    """

    gather: Callable[[str, bytes], tuple[list[Letter], bytes]] | None = None
    """A barrier with letters, once there is one: `GatheringBarrier.gather`."""

    def __init__(
        self, comm: MPI.Intracomm, barrier: Callable[[str], object],
        calling: Callable[[str], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        self._comm, self._barrier, self._calling = comm, barrier, calling
        self._rank, self._size = comm.rank, comm.size

    def allgather(self, data: bytes) -> list[bytes]:
        """The `data` of every rank, by rank; b"" for failed ranks. Collective. Lengths may differ."""
        call, lengths = "MPI_Allgatherv", np.empty(self._size, np.int64)
        if self.gather is None:
            with self._calling(call):
                wait_for(self._comm.Iallgather(np.array([len(data)], np.int64), lengths))
                everything = np.empty(int(lengths.sum()), np.uint8)
                wait_for(self._comm.Iallgatherv(np.frombuffer(data, np.uint8), (everything, lengths)))
                return _parts(everything, lengths)
        found, data = self.gather(call, data)
        lengths[:] = [one.length for one in found]
        if lengths.max() <= letters.MOST:
            return [one.data for one in found]
        everything = np.empty(int(lengths.sum()), np.uint8)
        with self._calling(call):
            self._comm.Allgatherv(np.frombuffer(data, np.uint8), (everything, lengths))
        return _parts(everything, lengths)

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each live rank has sent to this one, by rank, ascending. Collective."""
        none = np.empty(0, np.uint8)
        sent = [parts.get(rank, none) if rank != self._rank else none for rank in range(self._size)]
        lengths, lengths_here = np.array([part.nbytes for part in sent], np.int64), np.empty(self._size, np.int64)
        filled = [part for part in sent if part.nbytes] or [none]
        whole = np.concatenate(filled) if len(filled) > 1 else np.ascontiguousarray(filled[0])
        self._barrier("MPI_Alltoallv")
        with self._calling("MPI_Alltoallv"):
            self._comm.Alltoall(lengths, lengths_here)
            received = np.empty(int(lengths_here.sum()), np.uint8)
            self._comm.Alltoallv((whole, lengths), (received, lengths_here))
        found = dict(enumerate(np.split(received, np.cumsum(lengths_here)[:-1])))
        return found | {self._rank: parts.get(self._rank, none).copy()}

    def allreduce(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Replace `array` by the mean, sum, max or min over the live ranks: the same bits on all ranks. Collective."""
        # MPI_Allreduce may combine in any order, and round differently on each rank.
        flat = array.reshape(-1)
        ranks = reduction.counting(weights, range(self._size))
        for piece in self._in_pieces("MPI_Alltoallv", flat, _REDUCE_NBYTES):
            self._reduce(piece, ranks, op, weights)

    def _reduce(
        self, piece: NDArray[Any], ranks: Sequence[int], op: str, weights: Mapping[int, float] | None
    ) -> None:  # fmt: skip
        """Reduce one piece. Each rank receives its block from all ranks, reduces it, and sends the result to all."""
        wide = piece.astype(reduction.accumulator(piece.dtype), copy=False)
        block = max(-(-piece.size // self._size), _LEAST_BLOCK)
        counts = np.diff(np.minimum(np.arange(self._size + 1) * block, piece.size))
        blocks = np.empty((self._size, int(counts[self._rank])), wide.dtype)
        sent, received = (wide.view(np.uint8), counts * wide.itemsize), blocks.reshape(-1).view(np.uint8)
        self._comm.Alltoallv(sent, (received, [blocks[0].nbytes] * self._size))
        result = np.empty(blocks.shape[1], piece.dtype)
        reduction.reduce_into(result, {rank: blocks[rank] for rank in ranks}, op, weights)
        self._comm.Allgatherv(result.view(np.uint8), (piece.view(np.uint8), counts * piece.itemsize))

    def reduce_and_broadcast(
        self, array: NDArray[np.generic], op: str = "mean", weights: Mapping[int, float] | None = None
    ) -> None:  # fmt: skip
        """Combine arrays by MPI_Reduce and MPI_Bcast (`Transport.allreduce_by_mpi`). Collective."""
        if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
            raise ValueError(f"MPI_Reduce cannot combine {array.dtype}")
        ranks = reduction.counting(weights, range(self._size))
        by_weight = dict(zip(ranks, reduction.factors(op, weights, ranks), strict=False))
        given: NDArray[Any] = array.reshape(-1).astype(reduction.accumulator(array.dtype).newbyteorder("="))
        if op == "mean":
            given = given * by_weight.get(self._rank, 1.0) if self._rank in ranks else np.zeros_like(given)
        for piece in self._in_pieces("MPI_Reduce", given, _BROADCAST_NBYTES):
            whole = np.empty_like(piece)
            self._comm.Reduce(piece, whole, _COMBINE[op], 0)
            self._comm.Bcast(whole, 0)
            piece[:] = whole
        if op == "mean":
            given /= math.fsum(by_weight.values()) if by_weight else len(ranks)
        array[...] = given.reshape(array.shape)

    def broadcast(self, array: NDArray[np.generic], root: int | None = None) -> None:
        """Replace `array` by that of `root`, by default the lowest live rank. Collective."""
        for piece in self._in_pieces("MPI_Bcast", array.reshape(-1).view(np.uint8), _BROADCAST_NBYTES):
            self._comm.Bcast(piece, root or 0)

    def _in_pieces(self, call: str, array: NDArray[Any], nbytes: int) -> Iterator[NDArray[Any]]:
        """Enter a barrier; yield pieces of a flat array, with each of which MPI's `call` is watched."""
        self._barrier(call)
        for start in range(0, array.size, length := nbytes // array.itemsize):
            with self._calling(call):
                yield array[start : start + length]


def _parts(everything: Bytes, lengths: NDArray[np.int64]) -> list[bytes]:
    """The bytes of each rank, which lie one after the other in `everything`."""
    ends = np.cumsum(lengths)
    return [everything[end - length : end].tobytes() for length, end in zip(lengths, ends, strict=True)]
