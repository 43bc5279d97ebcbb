"""The part that a rank takes in the agreement on who goes on, in any of its threads.

dstorm/membership/quorum.py decides. Here are the locks around it, and the cells of shared memory in which ranks of one
host publish their states to each other.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from dstorm.membership import votes
from dstorm.membership.decision import ranks
from dstorm.membership.quorum import IsLinked, Quorum
from dstorm.membership.votes import State, from_bytes
from dstorm.transport import Window
from dstorm.waits.stopwatch import Stopwatch

_HEAD = struct.Struct("<IQ")
"""Checksum of what follows; how often the state was published."""


def nbytes(size: int) -> int:
    """Bytes that the states of `size` ranks take of each rank's memory."""
    return size * _cell_nbytes(size)


def _cell_nbytes(size: int) -> int:
    return -(-(_HEAD.size + votes.nbytes(size)) // 64) * 64


class Arbiter:
    """The agreement as `rank`, one of `size` ranks, sees it. All methods are Local. Any thread may call them.

    `find_ended()`: incarnations of ranks that are known for certain to have ended, the newest of each. These have
    failed without an agreement. `find_started()`: incarnations that were started, of all that `find_ended` has given,
    and of those that came before these have ended. `incarnation`: of this rank. `absent`: the ranks that are no members
    at first, the same for all ranks. `goes_on`: False, if the job ends with the first failure: then nothing is agreed
    upon, and a rank that is lost counts as one that has ended.
    """

    def __init__(
        self, rank: int, size: int, find_ended: Callable[[], Mapping[int, int]] = dict,
        clock: Callable[[], float] | None = None, find_started: Callable[[], Mapping[int, int]] = dict,
        incarnation: int = 0, absent: Collection[int] = (), goes_on: bool = True,
    ) -> None:  # fmt: skip
        self.rank, self.size, self._goes_on = rank, size, goes_on
        self._find_ended, self._find_started = find_ended, find_started
        self._clock = clock or Stopwatch().seconds
        """Time in which this process was stopped is no time in which others might have answered."""
        self._quorum = Quorum(rank, size, incarnation, absent)
        self.is_linked: IsLinked = lambda rank: True
        """Whether this rank has connections to and from one that is to become a member, as for `Quorum.decide`."""
        self._deciding = threading.RLock()
        self.is_undecided = False
        """Whether it is not decided yet who goes on. Each change of the agreement renews it, as calls ask it often."""
        self._states: dict[int, State] = {}
        """The last state that each other rank has published."""
        self._told: dict[int, State] = {}
        """The last state that each rank of another host was sent."""
        self._votes: dict[int, dict[int, int]] = {}
        """The answers to each question."""
        self._window: Window | None = None
        self._near: Collection[int] = ()
        self._counts: dict[int, int] = {}
        self._published = 0

    def share(self, window: Window, near: Collection[int]) -> None:
        """Publish states to the ranks `near`, of this host, in `window`, which has nbytes(size) bytes of each."""
        self._window, self._near = window, near

    @property
    def is_outside(self) -> bool:
        """True if this rank was started again, and is no member yet."""
        return self._quorum.is_outside

    def has(self, rank: int) -> bool:
        """Return whether `rank` goes on with this one: both are members."""
        state = self._quorum.state
        return bool(state.members >> rank & 1) and not self.has_ended(rank, state.incarnations[rank])

    def has_ended(self, rank: int, incarnation: int) -> bool:
        """Return whether that incarnation of `rank` is known to have ended."""
        return self._quorum.state.over[rank] > incarnation

    def failed(self) -> list[int]:
        """The ranks that do not go on: they have ended, or the others go on without them.

        None, while this rank is no member itself.
        """
        state = self._quorum.state
        if self.is_outside:
            return []
        return sorted(set(range(self.size)) - ranks(state.members & ~state.ended) - {self.rank})

    def was_cut_off(self, rank: int) -> bool:
        """Return whether the others go on without `rank`, of which nobody knows that it has ended."""
        state = self._quorum.state
        return not self.is_outside and not (state.members | state.ended) >> rank & 1

    def suspect(self, lost: Iterable[int]) -> None:
        """Note that this rank has lost the ranks `lost`."""
        if not self._goes_on:
            return self.note_over(dict.fromkeys(lost, 0))
        with self._deciding:
            self._quorum.suspect(lost)
            self.is_undecided = self._quorum.is_undecided

    def note_over(self, incarnations: Mapping[int, int]) -> None:
        """Note that these incarnations of ranks, and all before, are known to have ended."""
        with self._deciding:
            self._quorum.note_over(incarnations)
            self.is_undecided = self._quorum.is_undecided

    def over(self) -> list[int]:
        """The ranks none of whose incarnations runs, as far as this rank knows."""
        state = self._quorum.state
        return [rank for rank in range(self.size) if state.over[rank] > state.started[rank]]

    def propose(self, newcomer: int, incarnation: int) -> bool:
        """Propose `newcomer` as a member (`Quorum.propose`); return False if this rank has no connections to it."""
        with self._deciding:
            return bool(self.is_linked(newcomer)) and self._quorum.propose(newcomer, incarnation)

    def note(self, peer: int, data: bytes) -> None:
        """Note the state that `peer` has published, as bytes. One of another length is ignored."""
        try:
            state = from_bytes(data, self.size)
        except ValueError:
            return
        with self._deciding:
            self._states[peer] = state
            self._quorum.note(peer, state, self._clock())
            self.is_undecided = self._quorum.is_undecided

    def decide(self) -> str:
        """Take part in the agreement; return why this rank must leave, or "". To be called again and again."""
        with self._deciding:
            ended = self._find_ended()  # before what they have left is read: see dstorm/membership/quorum.py
            self._quorum.note_started(self._find_started())
            self._read_near()
            self._quorum.note_over(ended)
            self._quorum.decide(self._clock(), self.is_linked)
            self.is_undecided = self._quorum.is_undecided
            self._publish_near()  # before any rank of another host learns of it: see `is_confirmed`
            return self._quorum.why

    def tell(self, peer: int, send: Callable[[bytes], bool]) -> None:
        """Send the state to `peer`, or b"" where it knows that, and nothing is to be decided.

        send(data): returns whether it is sent. What is not is sent the next time, also where `peer` has published the
        same meanwhile: it must know that this rank has come to it, too.
        """
        state = self._quorum.state
        is_known = self._told.get(peer) == state == self._states.get(peer)
        if send(b"" if is_known and not self.is_undecided else state.to_bytes()):
            self._told[peer] = state

    def answer(self, peer: int, number: int) -> bytes:
        """The answer to question `number` of `peer`, which asks to be confirmed."""
        with self._deciding:
            vote = self._quorum.grant(peer, self._clock())
        return number.to_bytes(8, "little") + vote.to_bytes(-(-self.size // 8), "little")

    def note_answer(self, peer: int, data: bytes) -> None:
        """Note the answer of `peer` to a question of this rank."""
        number, vote = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")
        with self._deciding:
            if number in self._votes:
                self._votes[number][peer] = vote

    def begin(self, number: int) -> list[int]:
        """Begin question `number`; return the other members, or [] where this rank may not ask yet, or is alone."""
        with self._deciding:
            self._votes = {number: {}}
            return sorted(ranks(self._quorum.members) - {self.rank}) if self._quorum.may_ask else []

    def is_confirmed(self, number: int) -> bool:
        """Return whether a quorum of the members keeps this rank, by their answers to question `number`.

        Ranks of this host are not asked: their votes are read in shared memory, where they are published first.
        """
        with self._deciding:
            self._read_near()
            keeps = self._quorum.state.keeps
            near = {peer: keeps[peer] for peer in self._near}
            return self._quorum.is_confirmed({**near, **self._votes.get(number, {})})

    def _publish_near(self) -> None:
        if self._window is None:
            return
        self._published += 1
        data = self._quorum.state.to_bytes()
        body = self._published.to_bytes(8, "little") + data
        cell = np.frombuffer(zlib.crc32(body).to_bytes(4, "little") + body, np.uint8)
        for peer in self._near:
            self._window.put(cell, peer, self.rank * _cell_nbytes(self.size))

    def _read_near(self) -> None:
        if self._window is None:
            return
        self._window.sync()
        for peer in self._near:
            start = peer * _cell_nbytes(self.size)
            cell = self._window.memory[start : start + _HEAD.size + votes.nbytes(self.size)].tobytes()
            if len(cell) < _HEAD.size:  # the memory is freed
                return
            check, count = _HEAD.unpack_from(cell)
            if count != self._counts.get(peer, 0) and zlib.crc32(cell[4:]) == check:
                self._counts[peer] = count
                self.note(peer, cell[_HEAD.size :])
