"""Whom a rank has not heard of for too long, and who has to go for it. Pure: no clock, no network.

That a process on another host has ended is known at once: its host closes its connections. Of one that stands still,
or whose host or network is gone, nothing is heard at all, as of one that is only slow. So the silence that counts is
long, and grows with the longest that was ever broken.

Two parts of a job that have lost each other must not both go on. The larger part does; of two halves the one with the
lowest rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

FLOOR_S, GAPS = 10.0, 4.0
"""By default a rank is suspected after the longest silence seen so far times GAPS, and not before FLOOR_S."""
_OWN_SHARE = 0.9
"""What part of the silence that counts a rank may itself stand still: it goes by itself before others miss it."""
_OWN_PAUSE_S = 1.0
_TOGETHER = 0.8
"""Of the silence that counts."""


class HeartbeatTimeout:
    """What one rank hears of `others`. `now`: seconds of one and the same clock."""

    def __init__(self, others: Iterable[int], now: float, suspect_after_s: float | None = None) -> None:
        self._given_s = suspect_after_s
        self._longest_s = 0.0
        self._heard_at = dict.fromkeys(others, now)
        self._looked_at = now

    @property
    def suspect_after_s(self) -> float:
        """The silence that counts."""
        return max(FLOOR_S, GAPS * self._longest_s) if self._given_s is None else self._given_s

    def heard(self, rank: int, now: float) -> None:
        """Something came from `rank`."""
        self._longest_s = max(self._longest_s, now - self._heard_at[rank])
        self._heard_at[rank] = now

    def was_stopped(self, now: float) -> float | None:
        """For how long this rank has not looked, where that is so long that the others may have gone on without it."""
        stopped_s, self._looked_at = now - self._looked_at, now
        if stopped_s > _OWN_PAUSE_S:  # what it has not heard meanwhile is nobody's silence
            self._heard_at = dict.fromkeys(self._heard_at, now)
        return stopped_s if stopped_s > _OWN_SHARE * self.suspect_after_s else None

    def is_awake(self, now: float) -> bool:
        """Whether it has looked of late: one that wakes up must not judge before it has."""
        return now - self._looked_at < _OWN_SHARE * self.suspect_after_s

    def silent(self, ranks: Collection[int], now: float) -> list[int]:
        """Those of `ranks` of whom nothing was heard for too long, and then also those who are about to be: who was
        lost together must be counted together."""
        silent_s = {rank: now - self._heard_at[rank] for rank in ranks if rank in self._heard_at}
        if max(silent_s.values(), default=0.0) <= self.suspect_after_s:
            return []
        return [rank for rank, seconds in silent_s.items() if seconds > _TOGETHER * self.suspect_after_s]

    def must_leave(self, silent: Collection[int], ranks: Collection[int]) -> bool:
        """Whether `silent` are the part of `ranks`, who live, this rank included, that goes on."""
        rest = len(ranks) - len(silent)
        return len(silent) > rest or (len(silent) == rest and min(ranks) in silent)
