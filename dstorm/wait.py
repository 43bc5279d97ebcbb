"""One wait for other ranks: whether it has hope, who is to blame where it has none, what is said of it. Pure.

A rank that waits publishes for whom (dstorm/membership/status.py). So whoever waits for it can follow the waits to
their ends, to ranks that do not wait themselves. While these make themselves heard, the wait goes on, however long.
Where one of them is silent for the deadline, it holds up all who wait. Where there are none, ranks wait for each other
in a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

REPORT_S = 10.0
"""After how long a wait is spoken of first; then after twice as long, again and again."""
_DEFER_S = 1.0
"""A rank that has left the word to a lower one looks again after so long whether that one still waits."""
_LOOK_S, _MANY = 0.1, 64
"""How often a wait is looked after, where there are up to so many ranks."""
_LOOKS_A_DEADLINE = 20
_NAMED = 8
"""Ranks that a line names at most."""


class Decision(NamedTuple):
    """What is to be thought of a wait."""

    is_over: bool
    """Whether its deadline has passed."""
    silent: frozenset[int]
    """Who holds it up: does not wait, and was not heard of for the deadline."""


class Wait:
    """A wait of `rank`, one of `size`, in the call `what`, from `since` on.

    `patient`: it goes on as long as any of the awaited makes itself heard; else all of them must. `final`: it ends the
    session, and nobody is evicted for it.
    """

    def __init__(
        self, rank: int, size: int, what: str, since: float, deadline_s: float, *,
        patient: bool = False, final: bool = False,
    ) -> None:  # fmt: skip
        self.rank, self.what, self.since, self.deadline_s = rank, what, since, deadline_s
        self.patient, self.final = patient, final
        self.ranks: Collection[int] = ()
        """Whom it waits for now."""
        self.spared: Collection[int] = ()
        """Those of them against whom no deadline runs."""
        self.heard: Mapping[int, float] = {}
        """When they made a step, as far as the call that waits has seen it."""
        self._every_s = min(deadline_s / _LOOKS_A_DEADLINE, _LOOK_S * max(1.0, size / _MANY))
        self._look_at = since + self._every_s
        self._report_s = REPORT_S
        self._report_at = since + REPORT_S

    def is_due(self, now: float) -> bool:
        """Whether it is to be looked after again."""
        if now < self._look_at:
            return False
        self._look_at = now + self._every_s
        return True

    def judge(
        self, now: float, heard_at: Callable[[int], float], awaited_by: Callable[[int], Iterable[int]]
    ) -> Decision:  # fmt: skip
        """`heard_at`: when a rank made itself heard last; `awaited_by`: whom it waits for, if it does."""

        def has_timed_out(rank: int) -> bool:
            return now - max(self.since, heard_at(rank), self.heard.get(rank, self.since)) > self.deadline_s

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
        return Decision(is_over, frozenset(culprits))

    def report(self, now: float, awaited_by: Callable[[int], Iterable[int]]) -> str | None:
        """What is to be said of it now, by the lowest of the ranks that wait; None: nothing."""
        if now < self._report_at or not self.ranks:
            return None
        if any(awaited_by(rank) for rank in range(self.rank)):
            self._report_at = now + _DEFER_S
            return None
        waited_s = now - self.since
        while self._report_s <= waited_s:
            self._report_s *= 2
        self._report_at = self.since + self._report_s
        chains = [
            f"; {_named([rank])} waits for {_named(others)}"
            for rank in sorted(self.ranks)[:_NAMED]
            if (others := sorted(set(awaited_by(rank)) - {self.rank}))
        ]
        return f"malt: waiting for {_named(sorted(self.ranks))} in {self.what} ({waited_s:.0f} s){''.join(chains)}"

    def _ends(self, rank: int, awaited_by: Callable[[int], Iterable[int]]) -> set[int]:
        """Whom `rank` waits for in the end, itself if it does not wait."""
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
