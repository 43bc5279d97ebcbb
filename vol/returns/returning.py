"""Ranks that come back to one vector: how this rank takes them up, and what a newcomer asks and gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dstorm import DeadlinePassed, Queues, Transport
from dstorm.errors import Refused
from dstorm.membership.returns.returns import Answer, Opening, Returns
from dstorm.queues.consistency import Consistency
from dstorm.queues.waits.waiting import Awaited
from dstorm.view import Member
from dstorm.waits.stopwatch import Stopwatch
from vol.returns.packing import Values, pack, packed_nbytes, unpack
from vol.update import Array

_BASE_BITS = 40
"""Edges between two incarnations number their messages from a base that these bits are the room of."""

BESIDE = "beside "
"""What the names of values begin with that are no part of the vector."""
_PATIENCE = 0.25
"""The share of the deadline for which a newcomer waits until the others hold."""

_NONE = np.empty(0, np.uint8)


@dataclass(eq=False)
class _Copy:
    """The values for a newcomer, in memory that this rank has lent itself."""

    step: int = -1
    """The step of which they are; -1: there are none yet."""
    offset: int = -1
    memory: Array = field(default_factory=lambda: _NONE)
    is_given: bool = False
    """Whether it was handed over: it stays as it is until it was read."""


class Returning:
    """The ranks that come back to one vector, as this rank sees them. All methods are Local where not said otherwise.

    `born`: `View.era` as it was made. `values()`: what a newcomer gets.
    """

    def __init__(
        self, transport: Transport, returns: Returns, queues: Queues, born: Sequence[int],
        values: Callable[[], Values], consistency: Consistency,
    ) -> None:  # fmt: skip
        self._transport, self._returns, self._queues = transport, returns, queues
        self._born = born
        self.is_stepwise, self._waits = consistency.is_stepwise, consistency.waits
        self.values = values
        """What a newcomer gets."""
        self.ended: Callable[[], int | None] = lambda: None
        """The step of the last exchange; None: one is under way."""
        self.outer = self
        """The vector within whose exchange the last one of this vector has begun; itself where it was within none."""
        self.is_steady = True
        """Whether `values` may be called at any time; else at the end of an exchange alone."""
        self.beside: Callable[[], Mapping[str, Any]] = dict
        """What a newcomer gets beside them: arrays and numbers by name, which BESIDE comes before."""
        self._place: int = getattr(queues.window, "place", -1)  # -1: it was freed by all
        self._view, self._rank = transport.view, transport.rank
        self._taken: dict[int, Member] = {}
        """The members that were taken up, by rank."""
        self.since: dict[int, int] = {}
        """The steps at which newcomers were taken up: their scatters go on without them."""
        self._held: dict[int, Awaited] = {}
        """Under bsp and ssp the newcomers that opened vectors still when they were last looked at, with these steps."""
        self._copies: dict[int, _Copy] = {}
        """The copies for the newcomers that ask this rank for values, by rank."""
        self._has_closed: set[int] = set()
        """Of a newcomer: the ranks that have closed the vector."""
        self._own = Opening(-1, -1)
        """What it says of the vector itself."""

    def absent(self) -> frozenset[int]:
        """The live ranks that have come back, and have not opened the vector."""
        return frozenset(rank for rank in self._newcomers() if self._returns.opening(rank, self._place) is None)

    def begins_after(self, rank: int, step: int) -> bool:
        """Return whether `rank` has come back, and scatters only after `step`, under bsp or ssp."""
        opening = self._returns.opening(rank, self._place) if self.is_stepwise and rank in self._taken else None
        return opening is not None and not 0 <= opening.asked < step

    def _newcomers(self) -> list[int]:
        return self._view.newcomers(self._born, self._rank)

    def base(self, peer: int) -> int:
        """The number after which messages to and from `peer` begin."""
        return self._view.returns(self._born, (self._rank, peer)) << _BASE_BITS

    # -- the ranks that have the vector -----------------------------------------------------------------------

    def take_up(self, step: int, merged: int) -> None:
        """Take up the ranks that have opened the vector, after `step`; serve them. One-sided.

        `merged`: the step of the last gather.
        """
        for rank in self._newcomers():
            member = self._view.member(rank)
            opening = self._returns.opening(rank, self._place)
            if opening is None:
                continue
            if self._taken.get(rank) != member:
                self._taken[rank] = member
                self._queues.renew(rank, self.base(rank))
                self._drop(rank)  # what was for its former incarnation
                self.since[rank] = step
                if self.is_stepwise:
                    self._held[rank] = Awaited(rank, heard_at=self._transport.clock(), step=step)
                self._returns.answer(rank, self._place, Answer(step, self._queues.closed))
            if opening.server == self._rank:
                self._copies.setdefault(rank, _Copy())
        for rank in self._copies.keys() - {*self._view.alive}:
            self._drop(rank)
        self.serve(merged)

    def before_exchange(self) -> None:
        """Note that this rank opens no more vectors for now; under bsp and ssp, hold. One-sided. DeadlinePassed.

        A newcomer opens vectors one by one. Along most graphs ranks that do not gather from it would go on meanwhile,
        and be at a later step in the vectors that it opens next than those which wait for it. So no rank goes further
        in the first of them than to the end of the step at which the newcomer begins, before that has opened all; and
        it opens the next one when all are there (`await_holds`). They hold where they are in no other exchange, in the
        same place of their programs: before the exchange within which that of the vector begins.
        """
        self._returns.opened_all()
        if not (self.is_stepwise and self.is_steady):
            return
        under_way = [one for one in self._returns.stepwise if one.ended() is None]
        self.outer = under_way[0].outer if under_way else self
        if any(one.is_held for one in self._returns.stepwise):
            self._queues.waiting.until_none("scatter", self._holding)

    def _holding(self) -> list[Awaited]:
        """The newcomers because of which this rank does not begin an exchange of this vector."""
        return [found for one in self._returns.stepwise if one.outer is self for found in one.holding()]

    @property
    def is_held(self) -> bool:
        """True if a newcomer that has opened it opened more when it was looked at last."""
        return bool(self._held)

    def holding(self) -> list[Awaited]:
        """The newcomers that must not miss an exchange of this vector before they have opened all. One-sided."""
        found = []
        left, step = self._held.keys() - {*self._view.alive}, self.ended()
        for rank, awaited in tuple(self._held.items()):
            opening = self._returns.opening(rank, self._place)
            if rank in left or opening is None or not self._returns.opens_more(rank):
                del self._held[rank]
            elif step is not None and step >= max(awaited.step, opening.asked):
                found.append(awaited)
                self._returns.hold(rank, self._place)
        return found

    def serve(self, step: int) -> None:
        """Copy the values for newcomers that ask for them; hand over those that are late enough. One-sided.

        `step`: that of the last exchange. To be called at the end of each: the next gather may wait for the newcomer.
        Nothing is copied while they are not steady.
        """
        for rank, copy in tuple(self._copies.items()):
            opening = self._returns.opening(rank, self._place)
            if opening is None or opening.server != self._rank:
                self._drop(rank)
            elif self._queues.closed:
                self._drop(rank)
                self._returns.answer(rank, self._place, Answer(0, True))
            elif not copy.is_given:
                if self.is_steady and copy.step < step:
                    self._renew(rank, copy, step)
                if copy.step >= opening.asked >= 0 and rank in self._copies:
                    copy.is_given = True
                    values = copy.offset, copy.memory.nbytes
                    self._returns.answer(rank, self._place, Answer(copy.step, values=values))

    def _renew(self, rank: int, copy: _Copy, step: int) -> None:
        """Make `copy`, which is for `rank`, one of the values of `step`. One-sided."""
        beside = {BESIDE + name: np.asarray(one) for name, one in self.beside().items()}
        values = {**self.values(), **beside}
        if self._copies.get(rank) is not copy:  # the user's function has closed the vector
            return
        nbytes = packed_nbytes(values)
        if copy.memory.nbytes < nbytes:  # what is beside them may have grown
            self._returns.arena.take_back(copy.offset)
            copy.step, copy.memory = -1, _NONE
            found = self._returns.arena.lend(nbytes)
            if found is None:
                return self._returns.answer(rank, self._place, Answer(step, values=(-1, nbytes)))
            copy.offset, copy.memory = found
        pack(values, copy.memory)
        copy.step = step

    def _drop(self, rank: int) -> None:
        if (copy := self._copies.pop(rank, None)) is not None:
            self._returns.arena.take_back(copy.offset)

    def close(self) -> None:
        """Answer newcomers that this rank has closed the vector. One-sided."""
        self._returns.opened_all()
        if self in self._returns.stepwise:
            self._returns.stepwise.remove(self)
        for rank in self._taken.keys() & {*self._view.alive}:
            self._returns.answer(rank, self._place, Answer(0, True))
            self._drop(rank)

    @property
    def record(self) -> dict[str, Any]:
        """The facts for a newcomer: where it lies, how long it is, and `born`."""
        return {"place": self._place, "nbytes": self._queues.window.memory.nbytes, "born": list(self._born)}

    # -- the newcomer -----------------------------------------------------------------------------------------

    def announce(self, born: Sequence[int]) -> None:
        """Say that this rank opens the vector that the others have. One-sided. `born`: as they have it.

        Under bsp and ssp its values must be of the step at which it begins, else they are the newest.
        """
        self._born = born
        self._waited, self._polls = self._queues.waiting.stopwatch(), 0
        for rank in self._peers():
            self._queues.renew(rank, self.base(rank))
        self._ask(-1)

    def agreed(self) -> int:
        """The largest of the steps of the others, at which the vector may begin; -1: all have closed it. One-sided.

        PeerLost: the rank that was asked for the values has failed, while others may wait for this one, and so have
        none to give. DeadlinePassed.
        """
        while self._own.server >= 0:
            answers = self._heard()
            if answers.keys() >= set(self._peers()):
                return max((one.step for rank, one in answers.items() if rank not in self._has_closed), default=-1)
            self._pause()
        return -1

    def begin(self, step: int) -> None:
        """Begin at `step`, and tell the others so. One-sided."""
        answers = self._returns.answers(self._place)
        open_ones = {rank: one.step for rank, one in answers.items() if rank not in self._has_closed}
        self._queues.begin(step, open_ones)
        self._queues.note_closed(self._has_closed)
        self._ask(step if self.is_stepwise else 0)

    def fetched(self) -> Values | None:
        """The values that another rank has given; None: all others have closed the vector. One-sided.

        PeerLost, DeadlinePassed: as `agreed`. MemoryError: that rank has no room for a copy. Refused: it waits for this
        one in a barrier, and so has none to give.
        """
        past: Stopwatch | None = None
        while (server := self._own.server) >= 0:
            answers = self._heard()
            if (server := self._own.server) in answers and (place := answers[server].values):
                return self._fetched(server, place)
            past = self._returns.barrier.check_past("malt.vector", [server], past)
            self._pause()
        return None

    def await_holds(self) -> None:
        """Return once all that have the vector hold, or wait for this rank in a barrier. One-sided.

        Not longer than a quarter of the deadline: they may exchange it no more.
        """
        waiting, polls = self._queues.waiting, 0
        waited = waiting.stopwatch()
        while waited.seconds() < _PATIENCE * waiting.deadline_s and not self._returns.barrier.are_past():
            there = {rank for rank, one in self._returns.answers(self._place).items() if one.closed or one.holds}
            if not [rank for rank in self._peers() if rank not in there and not self._returns.opens_more(rank)]:
                return
            self._transport.pause(polls)
            polls += 1

    def _heard(self) -> dict[int, Answer]:
        """The answers so far. Another rank is asked where the server has closed the vector, or may have failed."""
        answers = self._returns.answers(self._place)
        self._has_closed |= {rank for rank, one in answers.items() if one.closed}
        server, asked = self._own
        away = {server}.difference(self._view.alive)
        if server in self._has_closed or (away and not self._waits):
            self._ask(asked)
        if self._own.server >= 0 or server not in self._has_closed:
            asked_one = self._own.server if self._own.server >= 0 else server
            self._view.check_alive([asked_one], "it failed before this rank had the values of its vector")
        return answers

    def _pause(self) -> None:
        if self._waited.seconds() > self._queues.waiting.deadline_s:
            silent_s = {self._own.server: self._queues.waiting.deadline_s}
            raise DeadlinePassed("malt.vector", {self._own.server: 0}, silent_s)
        self._transport.pause(self._polls)
        self._polls += 1

    def _peers(self) -> list[int]:
        """The live ranks that have the vector, or had it."""
        return [rank for rank in self._view.alive if rank != self._rank and rank not in self.absent()]

    def _ask(self, asked: int) -> None:
        """Say that this rank has opened the vector, and whom it asks for values of the step `asked`.

        Refused: all that have it open wait for values themselves, as those that had them have failed.
        """
        have_it_open = [rank for rank in self._peers() if rank not in self._has_closed]
        left = [rank for rank in have_it_open if self._has_values(rank)]
        if have_it_open and not left:
            raise Refused(self._rank, "no rank that is left has the values of its vector")
        self._open(left[0] if left else -1, asked)

    def _has_values(self, rank: int) -> bool:
        """Return whether `rank` does not wait for values itself."""
        opening = self._returns.opening(rank, self._place)
        return rank not in self._newcomers() or (opening is not None and opening.server < 0)

    def _fetched(self, server: int, values: Sequence[int]) -> Values:
        offset, nbytes = values
        if offset < 0:
            raise MemoryError(f"no room for {nbytes / 1e6:,.1f} MB of a rank that comes back: make room in /dev/shm")
        found = unpack(self._returns.arena.read(server, offset, nbytes))
        self._open(-1, self._own.asked)
        return found

    def _open(self, server: int, asked: int) -> None:
        self._own = Opening(server, asked)
        self._returns.open(self._place, self._own)
