"""Which rows each rank has in each epoch, in proportion to the speed of ranks, without a barrier between epochs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dstorm.queues.waiting import Waiting
from malt.data import speeds
from malt.data.shards import with_inherited
from malt.session import session
from malt.session.collectives import lowest
from malt.session.vectors import vector
from vol import Update
from vol.update import Array

_LEAST_S: Final = 0.1
"""Rows are dealt equally for so long. Time slices of the system are 4 ms: before, a rank that waits would seem slow."""
_CHANGE: Final = 0.2
"""A dealing stays unless a rank is to have so much more or less, as a share of the mean number of rows."""
_SPEED, _BEGUN, _FIRST = 0, 1, 2
"""Rows of the board: the speed of each rank in rows per second; the epoch that it has begun; the first epoch."""


@dataclass(eq=False)
class _Lowest:
    """The rank that decides, as one that is waited for."""

    peer: int
    step: int
    """The epoch that it has begun."""
    heard_at: float
    waited_s: float = 0.0


class Dealings:
    """The dealings of `count` rows for the epochs `first` to `last`. The constructor is Collective.

    Each row belongs to one rank in each epoch. The lowest live rank decides the dealing of epoch e + 1 as it begins
    epoch e, and publishes it by a one-sided write. The first two epochs are dealt as by malt.shard. A rank waits only
    if it begins an epoch of which it has not seen the dealing: it is then more than an epoch ahead of that rank.
    """

    def __init__(self, count: int, first: int, last: int) -> None:
        world = session.world()
        self._transport, self._count, self._first, self._last = world.transport, count, first, last
        board = np.zeros((_FIRST + max(last - first + 1, 2), world.size))
        board[_FIRST : _FIRST + 2] = speeds.even(count, world.size)
        self._vector = vector(board, name="the dealing of rows")
        self._waiting = Waiting(self._transport, world.deadline_s, lambda: None)
        self._began = self._transport.clock()

    @property
    def waited_s(self) -> float:
        """The seconds that this rank has waited for dealings. Local."""
        return self._waiting.total_s

    def begin(self, epoch: int, speed: float = 0.0) -> None:
        """Begin an epoch, from `first` to `last`, which may come again. One-sided.

        `speed`: the rows that this rank trains in a second; 0: as before, or not known. It may wait for the lowest live
        rank. DeadlinePassed: that rank is missing.
        """
        board, rank = self._vector.array, self._transport.rank
        board[_SPEED, rank] = speed or board[_SPEED, rank]
        board[_BEGUN, rank] = epoch
        self._vector.gather(_merged)
        self._decide(epoch + 1)
        self._vector.scatter()
        while not self._is_known(epoch):
            self._waiting.until_none("the dealing of rows", lambda: self._missing(epoch))

    def numbers(self, epoch: int) -> NDArray[np.float64]:
        """The number of rows of each rank in an epoch that was begun: a view. Local."""
        numbers: NDArray[np.float64] = self._vector.array[_FIRST + epoch - self._first]
        return numbers

    def rows(self, epoch: int, rank: int, failed: Collection[int] = ()) -> NDArray[np.intp]:
        """The rows of `rank` in an epoch that was begun, once the ranks of `failed` have failed, ascending. Local."""
        return with_inherited(speeds.parts(self.numbers(epoch)), rank, failed)

    def close(self) -> None:
        """Leave: this rank begins no other epoch. One-sided."""
        self._vector.close()

    def _is_known(self, epoch: int) -> bool:
        return epoch > self._last or not self._count or bool(self.numbers(epoch).any())

    def _missing(self, epoch: int) -> Sequence[_Lowest]:
        """The rank to wait for, if the dealing of `epoch` is not known. A rank that is the lowest now decides it."""
        self._vector.gather(_merged)
        self._transport.poll_failures()
        if self._decide(epoch):
            self._vector.scatter()
        if self._is_known(epoch):
            return []
        one = self._transport.view.lowest
        return [_Lowest(one, int(self._vector.array[_BEGUN, one]), self._transport.heard_at(one))]

    def _decide(self, epoch: int) -> bool:
        """Decide the dealing of `epoch`, if this rank is to, and nobody has. Return whether it did."""
        if self._is_known(epoch) or not lowest():
            return False
        before = self.numbers(epoch - 1)
        numbers = before
        if self._transport.clock() - self._began >= _LEAST_S:
            numbers = speeds.deal(self._count, self._speeds(), self._pending(epoch))
            if np.abs(numbers - before).max() <= _CHANGE * self._count / np.count_nonzero(self._speeds()):
                numbers = before
        self.numbers(epoch)[:] = numbers
        return True

    def _speeds(self) -> Array:
        """The speeds of the ranks: 0 for failed ones; of one that has ended no epoch, at most what it cannot exceed."""
        known = self._vector.array[_SPEED]
        most = speeds.even(self._count, known.size) / max(self._transport.clock() - self._began, 1e-9)
        mean = known[known > 0].mean() if known.any() else np.inf
        found = np.where(known > 0, known, np.minimum(mean, most))
        found[list(self._transport.view.failed)] = 0.0
        return found

    def _pending(self, epoch: int) -> Array:
        """The rows of each rank in epochs that it is late to begin: those before the last one before `epoch`.

        Ranks that are about as far as this one have none.
        """
        pending = np.zeros(self._transport.size)
        for rank, begun in enumerate(self._vector.array[_BEGUN]):
            late = range(max(int(begun) + 1, self._first), epoch - 1)
            pending[rank] = sum(self.numbers(one)[rank] for one in late)
        return pending


def _merged(own: Array, updates: list[Update]) -> None:
    """Each rank's own column of speeds and epochs as it sent it last, and all dealings that are known to anyone."""
    for update in updates:
        own[:_FIRST, update.sender] = update.values[:_FIRST, update.sender]
        np.maximum(own[_FIRST:], update.values[_FIRST:], out=own[_FIRST:])
