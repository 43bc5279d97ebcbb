"""Collectives of the ranks of one host, which have mapped each other's memory. No rank can fail alone.

In each round every rank writes a piece of its data into its own memory, enters a barrier, and reads the pieces of
others where they are. Each wait is that of a barrier, which leaves the core to others. MPI's own calls keep it: they
took five times as long where other programs run on the same cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from dstorm import reduction
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.collectives.rounds import NOTHING, Array, Round, RoundCollectives
from dstorm.transport import Bytes
from dstorm.view import View

_PIECE_NBYTES: Final = 1 << 18
_CELLS: Final = 3
"""Two for pieces, in turns, and one for what a rank has reduced of them."""
_LINE_NBYTES: Final = 64
_ALONE_NBYTES: Final = 1 << 15
"""Pieces of no more bytes, of all ranks together, are reduced by each rank: a barrier costs more than that."""


def nbytes(size: int) -> int:
    """Bytes that the collectives of `size` ranks take of each rank's memory."""
    head_nbytes = -(-2 * np.int64().nbytes * size // _LINE_NBYTES) * _LINE_NBYTES
    return _CELLS * (head_nbytes + _PIECE_NBYTES)


class MappedCollectives(RoundCollectives):
    """The collectives of `rank`. The constructor is Local.

    `parts`: nbytes(size) of each rank, used for nothing else. `fence()`: orders the loads and stores of this core
    before the call with those after it. `barrier`: where it says the number of the next barrier, and `enter(what)`
    enters that.
    """

    def __init__(
        self, rank: int, view: View, barrier: Barrier, parts: Mapping[int, Bytes], fence: Callable[[], None],
        enter: Callable[[str], object],
    ) -> None:  # fmt: skip
        super().__init__(rank, view, barrier)
        self._fence, self._enter = fence, enter
        self._cells = [{of: part.reshape(_CELLS, -1)[number] for of, part in parts.items()} for number in range(_CELLS)]
        """By number, then by rank. Before a piece stand two numbers for each rank: where its part of the data of the
        sender begins, and where it ends."""

    def _exchange(self, mine: Bytes, what: str) -> Iterator[Round]:
        return self._rounds(mine, [0, mine.nbytes] * self._size, what)

    def _exchange_each(self, parts: Mapping[int, Bytes], what: str) -> Iterator[Round]:
        sent = [parts.get(rank, NOTHING) for rank in range(self._size)]
        ends = np.cumsum([0, *(part.nbytes for part in sent)]).tolist()
        return self._rounds(np.concatenate(sent), [end for span in pairwise(ends) for end in span], what)

    def _combine(
        self, result: Array, parts: Mapping[int, Array], op: str, weights: Mapping[int, float] | None
    ) -> None:  # fmt: skip
        """Reduce one piece: where it is long each rank a block of it, which the others then read."""
        if result.nbytes * self._size <= _ALONE_NBYTES:
            return reduction.reduce_into(result, parts, op, weights)
        ends = [place * result.size // self._size for place in range(self._size + 1)]
        mine = slice(ends[self._rank], ends[self._rank + 1])
        reduced = {rank: cell[: result.nbytes].view(result.dtype) for rank, cell in self._cells[-1].items()}
        blocks = {rank: part[mine] for rank, part in parts.items()}
        reduction.reduce_into(reduced[self._rank][mine], blocks, op, weights)
        self._meet("allreduce")
        for rank in range(self._size):
            block = slice(ends[rank], ends[rank + 1])
            result[block] = reduced[rank][block]

    def _rounds(self, data: Bytes, spans: Sequence[int], what: str) -> Iterator[Round]:
        """Exchange the data of all ranks. `spans`: by receiver, where its part of this rank's begins and ends.

        A cell is written again two barriers later: by then all have read it.
        """
        head, living = np.array(spans, np.int64).view(np.uint8), list(range(self._size))
        start, longest = 0, 1
        while start < longest:
            cells, pieces = self._cells[self._barrier.next_number % 2], {}
            piece = data[start : start + _PIECE_NBYTES]
            cells[self._rank][: len(head)] = head
            cells[self._rank][-_PIECE_NBYTES:][: len(piece)] = piece
            self._meet(what)
            for rank, cell in cells.items():
                theirs = cell[: len(head)].view(np.int64).tolist()
                longest = max(longest, *theirs)
                first, last = (min(max(end - start, 0), _PIECE_NBYTES) for end in theirs[2 * self._rank :][:2])
                if last > first:
                    pieces[rank] = cell[-_PIECE_NBYTES:][first:last]
            yield Round(living, start, pieces)
            start += _PIECE_NBYTES

    def _meet(self, what: str) -> None:
        """Enter a barrier. What a rank has written before, all ranks read after it."""
        self._fence()
        self._enter(what)
        self._fence()
