"""Barriers of ranks that may fail while the others go on.

A barrier ends when all live ranks know the same list of failed ranks (dstorm/membership/decision.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dstorm import interruption
from dstorm.membership.barriers.barrier import Barrier
from dstorm.membership.decision import DESERTED, FINAL, mask, ranks
from dstorm.membership.returns.admission import Stamps, still_failed
from dstorm.transport import Transport, Window
from dstorm.view import FaultTolerantView

_CHECK_S, _OFTEN = 0.02, 8
"""Period of the checks for failed ranks, where there are up to _OFTEN others; with more, longer in proportion."""


class TolerantBarrier(Barrier):
    """As `Barrier`. It marks ranks failed in `view`, the view of `transport`.

    `find_failed()`: the ranks whose failure this rank can find by itself. `leave(why)`: ends this process; called where
    the others have marked it failed. `evict(rank)`: kills the process of a rank that holds up the others, and returns
    whether it can.
    """

    _excuses = DESERTED | FINAL
    """A rank in its final barrier has finished before the others, and its process ends. They wait for that."""

    def __init__(
        self, transport: Transport, window: Window, deadline_s: float, view: FaultTolerantView,
        find_failed: Callable[[], Sequence[int]], leave: Callable[[str], object] | None = None,
        evict: Callable[[int], bool] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(transport, window, deadline_s, **options)
        self._changing = view
        self._find_failed, self._leave, self._evict = find_failed, leave, evict
        self._check_s = _CHECK_S * max(1.0, len(self._others) / _OFTEN)
        self._checked_at = self._published_at

    def count_step(self) -> None:
        """As `Barrier.count_step`; now and then it also checks for failed ranks. One-sided."""
        self._steps += 1
        now = self._clock()
        if self._transport.trains_since is None:
            self._transport.begin_training(now)
        if now - self._published_at > self._heartbeat_s:
            self._publish_soon()
        if now - self._checked_at > self._check_s:
            self.check()

    @interruption.whole
    def check(self) -> None:
        """Find the ranks that have failed, mark them failed, and publish that. One-sided."""
        self._checked_at = self._clock()
        since = self._membership.own.stamps
        self._window.sync()
        self._mark_failed(mask(self._find_failed()) | self._read_all(), since)

    def check_now_and_then(self) -> None:
        """Do `check` where the last one was a while ago. One-sided."""
        if self._clock() - self._checked_at > self._check_s:
            self.check()

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
                self._accept(decision, generation)
                self._publish()  # also where another rank decided: it may fail before all know its decision
        # That rank has seen the words of all. From another host they come over other connections than its own.
        return None if self._membership.missing(generation) else decision

    def _read_all(self) -> int:
        """Read the words of all others; return the ranks that they have marked failed and this rank has not."""
        found = 0
        for rank in self._membership.others():
            found |= self._read(rank)
        return found

    def _mark_failed(self, found: int, since: Stamps) -> None:
        """Mark the ranks of the mask `found` failed, and publish that. `since`: the stamps when they were found.

        Of one that another thread has admitted meanwhile it was found of a former incarnation, or is found again.
        """
        fresh = ranks(still_failed(found, since, self._membership.own.stamps)) - self._view.failed
        if self._rank in fresh and self._leave is not None:
            self._leave("the others have marked it failed")
        fresh -= {self._rank}
        if not fresh:
            return
        for rank in fresh:
            self._read(rank)  # it may have entered a barrier since its word was last read
        with self._publishing:
            self._changing.change(failed=fresh)
            self._membership.mark_failed(fresh)
            self._publish()

    def _accept(self, decision: int, generation: int) -> None:
        """Mark the ranks failed that had failed at barrier `generation`, by the mask `decision`."""
        self._mark_failed(decision, self._membership.own.stamps)

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
