"""Decides when a Replica exchanges: at fixed intervals, or as often as exchanges are worth their cost. Pure.

The clocks and the counters of the link are functions that are passed in. A step compares two numbers; all else is done
at an exchange.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import sub
from typing import Final

from dstorm.transport import Transport
from malt.session.replica.interval import TIMES, Interval, Traffic
from vol import Vector

TRIED: Final = 8
"""The exchanges after which ranks agree on one interval, where all must have the same."""


class Pacing:
    """The count at which an exchange is due. This base class never exchanges."""

    is_open = False
    """Whether ranks are yet to agree on one interval."""

    def __init__(self, every: int) -> None:
        self.every = every
        """The counts between two exchanges, now."""
        self.wish = every
        """What this rank would choose by what it knows."""

    def begin(self, count: int) -> float:
        """Note that an exchange begins at `count`, or that the loop does.

        Return the count at which the next exchange is due, whatever becomes of this one.
        """
        return math.inf

    def end(self, held_s: float | None = None) -> float:
        """Note that the exchange has ended. Return the count at which the next one is due.

        `held_s`: the seconds for which it has held the loop; None: all since it began.
        """
        return math.inf


class Led(Pacing):
    """The pacing of a Replica whose exchanges another Replica triggers."""


class Fixed(Pacing):
    """Every `every` counts, in so many fragments, one after the other."""

    def __init__(self, every: int, fragments: int = 1) -> None:
        super().__init__(every)
        self.most: float = every
        """The most counts between two exchanges."""
        self._fragments = fragments
        self._due_at = 0

    def begin(self, count: int) -> int:
        """Return the next multiple after `count`, no matter how far the loop counts at once."""
        self._due_at = -(-(count * self._fragments // self.every + 1) * self.every // self._fragments)
        return self._due_at

    def end(self, held_s: float | None = None) -> int:
        return self._due_at


class Auto(Pacing):
    """By `interval`, which hears what each exchange costs.

    `traffic`: returns that of this rank so far. `count`: where the loop begins. With `agrees` it is the lowest one,
    until another pacing takes its place: that of the interval on which ranks have agreed.
    """

    def __init__(
        self, interval: Interval, clock: Callable[[], float], traffic: Callable[[], Traffic] = Traffic,
        agrees: bool = False, count: int = 0,
    ) -> None:  # fmt: skip
        self._interval, self._clock, self._traffic = interval, clock, traffic
        super().__init__(interval.counts)
        self.wish, self.is_open = interval.wish, agrees
        self.most = interval.high
        """As `Fixed.most`, perhaps infinity."""
        self._count = self._ended_count = count
        self._began_at = self._ended_at = clock()
        self._sent = traffic()

    def begin(self, count: int) -> int:
        self._count, self._began_at = count, self._clock()
        return count + self.every

    def end(self, held_s: float | None = None) -> int:
        """Note the cost of the exchange. Return the count at which the next one is due."""
        now, counts = self._clock(), self._count - self._ended_count
        held_s = now - self._began_at if held_s is None else held_s
        trained_s = now - self._ended_at - held_s
        before, sent = self._sent, self._traffic()
        every = self._interval.note(counts, trained_s, held_s, Traffic(*map(sub, sent, before)))
        self._sent, self._ended_count, self._ended_at = sent, self._count, now
        self.wish = self._interval.wish
        if not self.is_open:
            self.every = every
        return self._count + self.every


def pacing(
    transport: Transport, vectors: Sequence[Vector], bounds: tuple[int, int | None], is_timed: bool,
    off_core: Callable[[], float], *, epoch: int | None = None, first: int | None = None, times: int = TIMES,
    fragments: int = 1, agrees: bool = False, count: int = 0,
) -> Fixed | Auto:  # fmt: skip
    """Return the pacing for `bounds`: an interval within them that follows the cost of exchanges, or a fixed one.

    It is fixed if both bounds are the same, or if it is not `is_timed`, so that time says nothing. `off_core`: returns
    the seconds for which this thread has waited for a core. `epoch`, `first` and `times` are arguments of `Interval`.
    The others are arguments of `Fixed` and `Auto`.
    """
    low, high = bounds
    if low == high or not is_timed:
        return Fixed(low if first is None or low == high else first, fragments)
    interval = Interval(low, high, epoch, first, times)
    return Auto(interval, transport.clock, traffic(transport, vectors, off_core), agrees, count)


def traffic(
    transport: Transport, vectors: Sequence[Vector], off_core: Callable[[], float]
) -> Callable[[], Traffic]:  # fmt: skip
    """Return a function that returns the traffic of this rank so far. Where all are on one host there is none."""
    hosts = transport.hosts
    if len(set(hosts)) == 1:
        return Traffic
    own, carrier = hosts[transport.rank], transport.carrier

    def looked() -> Traffic:
        """The traffic until now. Local."""
        edges = [edge for one in vectors for peer, edge in one.statistics().peers.items() if hosts[peer] != own]
        sent, superseded = sum(edge.sent for edge in edges), sum(edge.superseded for edge in edges)
        return Traffic(sent, superseded, 0.0 if carrier is None else carrier.busy_s, off_core())

    return looked
