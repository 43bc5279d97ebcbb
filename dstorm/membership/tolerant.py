"""A roster of ranks that may fail while the others go on. A meeting ends when those who live have come to the same list
of those who have failed (dstorm/membership/view.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dstorm.membership.barrier import Barrier
from dstorm.membership.view import DESERTED, FINAL, FaultTolerantView, mask, ranks
from dstorm.transport import Transport, Window

_CHECK_S, _OFTEN = 0.02, 8
"""How often to look who has failed, where there are up to so many others."""


class TolerantRoster(Barrier):
    """As `Barrier`; it changes `view`, that of `transport`.

    `find_failed`: tells which ranks have failed, as far as this one can see for itself. `leave(why)`: ends this
    process; called where the others take it for failed. `evict(rank)`: kills the process of a rank that holds up the
    others; whether it can.
    """

    _excuses = DESERTED | FINAL
    """One in its final meeting while others are in another has ended before them, and leaves; they wait for that."""

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
        """Count a step of this rank; now and then tell the others, and look who has failed. One-sided."""
        self._steps += 1
        now = self._clock()
        if now - self._published_at > self._heartbeat_s():
            self._publish()
        if now - self._checked_at > self._check_s:
            self.check()

    def check(self) -> None:
        """Look who has failed, and tell the others of those they may not know of. One-sided."""
        self._checked_at = self._clock()
        self._window.sync()
        self._mark_failed(mask(self._find_failed()) | self._look_at_all())

    def check_now_and_then(self) -> None:
        """`check`, where the last one was a while ago. One-sided."""
        if self._clock() - self._checked_at > self._check_s:
            self.check()

    def _decision(self, generation: int, what: str) -> int | None:
        self._window.sync()
        found = self._look_at_all()
        has_one_name = self._check_names(what, generation)
        self._mark_failed(found)
        if not has_one_name:
            return None
        with self._publishing:
            decision = self._membership.decision(generation)
        if decision is not None:
            self._mark_failed(decision)
            self._publish()  # also where another decided, who may fail before all have heard it
        return decision

    def _look_at_all(self) -> int:
        """Take down what the others say; whom they have buried, and this rank has not."""
        found = 0
        for rank in self._membership.others():
            found |= self._look(rank)
        return found

    def _mark_failed(self, found: int) -> None:
        """`found` have failed: tell those who live."""
        fresh = ranks(found) - self._view.failed
        if self._rank in fresh and self._leave is not None:
            self._leave("the others take it for dead")
        fresh -= {self._rank}
        if not fresh:
            return
        for rank in fresh:
            self._look(rank)  # it may have come to a meeting since the last look
        with self._publishing:
            self._changing.change(failed=fresh)
            self._membership.mark_failed(fresh)
            self._publish()

    def _evict_all(self, silent: frozenset[int], now: float) -> bool:
        fresh = silent - self._evicted_at.keys()
        if self._evict is None or not fresh:
            return False
        self._evicted_at.update(dict.fromkeys(fresh, now))
        self._publish()  # why, before anybody sees that they have ended
        beyond = {rank for rank in fresh if not self._evict(rank)}
        for rank in beyond:
            del self._evicted_at[rank]
        return not beyond and fresh == silent
