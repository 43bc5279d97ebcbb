"""When a Replica exchanges: every so many counts, or as often as its exchanges are worth their cost. Pure.

The clock, and what the link has done, are functions that are passed in. A step compares two numbers; all else is done
at an exchange.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from malt.replica.interval import Interval

TRIED: Final = 8
"""The exchanges after which ranks agree on one interval, where all must have the same."""


class Pacing(Protocol):
    """When exchanges are due."""

    every: int
    """The counts between two exchanges, now."""
    is_open: bool
    """Whether ranks are yet to agree on one interval."""
    wish: int
    """What this rank would choose by what it knows."""

    def due_after(self, count: int) -> float:
        """The count at which the exchange is due that follows the one at `count`."""

    def begin(self, count: int) -> None:
        """An exchange begins, at `count`."""

    def end(self, held_s: float | None = None) -> float:
        """It has ended. Return the count at which the next one is due.

        `held_s`: the seconds for which it has held the loop; None: all since it began.
        """


class Fixed:
    """Every `every` counts, in so many fragments, one after the other."""

    is_open = False

    def __init__(self, every: int, fragments: int = 1) -> None:
        self.every = self.wish = every
        self._fragments = fragments
        self._count = 0

    def due_after(self, count: int) -> int:
        """As `Pacing.due_after`: at multiples, however far the loop counts at once."""
        return -(-(count * self._fragments // self.every + 1) * self.every // self._fragments)

    def begin(self, count: int) -> None:
        """As `Pacing.begin`."""
        self._count = count

    def end(self, held_s: float | None = None) -> int:
        """As `Pacing.end`."""
        return self.due_after(self._count)


class Auto:
    """By `interval`, which hears what each exchange costs.

    `traffic`: the messages that this rank has handed over to other hosts so far, and those of them that were
    superseded; None: all ranks are on one host. `count`: where the loop begins. With `agrees` it is the lowest one,
    until another pacing takes its place: that of the interval on which ranks have agreed.
    """

    def __init__(
        self, interval: Interval, clock: Callable[[], float], traffic: Callable[[], tuple[int, int]] | None = None,
        agrees: bool = False, count: int = 0,
    ) -> None:  # fmt: skip
        self._interval, self._clock, self._traffic = interval, clock, traffic
        self.every, self.wish, self.is_open = interval.counts, interval.wish, agrees
        self._count = self._ended_count = count
        self._began_at = self._ended_at = clock()
        self._sent, self._superseded = (0, 0) if traffic is None else traffic()

    def due_after(self, count: int) -> int:
        """As `Pacing.due_after`."""
        return count + self.every

    def begin(self, count: int) -> None:
        """As `Pacing.begin`."""
        self._count, self._began_at = count, self._clock()

    def end(self, held_s: float | None = None) -> int:
        """As `Pacing.end`: note what it has cost."""
        now, counts = self._clock(), self._count - self._ended_count
        held_s = now - self._began_at if held_s is None else held_s
        trained_s = now - self._ended_at - held_s
        sent, superseded = (0, 0) if self._traffic is None else self._traffic()
        every = self._interval.note(counts, trained_s, held_s, sent - self._sent, superseded - self._superseded)
        self._sent, self._superseded, self._ended_count, self._ended_at = sent, superseded, self._count, now
        self.wish = self._interval.wish
        if not self.is_open:
            self.every = every
        return self._count + self.every


class Led:
    """When another Replica exchanges, which calls this one then."""

    is_open = False

    def __init__(self, every: int) -> None:
        self.every = self.wish = every

    def due_after(self, count: int) -> float:
        """As `Pacing.due_after`: no count."""
        return math.inf

    def begin(self, count: int) -> None:
        """As `Pacing.begin`: nothing."""

    def end(self, held_s: float | None = None) -> float:
        """As `Pacing.end`."""
        return math.inf
