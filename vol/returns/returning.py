"""Ranks that come back to one vector: how this rank takes them up, and what a newcomer asks and gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dstorm import DeadlinePassed, Queues, Transport
from dstorm.errors import Refused
from dstorm.membership.returns.returns import Answer, Opening, Returns
from dstorm.queues.consistency import Consistency
from dstorm.queues.waiting import Awaited
from dstorm.stopwatch import Stopwatch
from dstorm.view import Member
from vol.returns.packing import Values, joined, pack, packed_nbytes, parted, unpack
from vol.update import Array

_BASE_BITS = 40
"""Edges between two incarnations number their messages from a base that these bits are the room of."""

_PATIENCE = 0.25
"""The share of the deadline for which a newcomer waits until the others hold."""


class Returning:
    """The ranks that come back to one vector, as this rank sees them. All methods are Local where not said otherwise.

    `born`: `View.era` as it was made. `values()`: what a newcomer gets.
    `is_lockstep`: whether the ranks go on step by step.
    """

    def __init__(
        self, transport: Transport, returns: Returns, queues: Queues, born: Sequence[int],
        values: Callable[[], Values], is_lockstep: bool = False,
    ) -> None:  # fmt: skip
        self._transport, self._returns, self._queues = transport, returns, queues
        self._born = born
        self.is_lockstep = is_lockstep
        self.values = values
        """What a newcomer gets."""
        self.ended: Callable[[], int | None] = lambda: None
        """The step of the last exchange; None: one is under way."""
        self.outer = self
        """The vector within whose exchange the last one of this vector has begun; itself where it was within none."""
        self.is_steady = True
        """Whether `values` may be called at any time; else at the end of an exchange alone."""
        self.beside: Callable[[], Mapping[str, Any]] = dict
        """What a newcomer gets beside them: arrays and numbers by name."""
        self.brought: dict[str, Array] | None = None
        """What this rank got so, as it has come back."""
        self._place: int = getattr(queues.window, "place", -1)  # -1: it was freed by all
        self._view, self._rank = transport.view, transport.rank
        self._taken: dict[int, Member] = {}
        """The members that were taken up, by rank."""
        self.since: dict[int, int] = {}
        """The steps at which newcomers were taken up: their scatters go on without them."""
        self._held: dict[int, tuple[int, Awaited]] = {}
        """Under lockstep the newcomers that opened vectors still when they were last looked at, with these steps."""
        self._copied_at: dict[int, int] = {}
        """The copies that wait for their newcomers: the step of each, -1 for none, by rank."""
        self._has_closed: set[int] = set()
        """Of a newcomer: the ranks that have closed the vector."""
        self._server = self._wanted = -1
        """Whom it asks for values, and of which step; -1: nobody, or none yet."""
        self._memory: dict[int, tuple[int, Array]] = {}
        """Where these copies are: offset and memory. A copy that was handed over stays as it is until it is read."""

    def absent(self) -> frozenset[int]:
        """The live ranks that have come back, and have not opened the vector."""
        return frozenset(rank for rank in self._newcomers() if self._returns.opening(rank, self._place) is None)

    def begins_after(self, rank: int, step: int) -> bool:
        """Return whether `rank` has come back, and scatters only after `step`, under lockstep."""
        opening = self._returns.opening(rank, self._place) if self.is_lockstep and rank in self._taken else None
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
                if self.is_lockstep:
                    self._held[rank] = step, Awaited(rank, heard_at=self._transport.clock())
                self._returns.answer(rank, self._place, Answer(step, self._queues.closed))
            self._serve_as_asked(rank, opening, merged)
        for rank in {*self._copied_at, *self._memory}.difference(self._view.alive):
            self._drop(rank)

    def before_exchange(self) -> None:
        """Note that this rank opens no more vectors for now; under lockstep, hold. One-sided. DeadlinePassed.

        A newcomer opens vectors one by one. Along most graphs ranks that do not gather from it would go on meanwhile,
        and be at a later step in the vectors that it opens next than those which wait for it. So no rank goes further
        in the first of them than to the end of the step at which the newcomer begins, before that has opened all; and
        it opens the next one when all are there (`await_holds`). They hold where they are in no other exchange, in the
        same place of their programs: before the exchange within which that of the vector begins.
        """
        self._returns.opened_all()
        if not (self.is_lockstep and self.is_steady):
            return
        under_way = [one for one in self._returns.lockstep if one.ended() is None]
        self.outer = under_way[0].outer if under_way else self
        if any(one.is_held for one in self._returns.lockstep):
            self._queues.waiting.until_none("scatter", self._holding)

    def _holding(self) -> list[Awaited]:
        """The newcomers because of which this rank does not begin an exchange of this vector."""
        return [found for one in self._returns.lockstep if one.outer is self for found in one.holding()]

    @property
    def is_held(self) -> bool:
        """True if a newcomer that has opened it opened more when it was looked at last."""
        return bool(self._held)

    def holding(self) -> list[Awaited]:
        """The newcomers that must not miss an exchange of this vector before they have opened all. One-sided."""
        found = []
        left, step = self._held.keys() - {*self._view.alive}, self.ended()
        for rank, (since, awaited) in tuple(self._held.items()):
            opening = self._returns.opening(rank, self._place)
            if rank in left or opening is None or not self._returns.opens_more(rank):
                del self._held[rank]
            elif step is not None and step >= max(since, opening.asked):
                found.append(awaited)
                self._returns.hold(rank, self._place)
        return found

    def _serve_as_asked(self, rank: int, opening: Opening, merged: int) -> None:
        if opening.server != self._rank:
            return self._drop(rank)
        if rank in self._memory and rank not in self._copied_at:  # it reads the copy
            return
        if self._queues.closed:
            self._drop(rank)
            return self._returns.answer(rank, self._place, Answer(0, True))
        copied = self._copied_at.setdefault(rank, -1)
        if self.is_steady and (copied < 0 or copied < opening.asked <= merged):
            self._copy(rank, merged)  # its next gather may wait for the newcomer, and be too late
        self._hand_over(rank, opening)

    def merged(self, step: int) -> None:
        """Copy the values for newcomers that wait for them, at the end of the exchange of `step`. One-sided."""
        for rank in tuple(self._copied_at):
            opening = self._returns.opening(rank, self._place)
            if opening is None or opening.server != self._rank:
                self._drop(rank)
            elif self._copied_at[rank] < step:
                self._copy(rank, step)
                self._hand_over(rank, opening)

    @property
    def is_awaited(self) -> bool:
        """True if a newcomer waits for values."""
        return bool(self._copied_at)

    def _copy(self, rank: int, step: int) -> None:
        values = joined(self.values(), self.beside())
        if rank not in self._copied_at:  # the user's function has closed the vector
            return
        nbytes = packed_nbytes(values)
        if rank in self._memory and self._memory[rank][1].nbytes < nbytes:  # what is beside them may have grown
            self._returns.arena.take_back(self._memory.pop(rank)[0])
        if rank not in self._memory:
            found = self._returns.arena.lend(nbytes)
            if found is None:
                return self._returns.answer(rank, self._place, Answer(step, values=(-1, nbytes)))
            self._memory[rank] = found
        pack(values, self._memory[rank][1])
        self._copied_at[rank] = step

    def _hand_over(self, rank: int, opening: Opening) -> None:
        """Tell `rank` where its values are, if they are of the step that it begins at, or of a later one."""
        if self._copied_at.get(rank, -1) >= opening.asked >= 0 and rank in self._memory:
            offset, memory = self._memory[rank]
            self._returns.answer(rank, self._place, Answer(self._copied_at[rank], values=(offset, memory.nbytes)))
            del self._copied_at[rank]

    def _drop(self, rank: int) -> None:
        self._copied_at.pop(rank, None)
        if (found := self._memory.pop(rank, None)) is not None:
            self._returns.arena.take_back(found[0])

    def close(self) -> None:
        """Answer newcomers that this rank has closed the vector. One-sided."""
        self._returns.opened_all()
        if self in self._returns.lockstep:
            self._returns.lockstep.remove(self)
        for rank in self._taken.keys() & {*self._view.alive}:
            self._returns.answer(rank, self._place, Answer(0, True))
            self._drop(rank)

    @property
    def record(self) -> dict[str, Any]:
        """What a newcomer must know of it: where it lies, how long it is, and `born`."""
        return {"place": self._place, "nbytes": self._queues.window.memory.nbytes, "born": list(self._born)}

    # -- the newcomer -----------------------------------------------------------------------------------------

    def announce(self, born: Sequence[int], consistency: Consistency) -> None:
        """Say that this rank opens the vector that the others have. One-sided. `born`: as they have it.

        Under lockstep its values must be of the step at which it begins, else they are the newest.
        """
        self._born = born
        self._lockstep, self._waits = consistency.lockstep, consistency.waits
        self._waited, self._polls = self._queues.waiting.stopwatch(), 0
        for rank in self._peers():
            self._queues.renew(rank, self.base(rank))
        self._ask(-1)

    def agreed(self) -> int:
        """The largest of the steps of the others, at which the vector may begin; -1: all have closed it. One-sided.

        PeerLost: the rank that was asked for the values has failed, while others may wait for this one, and so have
        none to give. DeadlinePassed.
        """
        while self._server >= 0:
            answers = self._heard(-1)
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
        self._wanted = step if self._lockstep else 0
        self._ask(self._wanted)

    def fetched(self) -> Values | None:
        """The values that another rank has given; None: all others have closed the vector. One-sided.

        PeerLost, DeadlinePassed: as `agreed`. MemoryError: that rank has no room for a copy. Refused: it waits for this
        one in a barrier, and so has none to give.
        """
        past: Stopwatch | None = None
        while self._server >= 0:
            answers = self._heard(self._wanted)
            if self._server in answers and (place := answers[self._server].values):
                return self._fetched(self._server, place)
            past = self._returns.check_past("malt.vector", [self._server], past)
            self._pause()
        return None

    def await_holds(self) -> None:
        """Return once all that have the vector hold, or wait for this rank in a barrier. One-sided.

        Not longer than a quarter of the deadline: they may exchange it no more.
        """
        waiting, polls = self._queues.waiting, 0
        waited = waiting.stopwatch()
        while waited.seconds() < _PATIENCE * waiting.deadline_s and not self._returns.are_past():
            there = {rank for rank, one in self._returns.answers(self._place).items() if one.closed or one.holds}
            if not [rank for rank in self._peers() if rank not in there and not self._returns.opens_more(rank)]:
                return
            self._transport.pause(polls)
            polls += 1

    def _heard(self, asked: int) -> dict[int, Answer]:
        """The answers so far. Another rank is asked where the server has closed the vector, or may have failed."""
        answers = self._returns.answers(self._place)
        self._has_closed |= {rank for rank, one in answers.items() if one.closed}
        server, away = self._server, {self._server}.difference(self._view.alive)
        if server in self._has_closed or (away and not self._waits):
            self._ask(asked)
        if self._server >= 0 or server not in self._has_closed:
            asked_one = self._server if self._server >= 0 else server
            self._view.check_alive([asked_one], "it failed before this rank had the values of its vector")
        return answers

    def _pause(self) -> None:
        if self._waited.seconds() > self._queues.waiting.deadline_s:
            silent_s = {self._server: self._queues.waiting.deadline_s}
            raise DeadlinePassed("malt.vector", {self._server: 0}, silent_s)
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
        self._server = left[0] if left else -1
        self._returns.open(self._place, Opening(self._server, asked))

    def _has_values(self, rank: int) -> bool:
        """Return whether `rank` does not wait for values itself."""
        opening = self._returns.opening(rank, self._place)
        return rank not in self._newcomers() or (opening is not None and opening.server < 0)

    def _fetched(self, server: int, values: Sequence[int]) -> Values:
        offset, nbytes = values
        if offset < 0:
            raise MemoryError(f"no room for {nbytes / 1e6:,.1f} MB of a rank that comes back: make room in /dev/shm")
        found, self.brought = parted(unpack(self._returns.arena.read(server, offset, nbytes)))
        self._returns.open(self._place, Opening(-1, self._wanted))
        return found
