"""What a rank does about those it waits for: publishes that it waits, says so, and evicts who holds up the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from dstorm.membership.view import Membership, View, mask, ranks
from dstorm.transport import Window
from dstorm.wait import Wait


class Attendance(ABC):
    """The part of a roster that has to do with waits."""

    _clock: Callable[[], float]
    _window: Window
    _view: View
    _report: Callable[[str], object]
    _membership: Membership
    _others: list[int]
    _heard_at: dict[int, float]
    _published_at: float
    _awaited: int
    """Whom this rank waits for, as the others are told."""
    _evicted_at: dict[int, float]
    """Whom it has evicted, and when."""

    @abstractmethod
    def check(self) -> None:
        """Take down the newest that is known of the others; look who has failed."""

    @abstractmethod
    def _look(self, rank: int) -> int:
        """Take down the newest that is known of `rank`."""

    @abstractmethod
    def _publish(self) -> None:
        """Publish what this rank has to say."""

    @abstractmethod
    def _heartbeat_s(self) -> float:
        """How often the others are told."""

    def attend(self, wait: Wait) -> bool:
        """As `Transport.attend`. One-sided."""
        self.check()
        now = self._clock()
        awaited = mask(wait.ranks)
        if awaited != self._awaited and now - self._published_at > self._heartbeat_s():
            self._awaited = awaited
            self._publish()
        if line := wait.report(now, self._awaited_by):
            self._report(line)
        decision = wait.judge(now, self._lived_at, self._awaited_by)
        if decision.silent and not wait.final and self._evict_all(decision.silent, now):
            return False
        return decision.is_over

    def end_wait(self, in_vain: bool = False) -> None:
        """As `Transport.end_wait`. One-sided."""
        was_published, self._awaited = self._awaited, 0
        if was_published and not in_vain:
            self._publish()

    def heard_at(self, rank: int) -> float:
        """As `Transport.heard_at`. Local."""
        return self._heard_at[rank]

    def _lived_at(self, rank: int) -> float:
        """... where one that was evicted is given as long again to end."""
        return max(self._heard_at[rank], self._evicted_at.get(rank, 0.0))

    def _awaited_by(self, rank: int) -> frozenset[int]:
        """Whom `rank` waits for, of those who live."""
        return ranks(self._membership.words[rank].awaited) - self._view.failed

    def _evict_all(self, silent: frozenset[int], now: float) -> bool:
        """Kill those who hold up the others; whether all of them can be, and were not before. Not where none can fail
        without the job."""
        return False

    def was_evicted(self, rank: int) -> bool:
        """As `Transport.was_evicted`. Local."""
        return rank in self._evicted_at or any(word.evicted >> rank & 1 for word in self._membership.words)
