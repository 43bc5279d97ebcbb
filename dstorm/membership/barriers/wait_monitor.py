"""What a rank does while it waits: publish for whom it waits, report a long wait, evict ranks that hold it up."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from dstorm.membership.decision import Membership, mask, ranks
from dstorm.transport import Window
from dstorm.view import View
from dstorm.wait import Wait


class WaitMonitor(ABC):
    """The part of a barrier that polls waits, also those of other calls."""

    _clock: Callable[[], float]
    _window: Window
    _view: View
    _report: Callable[[str], object]
    _membership: Membership
    _others: list[int]
    _heard_at: dict[int, float]
    _published_at: float
    _awaited: int
    """The ranks that this rank waits for, as it has published them, as a mask."""
    _heartbeat_s: float
    """The period, in seconds, in which steps and heartbeats are published."""
    _evicted_at: dict[int, float]
    """The ranks that it has evicted, and when."""
    waiting: Wait | None = None
    """As `Transport.waiting`."""

    @abstractmethod
    def check(self) -> None:
        """Read the words of all other ranks; find failed ranks."""

    @abstractmethod
    def _read(self, rank: int) -> int:
        """Read the word of `rank`; return the ranks that it has marked failed and this rank has not, as a mask."""

    @abstractmethod
    def _publish(self) -> None:
        """Publish the word of this rank."""

    def poll_wait(self, wait: Wait) -> bool:
        """As `Transport.poll_wait`. One-sided."""
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
        """As `Transport.end_wait`. One-sided."""
        self.waiting = None
        was_published, self._awaited = self._awaited, 0
        if was_published and not in_vain:
            self._publish()

    def heard_at(self, rank: int) -> float:
        """As `Transport.heard_at`. Local."""
        return self._heard_at[rank]

    def _alive_at(self, rank: int) -> float:
        """When `rank` last gave a heartbeat, or was evicted: it then has the whole deadline once more to end."""
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
        """As `Transport.was_evicted`. Local."""
        return rank in self._evicted_at or any(word.evicted >> rank & 1 for word in self._membership.words)
