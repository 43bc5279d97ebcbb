"""Barriers of ranks that may fail while the others go on, and may come back.

A barrier ends when all live ranks know the same list of failed ranks (dstorm/membership/decision.py).

A rank that comes back asks by a word that has the flag JOINING and the stamp of its incarnation. The lowest live rank
admits it (dstorm/membership/returns/admission.py), between two collective calls of its own. It gives the newcomer what
all ranks know alike then, passes the stamp on, and acts on it. So does each rank that reads of it. The newcomer takes
part once all live ranks have passed it on. Where none may come back nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dstorm.errors import DeadlinePassed, MismatchedCalls, Refused
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.decision import DESERTED, FINAL, JOINING, Word, knowledge, mask, ranks
from dstorm.membership.returns.admission import (
    Stamps,
    Verdict,
    incarnation_in,
    incarnation_of,
    stamp,
    still_failed,
    verdict,
    with_stamp,
)
from dstorm.membership.returns.board import Note
from dstorm.membership.returns.returns import Returns
from dstorm.transport import Transport, Window
from dstorm.view import FaultTolerantView
from dstorm.waits import interruption
from dstorm.waits.stopwatch import Stopwatch

Offer = Callable[[], "Note | str"]
_CHECK_S, _OFTEN = 0.02, 8
"""Period of the checks for failed ranks, where there are up to _OFTEN others; with more, longer in proportion."""
_PASSED_S = 1.0
"""How long a rank that has come back waits for ranks that are in a barrier without it: what they sent may be late."""


class TolerantBarrier(Barrier):
    """Barriers that outlast failed ranks: it marks them failed in `view`, the view of `transport`.

    `find_failed()`: the ranks whose failure this rank can find by itself. `leave(why)`: ends this process; called where
    the others have marked it failed. `evict(rank)`: kills the process of a rank that holds up the others, and returns
    whether it can. `returns`: what ranks tell each other where failed ones may come back; None: they may not.
    `readmit(rank, process)`: notes the process of a rank that has come back.
    """

    _excuses = DESERTED | FINAL
    """A rank in its final barrier has finished before the others, and its process ends. They wait for that."""

    def __init__(
        self, transport: Transport, window: Window, deadline_s: float, view: FaultTolerantView,
        find_failed: Callable[[], Sequence[int]], leave: Callable[[str], object] | None = None,
        evict: Callable[[int], bool] | None = None, returns: Returns | None = None,
        readmit: Callable[[int, Sequence[int]], object] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(transport, window, deadline_s, **options)
        self._changing = view
        self._find_failed, self._leave, self._evict = find_failed, leave, evict
        self._check_s = _CHECK_S * max(1.0, len(self._others) / _OFTEN)
        self._returns, self._readmit = returns, readmit or (lambda rank, process: None)
        self.is_outside = False
        """Whether this rank has come back, and is not admitted yet."""
        self.offer: Offer = lambda: "the session has not begun"
        """What all ranks know alike between two collective calls, for a newcomer; or why none can be admitted."""
        self.propose: Callable[[int, int], bool] = lambda rank, incarnation: True
        """Proposes to all who go on that a rank is admitted, as this incarnation; returns whether they all know it."""
        self.send_again: Callable[[int], object] = lambda rank: None
        """Called with a rank that has come back, before this rank passes its admission on."""

    @interruption.whole
    def check(self) -> None:
        """Find the ranks that have failed, mark them failed, and publish that. One-sided.

        Also admit ranks that come back, and read what they tell.
        """
        if self.is_outside:
            return
        self._checked_at = self._clock()
        since = self._membership.own.stamps
        self._window.sync()
        self._mark_failed(mask(self._find_failed()) | self._read_all(), since)
        if self._returns is not None:
            self._admit_all()
            with self._publishing:
                if self._returns.poll():
                    self._changing.touch()

    @property
    def returns(self) -> Returns:
        """The notes between ranks where failed ones may come back."""
        assert self._returns is not None
        return self._returns

    @interruption.whole
    def _decision(self, generation: int, what: str) -> int | None:
        since = self._membership.own.stamps
        self._window.sync()
        found = self._read_all()
        has_one_name = self._check_names(what, generation)
        self._mark_failed(found, since)
        if not has_one_name:
            return None
        with self._publishing:
            is_new = self._membership.own.decided != generation
            decision = self._membership.decision(generation)
            if decision is None:
                return None
            if is_new:
                came = [rank for rank in ranks(decision) if self._membership.came_after(rank, generation)]
                self._mark_failed(decision & ~mask(came), self._membership.own.stamps)
                self._publish()  # also where another rank decided: it may fail before all know its decision
        # That rank has seen the words of all. From another host they come over other connections than its own.
        return None if self._membership.missing(generation) else decision

    def _read_all(self) -> int:
        """Read the words of all others; return the ranks that they have marked failed and this rank has not."""
        found = 0
        for rank in self._membership.others():
            found |= self._read(rank)
        return found

    def _read(self, rank: int) -> int:
        word = self._word(rank)
        if word is None:
            return 0
        mine, its = incarnation_of(self._membership.own.stamps, rank), incarnation_of(word.stamps, rank)
        if its < mine:  # what a former incarnation has left
            return 0
        if word.flags & JOINING:
            return 1 << rank if its > mine else 0  # the present incarnation has failed, as the next one asks
        return super()._read(rank)

    def _mark_failed(self, found: int, since: Stamps) -> None:
        """Act on what others have published of ranks that come back; mark those of the mask `found` failed.

        `since`: the stamps when they were found. Of one that was admitted since then it was found of a former
        incarnation, or is found again: another thread may have followed an admission meanwhile.
        """
        with self._publishing:
            for rank, one in self._membership.admissions().items():
                self._follow(rank, one)
            self._lose(still_failed(found, since, self._membership.own.stamps))

    def _lose(self, found: int) -> None:
        """Mark the ranks of the mask `found` failed, and publish that. The caller holds `_publishing`."""
        fresh = ranks(found) - self._view.failed
        if self._rank in fresh and self._leave is not None:
            self._leave("the others have marked it failed")
        fresh -= {self._rank}
        if not fresh:
            return
        for rank in fresh:
            self._read(rank)  # it may have entered a barrier since its word was last read
        self._changing.change(failed=fresh)
        self._membership.mark_failed(fresh)
        self._publish()

    def _follow(self, rank: int, one: int) -> None:
        """Act on the admission of `rank` by the stamp `one`, and pass it on. The caller holds `_publishing`."""
        if rank == self._rank:
            if self._leave is not None:
                self._leave("another process has taken its place")
            return
        self._lose(1 << rank)
        incarnation = incarnation_in(one)
        self._changing.change(joined=[rank], incarnations={rank: incarnation})
        process = self.returns.process_of(rank, incarnation)
        if process is not None:
            self._readmit(rank, process)  # before its stamp counts: who is found from then on has failed as this one
        self._membership.admit(rank, one)
        self._heard_at[rank] = self._clock()
        self._evicted_at.pop(rank, None)
        self.returns.welcome(rank, one)
        self.send_again(rank)
        self._publish()

    def _check_names(self, what: str, generation: int) -> bool:
        """Check that ranks in a barrier have made one call. Refused: this rank has come back, and made another call.

        Where ranks have come back, `verdict` says which of those in different calls leave.
        """
        stamps, words = self._membership.own.stamps, self._membership.words
        elsewhere = self._elsewhere(generation)
        if not any(stamps[rank] for rank in (*elsewhere, self._rank) if elsewhere):
            return super()._check_names(what, generation)
        others = self._membership.others()
        meets = [rank for rank in others if not self._membership.came_after(rank, generation)]
        finished = {rank for rank in elsewhere if words[rank].flags & FINAL}
        if self._flags & FINAL:
            finished.add(self._rank)
        left = [rank for rank in elsewhere if not words[rank].flags & DESERTED]
        found, cause = verdict(stamps, self._rank, meets, left, finished)
        if found is Verdict.DIFFERS:
            raise MismatchedCalls(self._rank, what, cause, self._name_of(cause))
        if found is Verdict.LEAVES:
            raise Refused(self._rank, f"it is in {what}, and the others in {self._name_of(cause)}")
        return False

    def _elsewhere(self, generation: int) -> list[int]:
        """Return the ranks that are in another barrier, without those that were admitted after that one."""
        membership = self._membership
        return [rank for rank in super()._elsewhere(generation) if not membership.came_after(rank, generation)]

    def _publish(self) -> None:
        if not self.is_outside:  # its former incarnation may still count as alive
            super()._publish()

    @interruption.whole
    def _evict_all(self, silent: frozenset[int], now: float) -> bool:
        fresh = silent - self._evicted_at.keys()
        if self._evict is None or not fresh:
            return False
        self._evicted_at.update(dict.fromkeys(fresh, now))
        self._publish()  # before any rank sees that their processes have ended, so that it knows why
        unreachable = {rank for rank in fresh if not self._evict(rank)}
        for rank in unreachable:
            del self._evicted_at[rank]
        return not unreachable and fresh == silent

    def are_past(self) -> bool:
        """Return whether another rank waits in a barrier that this one has not entered."""
        return any(map(self._is_past, self._membership.others()))

    def _is_past(self, rank: int) -> bool:
        return self._membership.words[rank].entered > self._membership.own.entered

    def check_past(self, what: str, awaited: Collection[int], past: Stopwatch | None) -> Stopwatch | None:
        """Return the time for which this rank, which has come back, has waited for ranks that are in a barrier without
        it; None: it does not wait. Local.

        To be called again and again in a wait, at first with None, then with the last result. Refused: it has done so
        for too long: its program makes other calls than theirs.
        """
        if not (self.returns.has_come_back and awaited and all(map(self._is_past, awaited))):
            return None
        if past is not None and past.seconds() > min(_PASSED_S, self.deadline_s / 8):
            raise Refused(self._rank, f"it is in {what}, and the others in {self._name_of(min(awaited))}")
        return self._stopwatch() if past is None else past

    def _stopwatch(self) -> Stopwatch:
        """A stopwatch to be read in the polls of a wait."""
        return Stopwatch(self._clock, self._transport.longest_poll_s)

    # -- the rank that admits ---------------------------------------------------------------------------------

    def _admit_all(self) -> None:
        """Admit the ranks that ask, where this rank may."""
        for rank in self._view.to_admit(self._rank):
            word = self._cells.read(self._window.memory, rank)
            if word is None or not word.flags & JOINING:
                continue
            incarnation = incarnation_of(word.stamps, rank)
            if incarnation > incarnation_of(self._membership.own.stamps, rank):
                self._consider(rank, incarnation)

    def _consider(self, rank: int, incarnation: int) -> None:
        if self._is_inside and self._flags & FINAL:
            return self.returns.refuse(rank, incarnation, "the others are at the end of the session")
        if not self._may_admit() or not self.propose(rank, incarnation):
            return
        with self._turn.lent() as is_free:
            if not is_free or self._is_inside or self.calls.is_any or not self._may_admit():
                return
            session = self.offer()
            one = stamp(incarnation, self._membership.own.entered)
            if isinstance(session, str):
                return self.returns.refuse(rank, incarnation, session)
            if not self.returns.admit(rank, one, session):
                return self.returns.refuse(rank, incarnation, "too many vectors were made")
            with self._publishing:
                self._follow(rank, one)

    def _may_admit(self) -> bool:
        """Return whether all live ranks have marked those below this one failed, so that none of them has admitted any.

        The same holds for decisions at barriers.
        """
        below = (1 << self._rank) - 1
        return all(not below & ~self._membership.words[rank].failed for rank in self._membership.others())

    # -- the newcomer -----------------------------------------------------------------------------------------

    def ask(
        self, incarnation: int, process: Sequence[int], find_ended: Callable[[], Collection[int]],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        """Come in later, as this incarnation. Local. `find_ended()`: the ranks whose processes have ended.

        `is_over()`: whether the others have ended the session.
        """
        self.is_outside = True
        self._asked = incarnation, tuple(process)
        self._find_ended, self._is_over_elsewhere = find_ended, is_over

    def come_in(self) -> Note:
        """Be admitted; return what all ranks know alike. One-sided.

        Refused: they cannot, or have ended. DeadlinePassed: they have not done it within the deadline.
        """
        incarnation, process = self._asked
        self.returns.announce(incarnation, process, self._others)
        with self._publishing:
            self._flags |= JOINING
            stamps = with_stamp(self._membership.own.stamps, self._rank, stamp(incarnation))
            self._membership.words[self._rank] = Word(stamps=stamps)
            self._publish_to(self._others)
        waited, polls = self._stopwatch(), 0
        while (words := self._admitting(incarnation)) is None:
            if why := self.returns.refusal(incarnation, self._others):
                raise Refused(self._rank, why)
            if self._is_over_elsewhere():
                raise Refused(self._rank, "the others have ended the session")
            if waited.seconds() > self.deadline_s:
                raise DeadlinePassed("malt.init", dict.fromkeys(self._others, 0), dict.fromkeys(self._others, 0.0))
            self._transport.pause(polls)
            polls += 1
        failed, stamps = knowledge(list(words.values()))
        session = self.returns.admission(stamps[self._rank], self._others)
        is_out = failed >> self._rank & 1
        if session is None or is_out:
            raise Refused(self._rank, "the rank that admitted it has failed")
        with self._publishing:
            incarnations = [incarnation_of(stamps, rank) for rank in range(self._size)]
            self._changing.begin(ranks(failed), incarnations)
            self._membership.begin(stamps, words)
            self._flags &= ~JOINING
            self._heard_at = dict.fromkeys(self._others, self._clock())
            self.is_outside = False
            self._publish_to(self._others)  # also to those that are away, whose memory says that this one asks
        self.returns.poll()  # others may have come back before: what they have opened
        for rank in self._membership.others():
            known = self.returns.process_of(rank, incarnations[rank]) if incarnations[rank] else None
            if known is not None:
                self._readmit(rank, known)
        return session

    def _admitting(self, incarnation: int) -> dict[int, Word] | None:
        """The words of the live ranks, all of which have passed this rank's admission on; None: not yet."""
        self._window.sync()
        read = {rank: self._cells.read(self._window.memory, rank) for rank in self._others}
        words = {
            rank: word for rank, word in read.items()
            if word is not None and incarnation_of(word.stamps, self._rank) == incarnation and not word.flags & JOINING
        }  # fmt: skip
        ended = set(self._find_ended())
        asking = {rank for rank, word in read.items() if word is not None and word.flags & JOINING}
        if ended >= set(self._others) or (not words and ended | asking >= set(self._others)):
            raise Refused(self._rank, "the other ranks have ended")
        if not words:
            return None
        failed, stamps = knowledge(list(words.values()))
        outside = {
            rank for rank in asking
            if (word := read[rank]) is not None
            and incarnation_of(word.stamps, rank) == incarnation_of(stamps, rank)
        }  # fmt: skip
        # Those were admitted, too, and wait for the others as this one does: they will know the same.
        waited = set(self._others) - ranks(failed) - ended - outside
        if any(rank not in words or words[rank].stamps[self._rank] != stamps[self._rank] for rank in waited):
            return None
        return words
