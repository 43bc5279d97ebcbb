"""Ranks that come back to one vector: how this rank takes them up, and what a newcomer asks and gets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from dstorm import DeadlinePassed, Queues, Transport
from dstorm.errors import PeerLost, Refused
from dstorm.membership.returns.returns import IN, Answer, Opening, Returns
from dstorm.queues.consistency import Consistency
from dstorm.queues.waits.waiting import Awaited
from dstorm.view import Member
from dstorm.waits.stopwatch import Stopwatch
from vol.returns.packing import Values, packed, unpack

_BASE_BITS = 40
"""Edges between two incarnations number their messages from a base that these bits are the room of."""

BESIDE = "beside "
"""What the names of values begin with that are no part of the vector."""
_PATIENCE = 0.25
"""The share of the deadline for which a newcomer waits until the others hold."""


class Returning:
    """The ranks that come back to one vector, as this rank sees them. All methods are Local where not said otherwise.

    `values()`, `progress()`: see the attributes.
    """

    def __init__(
        self, transport: Transport, returns: Returns, queues: Queues,
        values: Callable[[], Values], consistency: Consistency, progress: Callable[[], tuple[int, bool]],
    ) -> None:  # fmt: skip
        self._transport, self._returns, self._queues = transport, returns, queues
        self.is_stepwise, self._waits_for_equals = consistency.is_stepwise, consistency.staleness == 0
        self.values = values
        """What a newcomer gets."""
        self.progress = progress
        """The step of the last exchange, or of the one under way, and whether it is the last one."""
        self.outer: Returning | None = None
        """The vector within whose exchange the last one of this vector has begun; itself where it was within none."""
        self.is_steady = True
        """Whether `values` may be called at any time; else at the end of an exchange alone."""
        self.beside: Callable[[], Mapping[str, Any]] = dict
        """What a newcomer gets beside them: arrays and numbers by name, which BESIDE comes before."""
        self._place: int = getattr(queues.window, "place", -1)  # -1: it was freed by all
        self._born: int = getattr(queues.window, "born", 0)
        self._view, self._rank = transport.view, transport.rank
        self._told: dict[Member, Answer] = {}
        """The answers to the members that were taken up."""
        self._held: dict[int, Awaited] = {}
        """By rank, under bsp and ssp the newcomers that opened vectors still when they were last looked at."""
        self._copies: dict[int, tuple[int, int]] = {}
        """By rank, where the values for newcomers that ask this rank for them are in its memory, and of which step."""
        self._has_closed: set[int] = set()
        """Of a newcomer: the ranks that have closed the vector."""
        self._own = Opening(IN, -1)
        """What it says of the vector itself."""

    def absent(self) -> frozenset[int]:
        """The live ranks that have come back, and take no part in the vector yet.

        Under bsp and ssp the others hold until a newcomer has opened all. Else it has no part before that: a rank that
        waits for its acknowledgements could not go on to where the newcomer gets the next vector.
        """
        newcomers = self._newcomers()
        opening = [] if self.is_stepwise else [rank for rank in newcomers if self._returns.opens_more(rank)]
        return frozenset([*opening, *(rank for rank in newcomers if not self._has_values(rank))])

    def _has_values(self, rank: int) -> bool:
        """Return whether `rank` has the values of the vector: it has not come back, or is in."""
        opening = self._returns.opening(rank, self._place)
        return rank not in self._newcomers() or (opening is not None and opening.server == IN)

    def _newcomers(self) -> list[int]:
        return self._view.newcomers(self._born, self._rank)

    def base(self, peer: int) -> int:
        """The number after which messages to and from `peer` begin."""
        return self._view.epoch(self._born, (self._rank, peer)) << _BASE_BITS

    # -- the ranks that have the vector -----------------------------------------------------------------------

    def take_up(self) -> None:
        """Take up the ranks that have opened the vector; answer and serve them. One-sided."""
        for rank in self._newcomers():
            member = self._view.member(rank)
            if member in self._told or self._returns.opening(rank, self._place) is None:
                continue
            self._told[member] = Answer(-1)
            self._queues.renew(rank, self.base(rank))
            self._drop(rank)  # what was for its former incarnation
            if self.is_stepwise:
                self._held[rank] = Awaited(rank, heard_at=self._transport.clock())
        self.serve()

    def before_exchange(self) -> None:
        """Note that this rank opens no more vectors for now; under bsp and ssp, hold. One-sided.

        DeadlinePassed. Refused: the others hold before an exchange of another vector; each would wait for the other.

        A newcomer opens vectors one by one. It begins in each when all have come to the same step, and are in no
        exchange. They hold there until it has opened all, where they are in no other exchange, in the same place of
        their programs: before the exchange within which that of the vector begins. So nothing moves while it opens the
        next one (`await_holds`).
        """
        self._returns.opened_all()
        if not (self.is_stepwise and self.is_steady):
            return
        held_at, self._returns.held_at = self._returns.held_at or set(), set()
        held = [one for one in self._returns.stepwise if one._place in held_at]
        if self in held:  # there this rank, too, holds for those that come after it
            self._returns.stepwise[0].outer = self
        elif self._waits_for_equals and any(one._waits_for_equals for one in held):
            raise Refused(self._rank, "its first exchange is of another vector than the next one of the others")
        under_way = [one for one in self._returns.stepwise if not one.is_between]
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

    @property
    def is_between(self) -> bool:
        """True if no exchange of the vector is under way."""
        return self.progress()[1]

    def holding(self) -> list[Awaited]:
        """The newcomers that must not miss an exchange of this vector before they have opened all. One-sided."""
        found = []
        for rank, awaited in tuple(self._held.items()):
            opening = self._opening(rank)
            if opening is None or (opening.server == IN and not self._returns.opens_more(rank)):
                del self._held[rank]
            elif self.is_between and self.progress()[0] >= opening.asked and self._at() >= opening.at:
                found.append(awaited)
                self._tell(rank, holds=self.outer._place if self.outer else -1)
        return found

    def serve(self) -> None:
        """Tell newcomers how far this rank is; copy the values for those that ask for them. One-sided.

        To be called at the end of each exchange, and in waits. Nothing is copied while the values are not steady.
        """
        if not self._told:
            return
        step, is_between = self.progress()
        is_there = all(one.is_between for one in self._returns.stepwise)
        openings = {rank: self._opening(rank) for rank in self._newcomers()}
        for rank in [rank for rank in self._copies if getattr(openings.get(rank), "server", IN) != self._rank]:
            self._drop(rank)
        for rank, opening in openings.items():
            if opening is None or opening.server == IN:
                continue
            if opening.server == self._rank and self._is_to_copy(rank, opening):
                self._copy(rank, step if is_between else step - 1)
            self._tell(rank, step=step, at=self._at(), is_between=is_there, closed=self._queues.closed)

    def _at(self) -> int:
        """The step of the vector within whose exchanges those of this one begin; -1: there was none so far."""
        return -1 if self.outer is None else self.outer.progress()[0]

    def _opening(self, rank: int) -> Opening | None:
        """The note on the vector of the member of `rank` that was taken up; None: it was not, or has failed."""
        is_taken_up = self._view.member(rank) in self._told
        return self._returns.opening(rank, self._place) if is_taken_up else None

    def _is_to_copy(self, rank: int, opening: Opening) -> bool:
        """Return whether to copy the values for `rank`: once, or under bsp and ssp at the end of each exchange."""
        step, is_between = self.progress()
        if not self.is_steady or self._queues.closed:
            return False
        if rank not in self._copies:
            return self.is_stepwise or opening.asked >= 0
        return self.is_stepwise and is_between and self._copies[rank][1] < step

    def _copy(self, rank: int, step: int) -> None:
        """Copy the values of `step` for `rank`, and tell it where they are. One-sided."""
        beside = {BESIDE + name: np.asarray(one) for name, one in self.beside().items()}
        values = {**self.values(), **beside}
        if self._queues.closed:  # by the user's function
            return
        self._drop(rank)
        parts = packed(values)
        nbytes = sum(part.nbytes for part in parts)
        offset, memory = self._returns.arena.lend(nbytes) or (-1, None)
        if memory is not None:
            np.concatenate(parts, out=memory)
        self._copies[rank] = offset, step
        self._tell(rank, values=(offset, nbytes))

    def _drop(self, rank: int) -> None:
        if (copy := self._copies.pop(rank, None)) is not None:
            self._returns.arena.take_back(copy[0])

    def _tell(self, rank: int, **news: Any) -> None:
        """Answer `rank`, where that is new. One-sided."""
        member = self._view.member(rank)
        before = self._told.get(member)  # None: another thread has followed the admission of the next one
        if before is not None and before != (now := before._replace(**news)):
            self._told[member] = now
            self._returns.answer(member, self._place, now)

    def close(self) -> None:
        """Answer newcomers that this rank has closed the vector. One-sided."""
        self._returns.opened_all()
        if self in self._returns.stepwise:
            self._returns.stepwise.remove(self)
        for rank in tuple(self._copies):
            self._drop(rank)
        for rank in self._newcomers():
            if self._opening(rank) is not None:
                self._tell(rank, closed=True)

    @property
    def record(self) -> dict[str, Any]:
        """The facts for a newcomer: where it lies, how long it is, and when it was made."""
        return {"place": self._place, "nbytes": self._queues.window.memory.nbytes, "born": self._born}

    # -- the newcomer -----------------------------------------------------------------------------------------

    def announce(self, born: int) -> None:
        """Say that this rank opens the vector that the others have. One-sided. `born`: when they have made it."""
        self._born = born
        self._waited, self._polls = self._queues.waiting.stopwatch(), 0
        self._past: Stopwatch | None = None
        for rank in self._peers():
            self._queues.renew(rank, self.base(rank))
        self._ask()

    def fetched(self) -> tuple[int, Values | None]:
        """The step at which the vector begins, the largest of the others, and the values that one of them gives.

        None: all others have closed it. One-sided. Under bsp and ssp all have come to that step, and none goes further
        before this rank is in. Where some do not come to it for a quarter of the deadline they may exchange the vector
        no more, and it begins. Where the rank that gives the values fails, or closes the vector, the next one does.

        DeadlinePassed. MemoryError: that rank has no room for a copy. Refused: the others wait for this rank in a
        barrier amid an exchange of the vector; or none that is left has the values.
        """
        patience_s = _PATIENCE * self._queues.waiting.deadline_s
        while (server := self._own.server) != IN:
            answers = self._heard()
            if server not in self._open_ones():
                self._ask()
                continue
            there = {rank: answers[rank] for rank in self._open_ones() if rank in answers and self._has_values(rank)}
            step = max((one.step for one in there.values()), default=-1)
            at = max((one.at for one in there.values()), default=-1)
            awaited = {rank for rank in self._peers() if rank not in answers}
            is_news = step > self._own.asked or at > self._own.at
            if not awaited and is_news and (self.is_stepwise or self._own.asked < 0):
                self._open(server, step, at)
            if not awaited and self.is_stepwise and self._waited.seconds() < patience_s:
                awaited = {rank for rank, one in there.items() if not one.is_between or one.step < step}
            if not awaited and (place := answers[server].values) and (found := self._read(*place)):
                return self._own.asked, found
            self._pause(awaited or {server})
        return -1, None

    def begin(self, step: int) -> None:
        """Begin at `step`, with the values; say that this rank is in the vector. One-sided."""
        answers = self._returns.answers(self._place)
        self._queues.begin(step, {rank: answers[rank].step for rank in self._open_ones() if rank in answers})
        self._queues.note_closed(self._has_closed)
        self._open(IN, self._own.asked)
        self._returns.barrier.check()  # another one may open it, and has not seen yet that this one is in

    def await_holds(self) -> None:
        """Return once all that have the vector hold, or wait for this rank in a barrier. One-sided.

        Not longer than a quarter of the deadline: they may exchange it no more. At once under asp and notify-ack, and
        after the first call: they hold there until this rank has opened all vectors.
        """
        if not self.is_stepwise or self._returns.held_at is not None:
            return
        self._returns.held_at = set()
        waiting, polls = self._queues.waiting, 0
        waited = waiting.stopwatch()
        while waited.seconds() < _PATIENCE * waiting.deadline_s and not self._returns.barrier.past():
            answers = self._returns.answers(self._place).items()
            there = {rank: one.holds for rank, one in answers if one.closed or one.holds >= 0}
            if not [rank for rank in self._peers() if rank not in there and not self._returns.opens_more(rank)]:
                self._returns.held_at = {*there.values()} - {-1}
                return
            self._transport.pause(polls)
            polls += 1

    def _heard(self) -> dict[int, Answer]:
        """The answers so far."""
        self._returns.barrier.check()
        answers = self._returns.answers(self._place)
        self._has_closed |= {rank for rank, one in answers.items() if one.closed}
        return answers

    def _pause(self, awaited: Collection[int]) -> None:
        """Pause between two polls of a wait for the ranks `awaited`. DeadlinePassed, Refused."""
        self._past = self._returns.check_past("malt.vector", awaited, self._past)
        if self._waited.seconds() > self._queues.waiting.deadline_s:
            silent_s = dict.fromkeys(awaited, self._queues.waiting.deadline_s)
            raise DeadlinePassed("malt.vector", dict.fromkeys(awaited, 0), silent_s)
        self._transport.pause(self._polls)
        self._polls += 1

    def _peers(self) -> list[int]:
        """The live ranks that have the vector, or had it, or open it, too."""
        newcomers = {rank for rank in self._newcomers() if self._returns.opening(rank, self._place) is None}
        return [rank for rank in self._view.alive if rank != self._rank and rank not in newcomers]

    def _open_ones(self) -> list[int]:
        """Those of them that have not closed it."""
        return [rank for rank in self._peers() if rank not in self._has_closed]

    def _ask(self) -> None:
        """Ask a rank for the values. Refused: all that have the vector open wait for them, too, or have failed."""
        have_it_open = self._open_ones()
        left = list(filter(self._has_values, have_it_open))
        if not left and (have_it_open or self._own.server not in {IN, *self._has_closed}):
            raise Refused(self._rank, "no rank that is left has the values of its vector")
        self._open(left[0] if left else IN, self._own.asked)

    def _read(self, offset: int, nbytes: int) -> Values | None:
        """The values in the memory of the rank that was asked; None: it has failed meanwhile.

        Its next process clears that memory, from its start on. So that is read once more, after all else.
        """
        if offset < 0:
            raise MemoryError(f"no room for {nbytes / 1e6:,.1f} MB of a rank that comes back: make room in /dev/shm")
        try:
            found, start = (self._returns.arena.read(self._own.server, offset, length) for length in (nbytes, 8))
        except PeerLost:
            return None
        return unpack(found) if start.any() and np.array_equal(found[:8], start) else None

    def _open(self, server: int, asked: int, at: int = -1) -> None:
        self._own = Opening(server, asked, max(at, self._own.at))
        self._returns.open(self._place, self._own)
