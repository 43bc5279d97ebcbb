"""The schedule of simulated ranks: which one runs next, and at what virtual time. Pure."""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from random import Random


class Schedule:
    """The ranks that wait for their turn: ready ones, and those that sleep until some moment.

    A rank that runs, waits in a collective call or has ended is neither ready nor asleep.
    """

    def __init__(self, size: int, random: Random) -> None:
        self.now = 0.0
        self._random = random
        self._ready = list(range(size))
        """Ascending, so that the choices depend on the seed alone, not on the order in which ranks became ready."""
        self._asleep: list[tuple[float, int]] = []
        """A heap of (until, rank)."""

    def add(self, rank: int, pause_s: float = 0.0) -> None:
        """Let `rank` run again `pause_s` of virtual time from now. Local."""
        if pause_s > 0.0:
            heappush(self._asleep, (self.now + pause_s, rank))
        else:
            insort(self._ready, rank)

    def next(self) -> int | None:
        """Remove a random ready rank and return it; None where no rank waits for a turn. Local.

        Where no rank is ready, the clock advances to the moment at which the first of the sleeping ones is.
        """
        asleep, ready = self._asleep, self._ready
        if not ready and asleep:
            self.now = max(self.now, asleep[0][0])
        while asleep and asleep[0][0] <= self.now:
            insort(ready, heappop(asleep)[1])
        return ready.pop(self._random.randrange(len(ready))) if ready else None
