"""The heartbeat timeout: which ranks have given no heartbeat for too long, and which must leave. Pure: no clock.

When a process on another host ends, that is known at once, as its host closes its connections. A process that is
stopped, or whose host or network has failed, gives no heartbeat, like one that is only slow. So the timeout is long,
and grows with the longest time between two heartbeats so far.

Where the network splits a job into two parts, only one may go on. It is the larger part; of two halves, the one with
the lowest rank. A rank that was stopped for long may be such a part by itself, and not know it: the heartbeats that it
finds as it wakes up are old, and say nothing of how long others are usually silent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

FLOOR_S, GAPS = 10.0, 4.0
"""The default timeout is GAPS times the longest time between two heartbeats so far, but at least FLOOR_S."""
_OWN_SHARE = 0.9
"""The part of the timeout for which a rank may itself be stopped. Then it leaves, before others mark it failed."""
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
        self._checked_at = now
        self.may_be_cut_off = False
        """Whether this rank was stopped, before the last call of `was_stopped`, for so long that others whose timeout
        is the shortest one may have gone on without it."""

    @property
    def suspect_after_s(self) -> float:
        """The timeout in seconds."""
        return max(FLOOR_S, GAPS * self._longest_s) if self._fixed_s is None else self._fixed_s

    @property
    def _shortest_s(self) -> float:
        """The shortest timeout that a rank may have: others may have seen other gaps."""
        return FLOOR_S if self._fixed_s is None else self._fixed_s

    def heard(self, rank: int, now: float) -> None:
        """Note a heartbeat, or other bytes, of `rank`."""
        if now - self._checked_at <= _OWN_PAUSE_S:  # else this rank was stopped, and they have waited for it to read
            self._longest_s = max(self._longest_s, now - self._heard_at[rank])
        self._heard_at[rank] = now

    def was_stopped(self, now: float) -> float | None:
        """Seconds for which this rank was stopped, if the others may have gone on without it; otherwise None.

        It is the time since the last call. A rank calls it in each period of its heartbeats.
        """
        stopped_s, self._checked_at = now - self._checked_at, now
        if stopped_s > _OWN_PAUSE_S:  # heartbeats may have come that this rank has not received yet
            self._heard_at = dict.fromkeys(self._heard_at, now)
        self.may_be_cut_off = stopped_s > _OWN_SHARE * self._shortest_s
        return stopped_s if stopped_s > _OWN_SHARE * self.suspect_after_s else None

    def is_awake(self, now: float) -> bool:
        """Whether this rank may judge others: it has called `was_stopped` lately, and is not cut off itself."""
        return now - self._checked_at < _OWN_SHARE * self._shortest_s and not self.may_be_cut_off

    def silent(self, ranks: Collection[int], now: float) -> list[int]:
        """The ranks of `ranks` that have given no heartbeat for the timeout.

        If there are any, ranks that have nearly reached it are counted, too: ranks that are cut off together must be
        counted together.
        """
        silent_s = {rank: now - self._heard_at[rank] for rank in ranks if rank in self._heard_at}
        if max(silent_s.values(), default=0.0) <= self.suspect_after_s:
            return []
        return [rank for rank, seconds in silent_s.items() if seconds > _TOGETHER * self.suspect_after_s]

    def must_leave(self, silent: Collection[int], ranks: Collection[int]) -> bool:
        """Whether this rank must leave: `silent`, and not the rest of `ranks`, is the part that goes on.

        `ranks`: the live ranks, this one included.
        """
        rest = len(ranks) - len(silent)
        return len(silent) > rest or (len(silent) == rest and min(ranks) in silent)
