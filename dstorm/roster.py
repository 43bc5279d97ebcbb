"""The roster: how far each rank has come, in every rank's memory. So that whoever waits for all knows for whom.

A cell for each rank, which alone writes it into the memory of all others: how many meetings it has come to, what the
last of them is called, and how many steps it has made. A meeting is a barrier: a rank leaves it when it has seen all
others come. Ranks that come to meetings of different names have lost each other's way, and are told at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from dstorm import stamp
from dstorm.errors import DeadlinePassed, MismatchedCalls
from dstorm.stamp import WHOLE, Stamp
from dstorm.transport import Transport, Window

_BEATS_A_DEADLINE = 10
_LONGEST_BEAT_S = 1.0
_NAME_NBYTES = 64
"""The name of the meeting, cut to this length, lies in front of the stamp, which holds its checksum."""
_CELL_NBYTES = _NAME_NBYTES + stamp.NBYTES


def nbytes(size: int) -> int:
    """The memory that the roster of `size` ranks takes of each."""
    return size * _CELL_NBYTES


class Roster:
    """One rank's view of how far all have come. `window` has nbytes(transport.size) bytes and serves nothing else."""

    def __init__(self, transport: Transport, window: Window, deadline_s: float) -> None:
        self._transport = transport
        self._clock = transport.clock
        self._window = window
        self.deadline_s = deadline_s
        """How long a meeting lasts without a step of those who are missing."""
        self._others = [rank for rank in range(transport.size) if rank != transport.rank]
        self._meetings = 0
        self._steps = 0
        self._cell = np.zeros(_CELL_NBYTES, np.uint8)
        self._name = b""
        now = transport.clock()
        self._seen = dict.fromkeys(self._others, stamp.BLANK)
        self._heard_at = dict.fromkeys(self._others, now)
        self._beat_s = min(deadline_s / _BEATS_A_DEADLINE, _LONGEST_BEAT_S)
        self._told_at = now

    def beat(self) -> None:
        """Count a step of this rank; now and then tell the others. One-sided."""
        self._steps += 1
        if self._clock() - self._told_at > self._beat_s:
            self._tell(self._meetings)

    def meet(self, what: str, patience_s: float | None = None) -> None:
        """Return when all ranks have come. Collective.

        DeadlinePassed: ranks are missing that have made no step for the deadline, or have not come within `patience_s`,
        whatever they do; a later call waits for them again. MismatchedCalls: a rank has come to another meeting.
        """
        self._name = what.encode()[:_NAME_NBYTES]
        self._tell(self._meetings + 1)
        start = self._transport.clock()
        polls = 0
        while missing := self._missing(self._meetings + 1):
            self._check_names(what)
            now = self._transport.clock()
            silent = now - max(start, *(self._heard_at[rank] for rank in missing)) > self.deadline_s
            if silent or (patience_s is not None and now - start > patience_s):
                silent_s = {rank: now - self._heard_at[rank] for rank in missing}
                raise DeadlinePassed(what, {rank: self._seen[rank].step for rank in missing}, silent_s)
            self._transport.pause(polls)
            polls += 1
        self._check_names(what)
        self._meetings += 1

    def _check_names(self, what: str) -> None:
        mine = zlib.crc32(self._name)
        for rank in self._others:
            seen = self._seen[rank]
            if seen.number == self._meetings + 1 and seen.encoding != mine:
                raise MismatchedCalls(self._transport.rank, what, rank, self._name_of(rank))

    def _name_of(self, rank: int) -> str:
        """What `rank` calls the meeting it has come to."""
        start = rank * _CELL_NBYTES
        name = self._window.memory[start : start + _NAME_NBYTES].tobytes().rstrip(b"\0")
        return name.decode(errors="replace") if zlib.crc32(name) == self._seen[rank].encoding else "another call"

    def _tell(self, meetings: int) -> None:
        self._cell[:_NAME_NBYTES] = np.frombuffer(self._name.ljust(_NAME_NBYTES, b"\0"), np.uint8)
        stamp.write(self._cell.data, _NAME_NBYTES, Stamp(meetings, self._steps, WHOLE, zlib.crc32(self._name)))
        for peer in self._others:
            self._window.put(self._cell, peer, self._transport.rank * _CELL_NBYTES)
        self._window.flush(self._others)
        self._told_at = self._transport.clock()

    def _missing(self, meeting: int) -> Sequence[int]:
        self._window.sync()
        return [rank for rank in self._others if self._look(rank).number < meeting]

    def _look(self, rank: int) -> Stamp:
        """The newest that is known of `rank`."""
        seen = stamp.read(self._window.memory.data, rank * _CELL_NBYTES + _NAME_NBYTES)
        if seen is not None and seen != self._seen[rank]:
            self._seen[rank] = seen
            self._heard_at[rank] = self._transport.clock()
        return self._seen[rank]
