"""The heartbeat timeout: which ranks have given no heartbeat for too long. Pure: no clock.

When a process on another host ends, that is known at once, as its host closes its connections. A process that is
stopped, or whose host or network has failed, gives no heartbeat, like one that is only slow. So the timeout is long,
and grows with the longest time between two heartbeats so far.

Whoever is silent is suspected, and not more: dstorm/membership/quorum.py decides who goes on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dstorm.waits.running_time import RunningTime

FLOOR_S, GAPS = 10.0, 4.0
"""The default timeout is GAPS times the longest time between two heartbeats so far, but at least FLOOR_S."""
_LONGEST_STEP_S, _LONGEST_STEP = 1.0, 0.5
"""The longest time between two of this rank's own heartbeats that counts: it was stopped, and has not listened. The
second is a share of the timeout."""
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
        self._running = RunningTime(now, min(_LONGEST_STEP_S, _LONGEST_STEP * self.suspect_after_s))

    @property
    def suspect_after_s(self) -> float:
        """The timeout in seconds."""
        return max(FLOOR_S, GAPS * self._longest_s) if self._fixed_s is None else self._fixed_s

    def heard(self, rank: int, now: float) -> None:
        """Note a heartbeat, or other bytes, of `rank`."""
        self._longest_s = max(self._longest_s, self._running.since(self._heard_at.get(rank, now)))
        self._heard_at[rank] = now

    def begin(self, rank: int, now: float) -> None:
        """Begin to wait for heartbeats of `rank`, which was started again. The time without it does not count."""
        self._heard_at = {**self._heard_at, rank: now}

    def silent(self, ranks: Collection[int], now: float) -> list[int]:
        """The ranks of `ranks` that have given no heartbeat for the timeout. To be called in each period of heartbeats.

        If there are any, ranks that have nearly reached it are counted, too: ranks that are cut off together must be
        counted together.
        """
        self._running.poll(now)
        silent_s = {rank: self._running.since(self._heard_at[rank]) for rank in ranks if rank in self._heard_at}
        if max(silent_s.values(), default=0.0) <= self.suspect_after_s:
            return []
        return [rank for rank, seconds in silent_s.items() if seconds > _TOGETHER * self.suspect_after_s]
