"""Which simulated rank runs next, and what time it is then. Pure."""

from __future__ import annotations

from bisect import insort
from heapq import heappop, heappush
from random import Random


class Schedule:
    """The ranks that wait for their turn: those that may run, and those that sleep until some moment.

    A rank that runs, waits in a collective call or has ended is in neither.
    """

    def __init__(self, size: int, random: Random) -> None:
        self.now = 0.0
        self._random = random
        self._ready = list(range(size))
        """Ascending: so a seed means the same choices, whoever came first."""
        self._asleep: list[tuple[float, int]] = []
        """A heap of (until, rank)."""

    def add(self, rank: int, pause_s: float = 0.0) -> None:
        """`rank` may run again `pause_s` from now."""
        if pause_s > 0.0:
            heappush(self._asleep, (self.now + pause_s, rank))
        else:
            insort(self._ready, rank)

    def next(self) -> int | None:
        """Take one of those that may run, at random; where there is none, at the moment when one may. None: nobody
        waits for a turn."""
        asleep, ready = self._asleep, self._ready
        if not ready and asleep:
            self.now = max(self.now, asleep[0][0])
        while asleep and asleep[0][0] <= self.now:
            insort(ready, heappop(asleep)[1])
        return ready.pop(self._random.randrange(len(ready))) if ready else None
