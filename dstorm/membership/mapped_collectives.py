"""Collectives of the ranks of one host, which have mapped each other's memory. No rank can fail alone.

In each round every rank writes a piece of its data into its own memory, enters a barrier, and reads the pieces of
others where they are. Each wait is that of a barrier, which leaves the core to others. MPI's own calls keep it: they
took five times as long where other programs run on the same cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import reduction
from dstorm.membership.barriers.barrier import Barrier
from dstorm.transport import Bytes

_PIECE_NBYTES: Final = 1 << 18
_HEAD_NBYTES: Final = 64
"""The length of the data of a rank stands there, before each of its pieces."""
_CELL_NBYTES: Final = _HEAD_NBYTES + _PIECE_NBYTES
_ALONE_NBYTES: Final = 1 << 15
"""Pieces of no more bytes, of all ranks together, are reduced by each rank: a barrier costs more than that."""
NBYTES: Final = 3 * _CELL_NBYTES
"""What they take of each rank's memory: two cells for pieces, in turns, and one for what it has reduced of them."""

Array = NDArray[Any]


class MappedCollectives:
    """The collectives of `rank`. The constructor is Local.

    `parts`: NBYTES of each rank, used for nothing else. `fence()`: orders the loads and stores of this core before the
    call with those after it. `barrier`: where it says the number of the next barrier, and `enter(what)` enters that.
    """

    def __init__(
        self, rank: int, parts: Mapping[int, Bytes], fence: Callable[[], None], barrier: Barrier,
        enter: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._rank, self._size = rank, len(parts)
        self._fence, self._barrier, self._enter = fence, barrier, enter
        self._pieces = [{of: _cell(part, number) for of, part in parts.items()} for number in range(2)]
        self._reduced = {of: _cell(part, 2) for of, part in parts.items()}

    def allgather(self, data: bytes) -> list[bytes]:
        """Return the `data` of every rank, by rank. Collective."""
        parts: list[list[bytes]] = [[] for _ in range(self._size)]
        for _, pieces in self._rounds(np.frombuffer(data, np.uint8), "allgather"):
            for rank, piece in pieces.items():
                parts[rank].append(piece.tobytes())
        return [b"".join(part) for part in parts]

    def alltoall(self, parts: Mapping[int, Bytes]) -> dict[int, Bytes]:
        """Return what each rank has sent to this one, by rank. Collective."""
        none = np.empty(0, np.uint8)
        sent = [parts.get(rank, none) if rank != self._rank else none for rank in range(self._size)]
        ends = np.cumsum([8 * self._size, *(part.nbytes for part in sent)])
        spans, received = {}, {}
        for start, pieces in self._rounds(np.concatenate([ends[1:].view(np.uint8), *sent]), "alltoall"):
            for rank, piece in pieces.items():
                if not start:
                    theirs = [8 * self._size, *piece[: 8 * self._size].view(np.int64).tolist()]
                    spans[rank] = theirs[self._rank], theirs[self._rank + 1]
                    received[rank] = np.empty(spans[rank][1] - spans[rank][0], np.uint8)
                first, last = (min(max(end - start, 0), len(piece)) for end in spans[rank])
                at = start + first - spans[rank][0]
                received[rank][at : at + last - first] = piece[first:last]
        return received | {self._rank: parts.get(self._rank, none).copy()}

    def broadcast(self, array: Array, root: int | None = None) -> None:
        """Replace `array` by that of `root`. Collective."""
        source, data = root or 0, array.reshape(-1).view(np.uint8)
        given = np.empty_like(data)
        for start in range(0, max(data.size, 1), _PIECE_NBYTES):
            piece = data[start : start + _PIECE_NBYTES]
            found = self._exchanged({_HEAD_NBYTES: piece} if self._rank == source else {}, "broadcast")[source]
            given[start : start + len(piece)] = found[_HEAD_NBYTES:][: len(piece)]
        data[:] = given

    def allreduce(self, array: Array, op: str = "mean", weights: Mapping[int, float] | None = None) -> None:
        """Replace `array` by the mean, sum, max or min over the ranks: the same bits on all ranks. Collective."""
        ranks, wide = reduction.counting(weights, range(self._size)), reduction.accumulator(array.dtype)
        flat, length = array.reshape(-1), _PIECE_NBYTES // wide.itemsize
        result = np.empty_like(flat)
        for start in range(0, max(flat.size, 1), length):
            piece = flat[start : start + length].astype(wide, copy=False)
            cells = self._exchanged({_HEAD_NBYTES: piece.view(np.uint8)}, "allreduce")
            parts = {rank: cells[rank][_HEAD_NBYTES:][: piece.nbytes].view(wide) for rank in ranks}
            self._reduce(parts, result[start : start + length], op, weights)
        flat[:] = result

    def _reduce(self, parts: Mapping[int, Array], result: Array, op: str, weights: Mapping[int, float] | None) -> None:
        """Reduce one piece: where it is long each rank a block of it, which the others then read."""
        if result.nbytes * self._size <= _ALONE_NBYTES:
            return reduction.reduce_into(result, parts, op, weights)
        ends = [place * result.size // self._size for place in range(self._size + 1)]
        mine = slice(ends[self._rank], ends[self._rank + 1])
        cells = self._reduced
        reduced = {rank: cells[rank][: result.nbytes].view(result.dtype) for rank in range(self._size)}
        blocks = {rank: part[mine] for rank, part in parts.items()}
        reduction.reduce_into(reduced[self._rank][mine], blocks, op, weights)
        self._meet("allreduce")
        for rank in range(self._size):
            block = slice(ends[rank], ends[rank + 1])
            result[block] = reduced[rank][block]

    def _rounds(self, data: Bytes, what: str) -> Iterator[tuple[int, dict[int, Bytes]]]:
        """The data of all ranks, piece by piece: where the pieces begin, and those of ranks that have one. Collective.

        They are views, valid until the next round.
        """
        start, longest = 0, 1
        while start < longest:
            head = np.full(1, data.nbytes, np.int64).view(np.uint8)
            cells = self._exchanged({0: head, _HEAD_NBYTES: data[start : start + _PIECE_NBYTES]}, what)
            lengths = {rank: int(cell[:8].view(np.int64)[0]) for rank, cell in cells.items()}
            longest = max(lengths.values())
            lengths = {rank: min(length - start, _PIECE_NBYTES) for rank, length in lengths.items()}
            yield start, {rank: cells[rank][_HEAD_NBYTES:][:length] for rank, length in lengths.items() if length > 0}
            start += _PIECE_NBYTES

    def _exchanged(self, written: Mapping[int, Bytes], what: str) -> Mapping[int, Bytes]:
        """Write these bytes into this rank's cell, each where its key says; the cells of all ranks. Collective.

        A cell is written again two barriers later: by then all have read it.
        """
        cells = self._pieces[self._barrier.next_number % 2]
        for offset, data in written.items():
            cells[self._rank][offset : offset + len(data)] = data
        self._meet(what)
        return cells

    def _meet(self, what: str) -> None:
        """Enter a barrier. What a rank has written before, all ranks read after it."""
        self._fence()
        self._enter(what)
        self._fence()


def _cell(part: Bytes, number: int) -> Bytes:
    return part[number * _CELL_NBYTES : (number + 1) * _CELL_NBYTES]
