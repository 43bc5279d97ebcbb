"""Barriers that name the missing ranks, and outlast failed ones where ranks may fail while the others go on.

Each rank has a cell in the memory of every rank (dstorm/membership/status.py), which it alone writes. The cell holds
how many barriers the rank has entered, the name of the last one and a checksum of that before, the number of its steps,
and the ranks that it has marked failed. Ranks that are in barriers of different names raise an error at once. So do
ranks that need a rank that has departed. A rank that has raised it may go on to the next barrier: ranks that look only
then find the name before.

A barrier ends once all live ranks know the same list of failed ranks (dstorm/membership/decision.py). Where no rank may
fail, the list is empty, and a rank leaves when it has seen that all others have entered.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from dstorm.call_lock import CallLock
from dstorm.errors import ClosedError, DeadlinePassed, MismatchedCalls, PeerLost, Refused
from dstorm.membership.barriers.calls import Calls
from dstorm.membership.decision import (
    DEPARTED,
    DESERTED,
    FINAL,
    JOINING,
    MARKS,
    OPEN,
    Generation,
    Membership,
    Word,
    mask,
    ranks,
)
from dstorm.membership.returns.verdict import Verdict, verdict
from dstorm.membership.status import NAME_NBYTES, Cells
from dstorm.transport import Transport, Window
from dstorm.view import FaultTolerantView
from dstorm.waits import interruption
from dstorm.waits.wait import Wait

if TYPE_CHECKING:
    from dstorm.membership.returns.board import Note
    from dstorm.membership.returns.returns import Returns

_HEARTBEATS_A_DEADLINE = 10
_LONGEST_HEARTBEAT_S = 1.0


def nbytes(size: int) -> int:
    """Bytes that the barrier of `size` ranks takes of each rank's memory."""
    return size * Cells(size).nbytes


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Barrier:
    """The barriers of one rank. `window` has nbytes(transport.size) bytes and is used for nothing else.

    `find_failed()`: the ranks whose failure this rank can find by itself. `leave(why)`: ends this process; called where
    the others have marked it failed. `evict(rank)`: kills the process of a rank that holds up the others, and returns
    whether it can. `check_s`: the period of the checks for failed ranks; by default there are none, as none may fail.
    """

    def __init__(
        self, transport: Transport, window: Window, deadline_s: float, find_failed: Callable[[], Sequence[int]] = list,
        leave: Callable[[str], object] | None = None, evict: Callable[[int], bool] | None = None,
        check_s: float = math.inf,
    ) -> None:  # fmt: skip
        self._transport = transport
        self._clock = transport.clock
        self._window = window
        self._report = _print
        """Called with a line about a long wait."""
        self._view = cast("FaultTolerantView", transport.view)  # it is changed only where it can change
        self._find_failed, self._leave, self._evict = find_failed, leave, evict
        self._returns: Returns | None = transport.returns
        if self._returns is not None:
            self._returns.barrier = self
        self.deadline_s = deadline_s
        """How long a barrier waits for missing ranks that give no heartbeat."""
        self._rank = transport.rank
        self._size = size = transport.size
        self.membership = Membership(self._rank, self._view)
        """What it knows of all ranks."""
        self._others = [rank for rank in range(size) if rank != self._rank]
        self._cells = Cells(size)
        self._cell = np.zeros(self._cells.nbytes, np.uint8)
        self._reading = threading.RLock()
        """Held by any thread that notes the word of another rank: an older one must not take the place of a newer."""
        self._publishing = threading.RLock()
        """Held by any thread that changes or publishes this rank's word."""
        self._call_lock = CallLock()
        self._name = self._name_before = b""
        self.calls = Calls()
        """The collective calls that its barriers are part of."""
        self._flags = self._steps = self._heartbeats = self._open = self._awaited = self._marked = 0
        """Of them `_awaited` is the ranks that this rank waits for, as it has published them, as a mask."""
        self.waiting: Wait | None = None
        """As `Transport.waiting`."""
        self._evicted_at: dict[int, float] = {}
        """The ranks that it has evicted, and when."""
        self._is_inside = self._is_over = False
        self._waits_at = 0
        """The number of the barrier in which it waits. 0: none."""
        self.is_outside = False
        """Whether this rank has come back, and is not admitted yet."""
        now = transport.clock()
        self._heard_at = dict.fromkeys(self._others, now)
        self._published_at = self._checked_at = now
        self._check_s = check_s

    def count_step(self) -> None:
        """Count a step of this rank; publish it, and check for failed ranks, where the last time was a while ago.
        One-sided.
        """
        self._steps += 1
        now = self._clock()
        if self._transport.trains_since is None:
            self._transport.begin_training(now)
        if now - self._published_at > self._heartbeat_s:
            self._publish_soon()
        if now - self._checked_at > self._check_s:
            self.check()

    def heartbeat(self) -> None:
        """Give a heartbeat; publish it where the last time was a while ago. One-sided. Any thread may call it."""
        self._heartbeats += 1
        if self._clock() - self._published_at > self._heartbeat_s:
            self._publish_soon()

    @property
    def _heartbeat_s(self) -> float:
        """The period of heartbeats."""
        return min(self.deadline_s / _HEARTBEATS_A_DEADLINE, _LONGEST_HEARTBEAT_S)

    @property
    def is_marked(self) -> bool:
        """True if any rank has marked the barrier that this rank has left last: the same on all ranks. Local."""
        mark = MARKS[self.membership.own.entered % 2]
        return bool(self._flags & mark) or any(self.membership.words[rank].flags & mark for rank in self._others)

    @property
    def lacks_ranks(self) -> bool:
        """True if this rank waits in a barrier that a live rank has not entered, as far as this rank knows. Local."""
        if not (number := self._waits_at):
            return False
        self._window.sync()
        self._read(self.membership.others())
        # One that has left says so, and its word may come before that of one that has entered.
        has_ended = any(word.decided >= number for word in self.membership.words)
        return not has_ended and bool(self.membership.missing(number))

    def tell_left(self) -> None:
        """Publish that this rank has left the last barrier, unless it has. One-sided. A decision says so anyhow."""
        left = self.membership.own.entered - self._is_inside
        if self.membership.own.decided < left:
            with self._publishing:
                if self.membership.leave(left):
                    self._publish()

    @property
    def next_number(self) -> int:
        """The number of the next barrier. Local."""
        return self.membership.own.entered + 1

    @interruption.whole
    def check(self) -> None:
        """Read the words of the others; find the ranks that have failed, mark them failed, and publish that. One-sided.

        Also admit ranks that come back, and read what they tell.
        """
        if self.is_outside:
            return
        self._checked_at = self._clock()
        since = self.membership.own.generation
        self._window.sync()
        found = mask(self._find_failed()) | self._read(self.membership.others())
        if found or self._returns is not None:
            self._mark_failed(found, since)
        if self._returns is not None:
            self._returns.admit_all()
            with self._publishing:
                if self._returns.poll():
                    self._view.touch()

    def check_now_and_then(self) -> None:
        """Do `check` where the last one was a while ago. One-sided."""
        if self._clock() - self._checked_at > self._check_s:
            self.check()

    @interruption.whole
    def enter(
        self, what: str, patience_s: float | None = None, final: bool = False, mark: bool = False
    ) -> frozenset[int]:  # fmt: skip
        """Return when all live ranks have entered the barrier: the ranks that had failed. Collective.

        The result is the same on all ranks. A `final` barrier ends the session: its result lacks ranks that entered it,
        as these may have ended since. `mark`: what `is_marked` tells. A barrier that is entered once more, after
        DeadlinePassed, keeps the mark that it had: others may have left it.

        DeadlinePassed: the missing ranks have given no heartbeat for the deadline, or have not come within
        `patience_s`; a later call waits for them again. PeerLost: a missing rank has departed. MismatchedCalls: a rank
        is in another barrier. ClosedError: this rank has departed. OverlappingCalls: another thread of this rank is in
        a collective call. KeyboardInterrupt, and what handlers of other signals raise: as DeadlinePassed.
        """
        with self._call_lock.taken(what):
            return self._enter(self.calls.name(what), patience_s, final, mark)

    @contextlib.contextmanager
    def calling(self, what: str) -> Iterator[None]:
        """Give the collective calls in the block the name `what`. Local.

        OverlappingCalls: another thread of this rank is in a collective call.
        """
        with self._call_lock.taken(what), self.calls.calling(what, self._transport.trace):
            yield

    def _enter(self, what: str, patience_s: float | None, final: bool, mark: bool) -> frozenset[int]:
        if self._flags & DEPARTED:
            raise ClosedError(f"{what}: this rank has departed")
        with self._publishing:
            self._name_before, self._name = self._name, what.encode()[:NAME_NBYTES]
            number = self.membership.enter(zlib.crc32(self._name))
            self._is_inside = True
            self._flags = self._flags | FINAL if final else self._flags & ~FINAL
            self._set_mark(number, mark)
            self._publish_to(self.membership.others(), enters=not final)
        decision = self._decision(number, what)
        if decision is None:
            decision = self._wait(number, what, patience_s, final)
        self._window.sync()  # the entries of others were read before what they had put until then
        self._is_inside = False
        words = self.membership.words
        return frozenset(rank for rank in ranks(decision) if not final or words[rank].entered < number)

    def _set_mark(self, number: int, mark: bool) -> None:
        if number > self._marked:
            self._marked, bit = number, MARKS[number % 2]
            self._flags = self._flags | bit if mark else self._flags & ~bit

    def _missing(self, number: int) -> list[int]:
        """The ranks that have not entered; where all have, the ranks that may not know that yet."""
        return self.membership.missing(number) or self.membership.others()

    def _passed(self, number: int, wait: Wait) -> DeadlinePassed:
        """The error that names the missing ranks. The barrier does not take place."""
        missing = self._missing(number)
        steps = {rank: self.membership.words[rank].steps for rank in missing}
        silent_s = {rank: wait.seconds_since(self._heard_at[rank]) for rank in missing}
        self.end_wait(in_vain=True)
        self._withdraw()
        return DeadlinePassed(wait.what, steps, silent_s)

    def opened(self) -> None:
        """Count one more vector that this rank has open. Local."""
        with self._publishing:
            self._open += 1
            self._flags |= OPEN

    def closed(self) -> None:
        """Count one open vector less, and publish it. One-sided."""
        with self._publishing:  # several threads may close vectors
            self._open -= 1
            if not self._open:
                self._flags &= ~OPEN
                self._publish_soon()

    def has_closed(self, rank: int) -> bool:
        """Return whether `rank` has closed all its vectors, as far as this rank knows. Local."""
        return not self.membership.words[rank].flags & OPEN

    def _wait(self, number: int, what: str, patience_s: float | None, final: bool) -> int:
        """Poll until there is a decision; return it."""
        start = self._clock()
        wait = Wait(
            self._rank, len(self._others) + 1, what, start, self.deadline_s, patient=True, final=final,
            longest_poll_s=self._transport.longest_poll_s,
        )  # fmt: skip
        polls = 0
        trace, last = self._transport.trace, self.membership.missing(number)
        self._waits_at = number
        try:
            while (decision := self._decision(number, what)) is None:
                interruption.raise_in_wait()  # at once: in a pause all may enter, and the others leave
                is_due = wait.is_due(self._clock())
                if trace is not None:
                    last = self.membership.missing(number) or last
                if patience_s is not None and wait.seconds > patience_s:
                    raise self._passed(number, wait)
                if is_due:
                    wait.ranks = self._missing(number)
                    wait.spared = [rank for rank in wait.ranks if final and self.has_closed(rank)]
                    if self.poll_wait(wait):
                        raise self._passed(number, wait)
                self._transport.pause(polls)
                self.check_now_and_then()
                polls += 1
            return decision
        except (MismatchedCalls, Refused):
            raise
        except BaseException:  # of a signal: the program may go on, and its next call is this barrier
            if self._is_inside:
                self._withdraw()
                self._publish()
            raise
        finally:
            self._waits_at = 0
            self.end_wait()
            self._transport.waited_s += wait.seconds
            if trace is not None:
                now = self._clock()
                trace.waited(what, start, now, [(rank, now - start) for rank in last])

    def depart(self) -> None:
        """Publish that this rank leaves in order while the others continue. One-sided. A second call does nothing."""
        if self._flags & DEPARTED:
            return
        if self._is_inside:  # the barrier was left by an exception: ranks still in it must not count on this rank
            self._withdraw()
        self._flags |= DEPARTED
        self._publish()

    def close(self) -> None:
        """Free the memory, once no thread publishes a heartbeat, and none will. Collective."""
        with self._publishing:
            self._is_over = True
        self._window.free()

    def _withdraw(self) -> None:
        with self._publishing:
            self.membership.withdraw()
            self._name = self._name_before
            self._heartbeats += 1  # the word is a newer one, also where ranks must tell two of them apart
        self._is_inside = False

    def _decision(self, number: int, what: str) -> int | None:
        """The failed ranks at barrier `number`, as a mask, the same on all ranks; None: it has not ended."""
        since = self.membership.own.generation
        self._window.sync()
        if (found := self._read(self.membership.others())) or self._returns is not None:
            self._mark_failed(found, since)
        missing = self.membership.missing(number)
        self._check_departed(missing, what)
        if not self._is_one_call(what, number) or missing:
            return None
        with self._publishing:
            if self.membership.missing(number):  # another thread has gone on to the next generation
                return None
            before = self.membership.own
            decision = self.membership.decision(number)
            if self.membership.own is not before:
                self._lose(self.membership.own.lost)
                self._publish()  # also where another rank decided: it may fail before all know its decision
        return decision

    def _check_departed(self, missing: Iterable[int], what: str) -> None:
        """PeerLost: one of the ranks `missing` has departed, and will never come."""
        for rank in missing:
            if self.membership.words[rank].flags & DEPARTED:
                self._withdraw()
                self._flags |= DESERTED
                raise PeerLost(rank, f"it has departed, and {what} needs it")

    def _is_one_call(self, what: str, number: int) -> bool:
        """Return whether all ranks in barrier `number` have the same name for it, those that leave anyhow left out.

        Where ranks may fail, one in its final barrier has finished before the others. They wait for the end of its
        process. MismatchedCalls: a rank has another name. Refused: this rank has come back, and made another call.
        """
        elsewhere, words = self._elsewhere(number), self.membership.words
        if not elsewhere:
            return True
        # One that has noticed it, and has entered its final barrier since, has not finished before the others.
        still = [rank for rank in elsewhere if words[rank].called(number) == words[rank].name]
        finished = self._view.outlasted(rank for rank in still if words[rank].flags & FINAL)
        if self._flags & FINAL:
            finished.add(self._rank)
        # A moment after a rank that knows of a departed one, this rank knows of that, too, and raises PeerLost.
        left = [rank for rank in elsewhere if not words[rank].flags & DESERTED]
        found, cause = verdict(self._view.came_in, self._rank, self.membership.others(), left, finished)
        if found is Verdict.DIFFERS:
            raise MismatchedCalls(self._rank, what, cause, self.name_of(cause, number))
        if found is Verdict.LEAVES:
            raise Refused(self._rank, f"it is in {what}, and the others in {self.name_of(cause, number)}")
        return False

    def _elsewhere(self, number: int) -> list[int]:
        """The ranks that have another name for barrier `number`; not those that have come back, and begin after it.

        A rank that has noticed it may be in the next barrier by now, for another call.
        """
        names, words = (0, self.membership.own.name), self.membership.words
        return [rank for rank in self.membership.others() if words[rank].called(number) not in names]

    def name_of(self, rank: int, number: int | None = None) -> str:
        """Return the name that `rank` has for barrier `number`, by default the last that it has entered. Local."""
        word = self.membership.words[rank]
        return self._cells.name(self._window.memory, rank, word.name if number is None else word.called(number))

    def _publish_soon(self) -> None:
        """Publish the word of this rank without a wait for other hosts, where somebody sends to them meanwhile."""
        if (carrier := self._transport.carrier) is None:
            return self._publish()
        self._published_at = self._transport.clock()
        carrier.later(self._publish, self._others)

    def _publish(self) -> None:
        if not self.is_outside:  # its former incarnation may still count as alive
            self._publish_to(self.membership.others())

    def _publish_to(self, others: Sequence[int], enters: bool = False) -> None:
        """Publish the word of this rank to `others`. `enters`: they look for it until they have seen it."""
        with self._publishing:  # a heartbeat may come from another thread
            if self._is_over:
                return
            word = self.membership.own._replace(
                steps=self._steps, heartbeats=self._heartbeats, flags=self._flags, awaited=self._awaited,
                evicted=mask(self._evicted_at),
            )  # fmt: skip
            self._cells.write(self._cell, word, self._name)
            self._send(others, enters)
            self._published_at = self._transport.clock()

    def _send(self, others: Sequence[int], enters: bool) -> None:
        """Put the cell of this rank to `others`. `enters`: as that of `_publish_to`."""
        for peer in others:
            self._window.put(self._cell, peer, self._cells.at(self._rank))
        if others:
            self._window.flush(others)

    # -- waits, also those of other calls ---------------------------------------------------------------------

    def poll_wait(self, wait: Wait) -> bool:
        """Return whether the deadline of `wait` has passed. One-sided. Publishes the ranks that this one waits for."""
        self.waiting = wait
        self.check()
        now = self._clock()
        awaited = mask(wait.ranks)
        if awaited != self._awaited and now - self._published_at > self._heartbeat_s:
            self._awaited = awaited
            self._publish()
        if line := wait.report(now, self._awaited_by):
            self._report(line)
        with self._publishing:  # else another thread may admit the next incarnation of one that is to be evicted
            state = wait.judge(now, self._alive_at, self._awaited_by)
            if state.silent and not wait.final and self._evict_all(state.silent, now):
                return False
        return state.is_over

    def end_wait(self, in_vain: bool = False) -> None:
        """Publish that this rank no longer waits; `in_vain`, it stays published until the next heartbeat. One-sided."""
        self.waiting = None
        was_published, self._awaited = self._awaited, 0
        if was_published and not in_vain:
            self._publish()

    def heard_at(self, rank: int) -> float:
        """Return the time of the last heartbeat of `rank`, by this rank's clock, as far as this rank knows. Local."""
        return self._heard_at[rank]

    def _alive_at(self, rank: int) -> float:
        """Return when `rank` last gave a heartbeat, or was evicted: it then has the deadline once more to end."""
        return max(self._heard_at[rank], self._evicted_at.get(rank, 0.0))

    def _awaited_by(self, rank: int) -> frozenset[int]:
        """The live ranks that `rank` waits for, as far as it has published them."""
        return ranks(self.membership.words[rank].awaited) - self._view.failed

    @interruption.whole
    def _evict_all(self, silent: frozenset[int], now: float) -> bool:
        """Evict the ranks that hold up the others; return whether all of them could be, and none was before."""
        fresh = silent - self._evicted_at.keys()
        if self._evict is None or not fresh:
            return False
        self._evicted_at.update(dict.fromkeys(fresh, now))
        self._publish()  # before any rank sees that their processes have ended, so that it knows why
        unreachable = {rank for rank in fresh if not self._evict(rank)}
        for rank in unreachable:
            del self._evicted_at[rank]
        return not unreachable and fresh == silent

    def was_evicted(self, rank: int) -> bool:
        """Return whether `rank` was killed because it gave no heartbeat while others waited for it. Local."""
        evicting = [word for word in self.membership.words if word.evicted >> rank & 1]
        # A word from before its return says that its former incarnation was evicted.
        return rank in self._evicted_at or not all(self.membership.is_former(rank, word) for word in evicting)

    # -- words ------------------------------------------------------------------------------------------------

    def word(self, rank: int) -> Word | None:
        """Return the word of `rank` in this rank's memory; None where it is being written, or never was. Local."""
        return self._cells.read(self._window.memory, rank)

    def _read(self, some: Iterable[int]) -> int:
        """Read the words of `some` ranks; return the ranks that failed by them and are not marked yet, as a mask."""
        found = 0
        with self._reading:
            for rank in some:
                if (word := self.word(rank)) is not None:
                    found |= self._note(rank, word)
        return found

    def _note(self, rank: int, word: Word) -> int:
        """Note the word of `rank`, which is whole; return the same."""
        if word is not self.membership.words[rank]:
            if word.flags & JOINING:  # its former incarnation has failed
                return 1 << rank if self.membership.is_next(word) else 0
            if self.membership.is_former(rank, word):
                return 0
            self._heard_at[rank] = self._clock()
        return self.membership.note(rank, word)

    # -- failures and returns ---------------------------------------------------------------------------------

    def _mark_failed(self, found: int, since: Generation) -> None:
        """Go on to the next generation, if others have; mark the ranks of the mask `found` failed.

        `since`: the generation in which they were found. In a later one they are found again, as far as they have not
        come back: another thread may have gone on meanwhile.
        """
        with self._publishing:
            if (word := self.membership.admission()) is not None:
                self.follow(word)
            if since == self.membership.own.generation:
                self._lose(found)

    def _lose(self, found: int) -> None:
        """Mark the ranks of the mask `found` failed, and publish that. The caller holds `_publishing`."""
        fresh = ranks(found) - self._view.failed
        if self._rank in fresh and self._leave is not None:
            self._leave("the others have marked it failed")
        fresh -= {self._rank}
        if not fresh:
            return
        self._read(fresh)  # they may have entered a barrier since their words were last read
        self._view.change(failed=fresh)
        self.membership.mark_failed(fresh)
        self._publish()

    def follow(self, word: Word, admission: Note | None = None) -> None:
        """Go on to the generation of `word`, and pass it on. One-sided. The caller keeps others from publishing.

        `admission`: what its newcomer is to know, by the rank that has admitted it.
        """
        number, rank, incarnation, _ = word.generation
        if rank == self._rank or number > self.membership.own.generation.number + 1:
            return self._lose(1 << self._rank)  # else all others would have waited for this rank
        assert self._returns is not None
        self._view.change(joined=[rank], incarnations={rank: incarnation})
        self._returns.watch(rank)  # before its generation counts: who is found from then on has failed in that
        self.membership.admit(word)
        self._heard_at[rank] = self._clock()
        self._evicted_at.pop(rank, None)
        self._returns.welcome(rank, admission)
        self._publish()

    @property
    def is_at_the_end(self) -> bool:
        """True if this rank is in its final barrier. Local."""
        return self._is_inside and bool(self._flags & FINAL)

    @contextlib.contextmanager
    def between_calls(self) -> Iterator[bool]:
        """Keep other threads from collective calls and from publishing while the block runs. Local.

        Yields whether this rank leads, and is in no collective call.
        """
        with self._call_lock.lent() as is_free, self._publishing:
            yield is_free and not self._is_inside and not self.calls.is_any and self.membership.leads()

    def past(self) -> list[int]:
        """Return the ranks that wait in a barrier which this one has not entered. Local."""
        words, entered = self.membership.words, self.membership.own.entered
        return [rank for rank in self.membership.others() if words[rank].entered > entered]

    def read_words(self) -> dict[int, Word]:
        """Return the words of the other ranks in this rank's memory that are whole. Local."""
        self._window.sync()
        found = {rank: self.word(rank) for rank in self._others}
        return {rank: word for rank, word in found.items() if word is not None}

    def forget(self) -> None:
        """Forget the words that a former incarnation was told: who asked then may be a member by now. Local."""
        self._window.memory[:] = 0

    def ask(self, incarnation: int) -> None:
        """Publish that this rank asks to be admitted, as `incarnation`. One-sided."""
        with self._publishing:
            self._flags |= JOINING
            self.membership.words[self._rank] = Word(generation=Generation(0, self._rank, incarnation))
            self._publish_to(self._others)

    def begin(self, words: Mapping[int, Word]) -> None:
        """Begin as a member, with the `words` of the others, whose view this rank has taken over. One-sided."""
        with self._publishing:
            self.membership.begin(words)
            self._flags &= ~JOINING
            self._heard_at = dict.fromkeys(self._others, self._clock())
            self.is_outside = False
            self._publish_to(self._others)  # also to those that are away, whose memory says that this one asks
