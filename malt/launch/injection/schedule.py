"""The schedule of strikes, drawn from a seed. Pure: times are arguments, in seconds, and no signal is sent.

Strikes of a kind come at random moments, a mean time apart, independently of earlier ones (a Poisson process).
Everything is drawn from the seed alone: the moments, how long a rank is stopped, and an order of all ranks, of which a
strike hits the first that runs. So two jobs of one seed are struck alike, as long as the same ranks run.

A rank that stays stopped is ended by the others (dstorm/membership/processes.py); one that continues before that is
not. Both are meant to happen. So it is stopped for any time up to twice as long as they allow.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from malt.launch.injection.faults import Faults

LONGEST_STOP_S = 4.0
"""The longest time for which a rank is stopped: twice the heartbeat timeout of ranks of one host."""
SLICE_S = 0.01
"""How long a rank that is made slow runs at a time."""
LONGEST_PAUSE_S = 0.5
"""How long it is stopped at a time at most, also where the launcher was late to stop it."""
_TICK_S = 1e-6
"""The shortest wait: sums are rounded, and a shorter one might not end."""


@dataclass
class Strike:
    """A fault that was injected into a rank."""

    kind: str
    """kill, stop or slow."""
    rank: int
    at_s: float
    """Seconds after the session began."""
    extent: float = 0.0
    """For how long it is stopped; how many times slower it is made."""
    is_ended: bool = False
    """Whether it was stopped, and ended before its time was over."""


class Turn(NamedTuple):
    """The actions that are due now."""

    killed: list[int]
    """The ranks to kill."""
    stopped: frozenset[int]
    """The ranks that are to be stopped now. All others go on."""


class Schedule:
    """The strikes of one job of so many `ranks`."""

    def __init__(self, faults: Faults, ranks: int) -> None:
        self.faults = faults
        self._drawn = heapq.merge(*(_drawn(kind, mean_s, ranks, faults.seed) for kind, mean_s in faults.every_s))
        self._next = next(self._drawn, _NEVER)
        self.first_s = self._next.at_s
        """When the first rank is to be killed or stopped. Infinity: never."""
        self._slow = {rank: _Slow(times) for rank, times in faults.slow}
        self._began_s: float | None = None
        self._struck: dict[int, Hashable] = {}
        """The processes that were killed, or are stopped by a strike now, by rank."""
        self._stops: dict[int, tuple[Strike, float]] = {}
        """The strikes that stop a rank now, and when they are over."""
        self.strikes: list[Strike] = []
        """Those so far, in their order."""
        self.left_out = 0
        """How many met nobody, as fewer than two ranks ran."""
        self.session_s: float | None = None
        """How long the session has lasted, at the last turn. None: none has begun."""

    def turn(self, now_s: float, live: Mapping[int, Hashable]) -> Turn:
        """Return the actions that are due at `now_s`.

        `live`: the ranks that take part in the session now, and what identifies their processes. The session begins
        when there are some.
        """
        if self._began_s is None:
            if not live:
                return Turn([], frozenset())
            self._began_s = now_s
        now_s = self.session_s = now_s - self._began_s
        self._struck = {rank: process for rank, process in self._struck.items() if live.get(rank) == process}
        self._end_stops(now_s)
        killed = []
        while self._next.at_s <= now_s:
            strike = self._strike(self._next, now_s, live)
            killed += [strike.rank] if strike is not None and strike.kind == "kill" else []
            self._next = next(self._drawn)
        for rank, one in self._slow.items():
            if one.turn(now_s, rank in live):
                self.strikes.append(Strike("slow", rank, now_s, one.times))
        slowed = {rank for rank, one in self._slow.items() if one.is_stopped}
        return Turn(killed, frozenset(slowed | self._stops.keys()))

    def is_due(self, now_s: float) -> bool:
        """Return whether a rank is to be killed or stopped by `now_s`."""
        return self._began_s is not None and now_s - self._began_s >= self._next.at_s

    def wait_s(self) -> float:
        """Return the seconds from the last turn to the next one, for ranks that are made slow."""
        return min((one.wait_s() for one in self._slow.values()), default=math.inf)

    def _strike(self, drawn: _Drawn, now_s: float, live: Mapping[int, Hashable]) -> Strike | None:
        """The strike, if it meets somebody. A rank that was killed may be seen to end later, and one that is stopped
        may be ended: neither counts as running, so that one is left that does."""
        running = [rank for rank in drawn.order if rank in live and rank not in self._struck]
        if len(running) < 2:
            self.left_out += 1
            return None
        strike = Strike(drawn.kind, running[0], drawn.at_s, drawn.stop_s if drawn.kind == "stop" else 0.0)
        self.strikes.append(strike)
        self._struck[strike.rank] = live[strike.rank]
        if drawn.kind == "stop":
            self._stops[strike.rank] = strike, now_s + drawn.stop_s
        return strike

    def _end_stops(self, now_s: float) -> None:
        """Let those go on whose time is over, and note those that have ended before."""
        for rank, (strike, until_s) in list(self._stops.items()):
            strike.is_ended = rank not in self._struck
            if strike.is_ended or now_s >= until_s:
                del self._stops[rank]
                self._struck.pop(rank, None)


class _Drawn(NamedTuple):
    """A strike, before it is known whom it meets."""

    at_s: float
    kind: str = ""
    order: tuple[int, ...] = ()
    stop_s: float = 0.0


_NEVER = _Drawn(math.inf)


def _drawn(kind: str, mean_s: float, ranks: int, seed: int) -> Iterator[_Drawn]:
    """The strikes of one kind, `mean_s` apart on average, without an end."""
    drawing, at_s = random.Random(f"{kind} {seed}"), 0.0
    while True:
        at_s += drawing.expovariate(1 / mean_s)
        # not shuffle() or sample(): what they draw from one seed has changed between versions of Python
        order = sorted(range(ranks), key=lambda rank: drawing.random())
        yield _Drawn(at_s, kind, tuple(order), drawing.uniform(0.0, LONGEST_STOP_S))


class _Slow:
    """A rank that is made so many `times` slower: it runs for a slice, and is then stopped for as much longer.

    Where the launcher is late, as it has no core, a slice or a pause lasts longer. What comes next makes up for that.
    """

    def __init__(self, times: float) -> None:
        self.times, self.is_stopped = times, False
        self._is_live = self._was_live = False
        self._at_s = self._owed_s = 0.0
        """The last turn; and for how long it is to be stopped yet for the time that it has run."""

    def turn(self, now_s: float, is_live: bool) -> bool:
        """Note how long it has run or was stopped, and settle which it is next. Returns whether it is live for the
        first time."""
        passed_s = now_s - self._at_s if self._is_live else 0.0
        owed_s = self._owed_s + (-passed_s if self.is_stopped else passed_s * (self.times - 1))
        self._at_s, self._owed_s = now_s, min(owed_s, LONGEST_PAUSE_S) if is_live else 0.0
        self.is_stopped = self._owed_s > (0.0 if self.is_stopped else self._whole_s())
        self._is_live = is_live
        is_first = is_live and not self._was_live
        self._was_live = self._was_live or is_live
        return is_first

    def wait_s(self) -> float:
        """Return the seconds from the last turn for which it goes on as it does."""
        if not self._is_live:
            return math.inf
        left_s = self._owed_s if self.is_stopped else (self._whole_s() - self._owed_s) / (self.times - 1)
        return max(_TICK_S, left_s)

    def _whole_s(self) -> float:
        """Return what it owes after a slice."""
        return SLICE_S * (self.times - 1)
