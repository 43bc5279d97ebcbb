"""Barriers that name the missing ranks, where no rank can fail without the job.

Each rank has a cell in the memory of every rank (dstorm/membership/status.py), which it alone writes. The cell holds
how many barriers the rank has entered, the name of the last one, the number of its steps, and the ranks that it has
marked failed. A rank leaves a barrier when it has seen that all others have entered it. Ranks that are in barriers of
different names raise an error at once. So do ranks that need a rank that has departed.

dstorm/membership/barriers/tolerant.py has the barriers of ranks that may fail.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dstorm.call_lock import CallLock
from dstorm.errors import ClosedError, DeadlinePassed, MismatchedCalls, PeerLost
from dstorm.membership.barriers.calls import Calls
from dstorm.membership.decision import DEPARTED, DESERTED, FINAL, MARKS, OPEN, Membership, Word, mask, ranks
from dstorm.membership.status import NAME_NBYTES, Cells
from dstorm.transport import Transport, Window
from dstorm.waits import interruption
from dstorm.waits.wait import Wait

_HEARTBEATS_A_DEADLINE = 10
_LONGEST_HEARTBEAT_S = 1.0


def nbytes(size: int) -> int:
    """Bytes that the barrier of `size` ranks takes of each rank's memory."""
    return size * Cells(size).nbytes


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Barrier:
    """The barriers of one rank. `window` has nbytes(transport.size) bytes and is used for nothing else.

    `report(line)`: prints a line about a long wait.
    """

    _excuses = DESERTED
    """Flags of ranks that may be in another barrier: a moment later this rank knows why, and raises that error."""

    def __init__(
        self, transport: Transport, window: Window, deadline_s: float, report: Callable[[str], object] = _print
    ) -> None:  # fmt: skip
        self._transport = transport
        self._clock = transport.clock
        self._window = window
        self._report = report
        self._view = transport.view
        self.deadline_s = deadline_s
        self._rank = transport.rank
        self._size = size = transport.size
        self._membership = Membership(self._rank, self._view)
        self._others = [rank for rank in range(size) if rank != self._rank]
        self._cells = Cells(size)
        self._cell = np.zeros(self._cells.nbytes, np.uint8)
        self._reading = threading.RLock()
        """Held by any thread that notes the word of another rank: an older one must not take the place of a newer."""
        self._publishing = threading.RLock()
        """Held by any thread that changes or publishes this rank's word."""
        self._call_lock = CallLock()
        self._name = b""
        self.calls = Calls()
        """The collective calls that its barriers are part of."""
        self._flags = self._steps = self._heartbeats = self._open = self._awaited = self._marked = 0
        """Of them `_awaited` is the ranks that this rank waits for, as it has published them, as a mask."""
        self.waiting: Wait | None = None
        """As `Transport.waiting`."""
        self._evicted_at: dict[int, float] = {}
        """The ranks that it has evicted, and when."""
        self._is_inside = self._is_over = False
        now = transport.clock()
        self._heard_at = dict.fromkeys(self._others, now)
        self._published_at = self._checked_at = now
        self._check_s = math.inf
        """The period of the checks for failed ranks; here none, as none can fail."""

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
    def deadline_s(self) -> float:
        """The seconds that a barrier waits for missing ranks that give no heartbeat."""
        return self._deadline_s

    @deadline_s.setter
    def deadline_s(self, deadline_s: float) -> None:
        """Set it, and the period of heartbeats, which follows from it."""
        self._deadline_s = deadline_s
        self._heartbeat_s = min(deadline_s / _HEARTBEATS_A_DEADLINE, _LONGEST_HEARTBEAT_S)

    @property
    def is_marked(self) -> bool:
        """True if any rank has marked the barrier that this rank has left last: the same on all ranks. Local."""
        mark = MARKS[self._membership.own.entered % 2]
        return bool(self._flags & mark) or any(self._membership.words[rank].flags & mark for rank in self._others)

    @property
    def next_number(self) -> int:
        """The number of the next barrier. Local."""
        return self._membership.own.entered + 1

    def check(self) -> None:
        """Read the words of all other ranks. Local."""
        self._window.sync()
        self._read_all()

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
        a collective call.
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
            self._name = what.encode()[:NAME_NBYTES]
            number = self._membership.enter(zlib.crc32(self._name))
            self._is_inside = True
            self._flags = self._flags | FINAL if final else self._flags & ~FINAL
            self._set_mark(number, mark)
            self._publish_to(self._membership.others(), enters=not final)
        decision = self._decision(number, what)
        if decision is None:
            decision = self._wait(number, what, patience_s, final)
        self._window.sync()  # the entries of others were read before what they had put until then
        self._is_inside = False
        self._check_names(what, number)
        words = self._membership.words
        return frozenset(rank for rank in ranks(decision) if not final or words[rank].entered < number)

    def _set_mark(self, number: int, mark: bool) -> None:
        if number > self._marked:
            self._marked, bit = number, MARKS[number % 2]
            self._flags = self._flags | bit if mark else self._flags & ~bit

    def _missing(self, number: int) -> list[int]:
        """The ranks that have not entered; where all have, the ranks that may not know that yet."""
        return self._membership.missing(number) or self._membership.others()

    def _passed(self, number: int, wait: Wait) -> DeadlinePassed:
        """The error that names the missing ranks. The barrier does not take place."""
        missing = self._missing(number)
        steps = {rank: self._membership.words[rank].steps for rank in missing}
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
        return not self._membership.words[rank].flags & OPEN

    def _wait(self, number: int, what: str, patience_s: float | None, final: bool) -> int:
        """Poll until there is a decision; return it."""
        start = self._clock()
        wait = Wait(
            self._rank, len(self._others) + 1, what, start, self.deadline_s, patient=True, final=final,
            longest_poll_s=self._transport.longest_poll_s,
        )  # fmt: skip
        polls = 0
        trace, last = self._transport.trace, self._membership.missing(number)
        try:
            while (decision := self._decision(number, what)) is None:
                is_due = wait.is_due(self._clock())
                if trace is not None:
                    last = self._membership.missing(number) or last
                if patience_s is not None and wait.seconds > patience_s:
                    raise self._passed(number, wait)
                if is_due:
                    wait.ranks = self._missing(number)
                    wait.spared = [rank for rank in wait.ranks if final and self.has_closed(rank)]
                    if self.poll_wait(wait):
                        raise self._passed(number, wait)
                self._transport.pause(polls)
                interruption.raise_in_wait()
                self.check_now_and_then()
                polls += 1
            return decision
        finally:
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
            self._membership.withdraw()
            self._heartbeats += 1  # the word is a newer one, also where ranks must tell two of them apart
        self._is_inside = False

    def _decision(self, number: int, what: str) -> int | None:
        """The failed ranks at barrier `number`, as a mask: 0; None while a rank is missing."""
        self._window.sync()
        for rank in self._others:
            if self._membership.words[rank].entered < number or self._flags_of(rank) & DEPARTED:
                self._read(rank)
        self._check_departed(number, what)
        if not self._check_names(what, number) or self._membership.missing(number):
            return None
        return 0

    def _check_departed(self, number: int, what: str) -> None:
        """PeerLost: a missing rank has departed, and will never come."""
        for rank in self._membership.missing(number):
            if self._membership.words[rank].flags & DEPARTED:
                self._withdraw()
                self._flags |= DESERTED
                raise PeerLost(rank, f"it has departed, and {what} needs it")

    def _check_names(self, what: str, number: int) -> bool:
        """Return whether all ranks in barrier `number` have the same name for it.

        MismatchedCalls: a rank has another name, and none of the flags that excuse it.
        """
        for rank in self._elsewhere(number):
            if self._membership.words[rank].flags & self._excuses:
                return False
            raise MismatchedCalls(self._rank, what, rank, self._name_of(rank))
        return True

    def _elsewhere(self, number: int) -> list[int]:
        """The ranks that have another name for barrier `number`; not those that have come back, and begin after it."""
        mine, words = zlib.crc32(self._name), self._membership.words
        entered = [rank for rank in self._membership.others() if words[rank].entered == number]
        return [rank for rank in entered if words[rank].name not in (0, mine)]

    def _name_of(self, rank: int) -> str:
        """The name of the barrier that `rank` has entered."""
        return self._cells.name(self._window.memory, rank, self._membership.words[rank].name)

    def _flags_of(self, rank: int) -> int:
        """The flags of `rank` as they are in memory, perhaps torn. They serve as a hint."""
        flags: int = self._window.memory.data[self._cells.at(rank) + self._cells.flags_at]
        return flags

    def _publish_soon(self) -> None:
        """Publish the word of this rank without a wait for other hosts, where somebody sends to them meanwhile."""
        if (carrier := self._transport.carrier) is None:
            return self._publish()
        self._published_at = self._transport.clock()
        carrier.later(self._publish, self._others)

    def _publish(self) -> None:
        self._publish_to(self._membership.others())

    def _publish_to(self, others: Sequence[int], enters: bool = False) -> None:
        """Publish the word of this rank to `others`. `enters`: they look for it until they have seen it."""
        with self._publishing:  # a heartbeat may come from another thread
            if self._is_over:
                return
            word = self._membership.own._replace(
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
        return ranks(self._membership.words[rank].awaited) - self._view.failed

    def _evict_all(self, silent: frozenset[int], now: float) -> bool:
        """Evict the ranks that hold up the others; return whether all of them could be, and none was before.

        False where no rank can fail without the job.
        """
        return False

    def was_evicted(self, rank: int) -> bool:
        """Return whether `rank` was killed because it gave no heartbeat while others waited for it. Local."""
        return rank in self._evicted_at or any(word.evicted >> rank & 1 for word in self._membership.words)

    # -- words ------------------------------------------------------------------------------------------------

    def _word(self, rank: int) -> Word | None:
        """The word of `rank` in this rank's memory; None where it is being written, or never was."""
        return self._cells.read(self._window.memory, rank)

    def _read_all(self) -> int:
        """Read the words of all live ranks; return those that they have marked failed and this rank has not."""
        found = 0
        for rank in self._membership.others():
            found |= self._read(rank)
        return found

    def _read(self, rank: int) -> int:
        """Read the word of `rank`; return the ranks that it has marked failed and this rank has not, as a mask."""
        with self._reading:
            word = self._word(rank)
            return 0 if word is None else self._note(rank, word)

    def _note(self, rank: int, word: Word) -> int:
        """Note the word of `rank`, which is whole; return the same."""
        if word != self._membership.words[rank]:
            self._heard_at[rank] = self._transport.clock()
        return self._membership.note(rank, word)
