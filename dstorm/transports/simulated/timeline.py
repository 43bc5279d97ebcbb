"""The schedule of simulated ranks on a network: what happens next is what happens first. Pure."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

Event = Callable[[], object]


class Timeline:
    """The events of a simulation in order of time: messages arrive, ranks have their turn. It takes the place of
    `Schedule`.

    At one moment messages arrive before ranks run; the seed decides which rank runs first.
    """

    def __init__(self, size: int, random: Random) -> None:
        self.now = 0.0
        self._random = random
        self._turns = [0] * size
        """By rank, the number of its next turn. An entry with another number counts no more."""
        self._heap: list[tuple[float, float, int, int, int, Event | None]] = []
        """By time, then by what comes first at that time: (time, order, count, rank, turn, event)."""
        self._count = 0
        for rank in range(size):
            self.add(rank)

    def add(self, rank: int, pause_s: float = 0.0) -> None:
        """Let `rank` run `pause_s` from now, and no earlier or later. Local."""
        self._turns[rank] += 1
        self._push(self.now + pause_s, self._random.random(), rank, self._turns[rank], None)

    def at(self, time: float, event: Event) -> None:
        """Call `event` at `time`. Local."""
        self._push(time, -1.0, -1, 0, event)

    def next(self) -> int | None:
        """Advance to the next turn of a rank, and return the rank; None where there is none. Local."""
        while self._heap:
            time, _, _, rank, turn, event = heappop(self._heap)
            if event is not None:
                self.now = time
                event()
            elif turn == self._turns[rank]:
                self.now = time
                return rank
        return None

    def _push(self, time: float, order: float, rank: int, turn: int, event: Event | None) -> None:
        self._count += 1
        heappush(self._heap, (time, order, self._count, rank, turn, event))
