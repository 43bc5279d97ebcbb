"""Barriers over MPI: ranks pass on some bytes as they enter, and do not wait for their Puts. No rank can fail alone.

A rank enters a barrier in a cell of its own for that: it has some in the memory of each rank (`entries`), taken in
turn, each with room for a letter behind it (dstorm/membership/letters.py). Puts may overtake each other, so none may go
to a cell to which another one may be under way. So a rank flushes when it comes to a cell again, and not in each
barrier. All else is published in one cell, as by `Barrier`, with a flush.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from dstorm.errors import DeadlinePassed
from dstorm.membership import letters
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.decision import Word
from dstorm.membership.letters import Letter
from dstorm.membership.status import Cells
from dstorm.transport import Bytes, Transport, Window
from dstorm.waits import interruption

_MOST_ENTRIES: Final = 16
_MOST_CELLS: Final = 1024
"""The most cells in the memory of a rank, where all other ranks can have two each."""


def entries(size: int) -> int:
    """Return the cells that each of `size` ranks uses in turn to enter barriers: some may be one barrier ahead."""
    return min(max(_MOST_CELLS // size, 2), _MOST_ENTRIES)


def nbytes(size: int) -> int:
    """Bytes that the barrier of `size` ranks takes of each rank's memory."""
    cell = Cells(size).nbytes
    return size * (cell + entries(size) * (cell + letters.ROOM))


class GatheringBarrier(Barrier):
    """A barrier whose words are gathered. `window` has nbytes(transport.size) bytes and is used for nothing else."""

    leaves_puts = False
    """Whether a rank may leave a barrier before its Puts are complete: a thread of it calls MPI until they are."""

    def __init__(self, transport: Transport, window: Window, deadline_s: float) -> None:
        super().__init__(transport, window, deadline_s)
        cell, self._turns = self._cells.nbytes, entries(self._size)
        self._entries = Cells(self._size, start=self._size * cell, stride=cell + letters.ROOM)
        self._left: dict[int, Bytes] = {}
        """What was put and not waited for, by the number of the barrier: it must not change until then."""
        self._mine: tuple[int, bytes] | None = None
        """The number of the barrier at which this rank passes something on, and that; None: it does not."""
        self._given: tuple[int, bytes] = (0, b"")
        """The same, of the last barrier at which it did."""
        self._given_by = ""
        """The name of the call that did."""
        self._letters: dict[int, Letter] = {}
        """Those of the other ranks at that barrier."""

    @interruption.whole
    def gather(self, what: str, data: bytes) -> tuple[list[Letter], bytes]:
        """Return when all ranks have entered the barrier, as `enter`: the letters of all, by rank. Collective.

        And the data of this rank: those of the first call, where it is a second one of that name after DeadlinePassed.
        Others may have got these, and have left.

        The errors of `enter`. All ranks of the barrier call this.
        """
        with self._call_lock.taken(what):
            call = self.calls.name(what)
            if (self._given[0], self._given_by) != (self.next_number, call):
                self._given, self._given_by = (self.next_number, data), call
            self._mine, self._letters = self._given, {}
            try:
                self._enter(call, None, final=False, mark=False)
            except DeadlinePassed:
                raise
            except BaseException:  # of a signal: the next call has data of its own
                self._given_by = ""
                raise
            finally:
                self._mine = None
        _, data = self._given
        self._letters[self._rank] = Letter(len(data), data[: letters.MOST])
        return [self._letters[rank] for rank in range(self._size)], data

    def _decision(self, number: int, what: str) -> int | None:
        decision = super()._decision(number, what)
        if decision is None or self._mine is None:
            return decision
        for rank in self._others:
            if rank not in self._letters:
                at = self._entries.at(self._place(rank, number)) + self._entries.nbytes
                letter = letters.read(self._window.memory, at, number)
                if letter is None:
                    return None
                self._letters[rank] = letter
        return decision

    def _send(self, others: Sequence[int], enters: bool) -> None:
        if not enters:
            super()._send(others, enters)
            return self._left.clear()
        number = self.membership.own.entered
        source = self._cell.copy()
        if self._mine is not None:
            source = np.concatenate([source, letters.written(*self._mine)])
        if any((number - before) % self._turns == 0 for before in self._left):
            self._flush(others)
        self._left[number] = source
        for peer in others:
            self._window.put(source, peer, self._entries.at(self._place(self._rank, number)))
        if others and not self.leaves_puts:
            self._flush(others)

    def _flush(self, others: Sequence[int]) -> None:
        self._window.flush(others)
        self._left.clear()

    def word(self, rank: int) -> Word | None:
        """The newest word of `rank`: what it has published, or a barrier that it has entered since."""
        found, known = super().word(rank), self.membership.words[rank]
        newest = known if found is None else max(found, known, key=_age)
        number = newest.entered  # where it has withdrawn, it may have entered that once more
        while number <= newest.entered + 1:
            entered = self._entries.read(self._window.memory, self._place(rank, number))
            if entered is not None and _age(entered) > _age(newest):
                newest = entered
            number += 1
        return newest

    def name_of(self, rank: int, number: int | None = None) -> str:
        """The name of the call for which a rank has entered a barrier, from its cell for that. Local."""
        word = self.membership.words[rank]
        number = word.entered if number is None else number
        place, called = self._place(rank, number), word.called(number)
        entered = self._entries.read(self._window.memory, place)
        if entered is not None and entered.name == called:
            return self._entries.name(self._window.memory, place, called)
        return super().name_of(rank, number)

    def _place(self, rank: int, number: int) -> int:
        """The number of the cell in which `rank` enters barrier `number`."""
        return rank * self._turns + number % self._turns


def _age(word: Word) -> tuple[int, int]:
    """Return what grows from each word of a rank to the next one in another cell: to withdraw is a heartbeat, too."""
    return word.heartbeats, word.entered
