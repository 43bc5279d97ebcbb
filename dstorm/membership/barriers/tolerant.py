"""Barriers of ranks that may fail while the others go on, and may come back.

A barrier ends when all live ranks know the same list of failed ranks (dstorm/membership/decision.py).

A rank that comes back asks by a word that has the flag JOINING and names its incarnation. The lowest live rank admits
it between two collective calls of its own, by the next generation. It gives the newcomer what all ranks know alike
then. The newcomer takes part once all live ranks are in that generation. Where none may come back nobody asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dstorm.errors import DeadlinePassed, MismatchedCalls, Refused
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.decision import DESERTED, FINAL, JOINING, Generation, Word, mask, ranks
from dstorm.membership.returns.board import Note
from dstorm.membership.returns.returns import Returns
from dstorm.membership.returns.verdict import Verdict, verdict
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
        since = self._membership.own.generation
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
    def _decision(self, number: int, what: str) -> int | None:
        since = self._membership.own.generation
        self._window.sync()
        found = self._read_all()
        has_one_name = self._check_names(what, number)
        self._mark_failed(found, since)
        if not has_one_name:
            return None
        with self._publishing:
            if self._membership.own.decided != number:
                if (decision := self._membership.decision(number)) is None:
                    return None
                self._lose(decision)
                self._publish()  # also where another rank decided: it may fail before all know its decision
        # That rank has seen the words of all. From another host they come over other connections than its own.
        return None if self._membership.missing(number) else self._membership.own.lost

    def _note(self, rank: int, word: Word) -> int:
        if word.flags & JOINING:  # its former incarnation has failed
            return 1 << rank if self._is_next(word) else 0
        return 0 if self._membership.is_former(rank, word) else super()._note(rank, word)

    def _mark_failed(self, found: int, since: Generation) -> None:
        """Go on to the next generation, if others have; mark the ranks of the mask `found` failed.

        `since`: the generation in which they were found. In a later one they are found again, as far as they have not
        come back: another thread may have gone on meanwhile.
        """
        with self._publishing:
            if (word := self._membership.admission()) is not None:
                self._follow(word)
            if since == self._membership.own.generation:
                self._lose(found)

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

    def _follow(self, word: Word, admission: Note | None = None) -> None:
        """Go on to the generation of `word`, and pass it on. The caller holds `_publishing`.

        `admission`: what its newcomer is to know, by the rank that has admitted it.
        """
        number, rank, incarnation, _ = word.generation
        if rank == self._rank or number > self._membership.own.generation.number + 1:
            return self._lose(1 << self._rank)  # else all others would have waited for this rank
        self._changing.change(joined=[rank], incarnations={rank: incarnation})
        self._watch(rank)  # before its generation counts: who is found from then on has failed in that
        self._membership.admit(word)
        self._heard_at[rank] = self._clock()
        self._evicted_at.pop(rank, None)
        self.returns.welcome(rank, admission)
        self.send_again(rank)
        self._publish()

    def _watch(self, rank: int) -> None:
        """Note the process of `rank`, where it has come back. Else, or where that is not known, it has failed."""
        process = self.returns.process_of(self._view.member(rank))
        if process is not None:
            self._readmit(rank, process)

    def _check_names(self, what: str, number: int) -> bool:
        """Check that ranks in a barrier have made one call. Refused: this rank has come back, and made another call.

        Where ranks have come back, `verdict` says which of those in different calls leave.
        """
        came_in, words = self._view.came_in, self._membership.words
        elsewhere = self._elsewhere(number)
        if not any(came_in[rank] for rank in (*elsewhere, self._rank) if elsewhere):
            return super()._check_names(what, number)
        finished = {rank for rank in elsewhere if words[rank].flags & FINAL}
        if self._flags & FINAL:
            finished.add(self._rank)
        left = [rank for rank in elsewhere if not words[rank].flags & DESERTED]
        found, cause = verdict(came_in, self._rank, self._membership.others(), left, finished)
        if found is Verdict.DIFFERS:
            raise MismatchedCalls(self._rank, what, cause, self._name_of(cause))
        if found is Verdict.LEAVES:
            raise Refused(self._rank, f"it is in {what}, and the others in {self._name_of(cause)}")
        return False

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
            if word is not None and word.flags & JOINING and self._is_next(word):
                self._consider(rank, word.generation.incarnation)

    def _is_next(self, word: Word) -> bool:
        """Return whether `word`, of a rank that asks to be admitted, is of one that has not been."""
        return word.generation.incarnation > self._view.incarnation(word.generation.rank)

    def _consider(self, rank: int, incarnation: int) -> None:
        if self._is_inside and self._flags & FINAL:
            return self.returns.refuse(rank, incarnation, "the others are at the end of the session")
        if not self._membership.leads() or not self.propose(rank, incarnation):
            return
        with self._call_lock.lent() as is_free, self._publishing:
            if not is_free or self._is_inside or self.calls.is_any or not self._membership.leads():
                return
            session = self.offer()
            if isinstance(session, str):
                return self.returns.refuse(rank, incarnation, session)
            generation = Generation(self._view.generation + 1, rank, incarnation, self._membership.own.entered)
            came_in, incarnations = [*self._view.came_in], [*self._view.incarnations]
            came_in[rank], incarnations[rank] = generation.number, incarnation
            admission = {"generation": generation, "members": [incarnations, came_in], "session": session}
            if not self.returns.is_short(admission):
                return self.returns.refuse(rank, incarnation, "too many vectors were made")
            self._follow(Word(generation=generation), admission)

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
        incarnation = self._ask()
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
        return self._begin(words)

    def _ask(self) -> int:
        """Ask to be admitted; return as which incarnation. One-sided."""
        incarnation, process = self._asked
        self.returns.announce(incarnation, process, self._others)
        with self._publishing:
            self._flags |= JOINING
            self._membership.words[self._rank] = Word(generation=Generation(0, self._rank, incarnation))
            self._publish_to(self._others)
        return incarnation

    def _begin(self, words: dict[int, Word]) -> Note:
        """Begin as a member, with the words of the others; return what all ranks know alike. One-sided. Refused."""
        out = {rank for word in words.values() for rank in ranks(word.failed)}
        admission = self.returns.admission(next(iter(words.values())).generation, self._others)
        if admission is None or self._rank in out:
            raise Refused(self._rank, "the rank that admitted it has failed")
        with self._publishing:
            self._changing.begin(out, *admission["members"])
            for rank in set(self._others) - out:
                self._watch(rank)
            self._membership.begin(words)
            self._flags &= ~JOINING
            self._heard_at = dict.fromkeys(self._others, self._clock())
            self.is_outside = False
            self._publish_to(self._others)  # also to those that are away, whose memory says that this one asks
        self.returns.poll()  # others may have come back before: what they have opened
        session: Note = admission["session"]
        return session

    def _admitting(self, incarnation: int) -> dict[int, Word] | None:
        """The words of the live ranks, all of which have passed this rank's admission on; None: not yet."""
        self._window.sync()
        read = {rank: self._cells.read(self._window.memory, rank) for rank in self._others}
        asking = {rank for rank, word in read.items() if word is not None and word.flags & JOINING}
        words = {
            rank: word for rank, word in read.items()
            if word is not None and rank not in asking and word.generation[1:3] == (self._rank, incarnation)
        }  # fmt: skip
        newest = max((word.generation.number for word in words.values()), default=0)
        words = {rank: word for rank, word in words.items() if word.generation.number == newest}
        ended = set(self._find_ended())
        if ended >= set(self._others) or (not words and ended | asking >= set(self._others)):
            raise Refused(self._rank, "the other ranks have ended")
        out = {rank for word in words.values() for rank in ranks(word.failed)}
        words = {rank: word for rank, word in words.items() if rank not in out}
        return words if words and words.keys() >= set(self._others) - out - ended else None
