"""The heartbeat timeout: which ranks have given no heartbeat for too long. Pure: no clock.

When a process on another host ends, that is known at once, as its host closes its connections. A process that is
stopped, or whose host or network has failed, gives no heartbeat, like one that is only slow. So the timeout is long,
and grows with the longest time between two heartbeats so far.

Whoever is silent is suspected, and not more: dstorm/membership/quorum.py decides who goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

FLOOR_S, GAPS = 10.0, 4.0
"""The default timeout is GAPS times the longest time between two heartbeats so far, but at least FLOOR_S."""
_OWN_PAUSE_S = 1.0
"""A rank that was stopped for longer counts the time since heartbeats of others anew."""
_TOGETHER = 0.8
"""Once a rank has passed the timeout, all ranks beyond this part of it count as silent."""


class HeartbeatTimeout:
    """The heartbeats that one rank receives from `others`. `now`: seconds, of the same clock in all calls. Local.

    `suspect_after_s`: a fixed timeout; None: the default one.
    """

    def __init__(self, others: Iterable[int], now: float, suspect_after_s: float | None = None) -> None:
        self._fixed_s = suspect_after_s
        self._longest_s = 0.0
        self._heard_at = dict.fromkeys(others, now)
        self._running_at = now

    @property
    def suspect_after_s(self) -> float:
        """The timeout in seconds."""
        return max(FLOOR_S, GAPS * self._longest_s) if self._fixed_s is None else self._fixed_s

    def heard(self, rank: int, now: float) -> None:
        """Note a heartbeat, or other bytes, of `rank`.

        Time in which this rank was itself stopped says nothing of others.
        """
        if now - self._running_at <= _OWN_PAUSE_S:
            self._longest_s = max(self._longest_s, now - self._heard_at.get(rank, now))
        self._heard_at[rank] = now

    def begin(self, rank: int, now: float) -> None:
        """Begin to wait for heartbeats of `rank`, which was started again. The time without it does not count."""
        self._heard_at = {**self._heard_at, rank: now}

    def note_running(self, now: float) -> None:
        """Note that this rank runs. To be called in each period of its heartbeats, and before `silent`."""
        if now - self._running_at > _OWN_PAUSE_S:  # heartbeats may have come that this rank has not received yet
            self._heard_at = dict.fromkeys(self._heard_at, now)
        self._running_at = now

    def silent(self, ranks: Collection[int], now: float) -> list[int]:
        """The ranks of `ranks` that have given no heartbeat for the timeout.

        If there are any, ranks that have nearly reached it are counted, too: ranks that are cut off together must be
        counted together.
        """
        silent_s = {rank: now - self._heard_at[rank] for rank in ranks if rank in self._heard_at}
        if max(silent_s.values(), default=0.0) <= self.suspect_after_s:
            return []
        return [rank for rank, seconds in silent_s.items() if seconds > _TOGETHER * self.suspect_after_s]
