"""One wait for other ranks: when its deadline has passed, which ranks hold it up, how it is reported. Pure.

A rank that waits publishes for whom (dstorm/membership/status.py). So a rank that waits for it can follow the waits to
their ends: to ranks that do not wait themselves. While these give heartbeats the wait goes on, however long it takes.
One that gives none for the deadline holds up all ranks that wait for it. Where the waits have no end, ranks wait for
each other in a circle.

A wait that ended in DeadlinePassed is not withdrawn: the others of the same circle would take the first rank that gives
up for one at work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from dstorm.waits.running_time import RunningTime

REPORT_S = 10.0
"""After how long a wait is reported first. Each further report follows after twice the time of the one before."""
_DEFER_S = 1.0
"""A rank that has left the report to a lower rank checks again after this time whether that one still waits."""
_CHECK_S, _MANY = 0.1, 64
"""How often a wait is checked where there are up to _MANY ranks; with more ranks, less often in proportion."""
_CHECKS_A_DEADLINE = 20
"""A wait is checked at least so often within its deadline."""
_NAMED = 8
"""The most ranks that a report names."""


class WaitState(NamedTuple):
    """The state of a wait."""

    is_over: bool
    """Whether its deadline has passed."""
    silent: frozenset[int]
    """The ranks that hold it up: they do not wait, and have given no heartbeat for the deadline."""


class Wait:
    """A wait of `rank`, one of `size` ranks, in the call `what`, which began at `since`.

    `patient`: the wait goes on while any of the awaited ranks gives heartbeats; otherwise all of them must. `final`:
    the wait ends the session, and no rank is evicted for it. `longest_poll_s`: as of a `Transport`. Time in which this
    process was stopped does not count.
    """

    def __init__(
        self, rank: int, size: int, what: str, since: float, deadline_s: float, *,
        patient: bool = False, final: bool = False, longest_poll_s: float = math.inf,
    ) -> None:  # fmt: skip
        self.rank, self.what, self.since, self.deadline_s = rank, what, since, deadline_s
        self.patient, self.final = patient, final
        self.ranks: Collection[int] = ()
        """The ranks that it waits for now."""
        self.spared: Collection[int] = ()
        """Those of them that have no deadline."""
        self.heard: Mapping[int, float] = {}
        """When each of them last made a step, as far as the call that waits knows."""
        self._every_s = min(deadline_s / _CHECKS_A_DEADLINE, _CHECK_S * max(1.0, size / _MANY))
        self._check_at = since + self._every_s
        self._report_s = REPORT_S
        self._report_at_s = REPORT_S
        self._running = RunningTime(since, longest_poll_s)

    @property
    def seconds(self) -> float:
        """For how many seconds it has lasted at its last poll."""
        return self._running.seconds

    def seconds_since(self, moment: float) -> float:
        """The seconds from `moment` to its last poll, without those in which this process was stopped."""
        return self._running.since(moment)

    def is_due(self, now: float) -> bool:
        """Return whether it is time to check the wait again. If so, the next check is due one period after `now`.

        It is to be called in each poll.
        """
        self._running.poll(now)
        if now < self._check_at:
            return False
        self._check_at = now + self._every_s
        return True

    def judge(
        self, now: float, heard_at: Callable[[int], float], awaited_by: Callable[[int], Iterable[int]]
    ) -> WaitState:  # fmt: skip
        """Return whether the deadline has passed at `now`, and which ranks hold the wait up.

        `heard_at(rank)`: when that rank gave its last heartbeat. `awaited_by(rank)`: the ranks that it waits for.
        """

        def has_timed_out(rank: int) -> bool:
            """Return whether it has given no heartbeat for the deadline."""
            heard = max(self.since, heard_at(rank), self.heard.get(rank, self.since))
            return self._running.since(heard) > self.deadline_s

        self._running.poll(now)
        counting = [rank for rank in self.ranks if rank not in self.spared]
        hopeless = 0
        culprits: set[int] = set()
        for rank in filter(has_timed_out, counting):
            ends = self._ends(rank, awaited_by)
            silent = set(filter(has_timed_out, ends))
            if silent or not ends:
                hopeless += 1
                culprits |= silent
        is_over = hopeless > 0 and (not self.patient or hopeless == len(counting))
        return WaitState(is_over, frozenset(culprits))

    def report(self, now: float, awaited_by: Callable[[int], Iterable[int]]) -> str | None:
        """A line that reports the wait; None where no report is due, or a lower rank waits and reports."""
        self._running.poll(now)
        waited_s = self.seconds
        if waited_s < self._report_at_s or not self.ranks:
            return None
        if any(awaited_by(rank) for rank in range(self.rank)):
            self._report_at_s = waited_s + _DEFER_S
            return None
        while self._report_s <= waited_s:
            self._report_s *= 2
        self._report_at_s = self._report_s
        chains = [
            f"; {_named([rank])} waits for {_named(others)}"
            for rank in sorted(self.ranks)[:_NAMED]
            if (others := sorted(set(awaited_by(rank)) - {self.rank}))
        ]
        return f"malt: waiting for {_named(sorted(self.ranks))} in {self.what} ({waited_s:.0f} s){''.join(chains)}"

    def _ends(self, rank: int, awaited_by: Callable[[int], Iterable[int]]) -> set[int]:
        """The ranks at the ends of the waits of `rank`; `rank` itself if it does not wait. This rank is left out."""
        ends, seen, left = set(), {self.rank}, [rank]
        while left:
            one = left.pop()
            if one in seen:
                continue
            seen.add(one)
            others = list(awaited_by(one))
            left += others
            if not others:
                ends.add(one)
        return ends


def _named(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > _NAMED:
        return f"ranks {', '.join(map(str, ranks[:_NAMED]))} and {len(ranks) - _NAMED} more"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
