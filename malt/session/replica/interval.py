"""Chooses the number of counts between two exchanges from what exchanges cost. Pure: costs in, interval out.

An exchange may cost a tenth of what is trained between two. Its cost is twice the time for which it holds the loop,
waits included, because it also leaves the caches full of messages. A message that leaves while the loop goes on costs
the time for which the loop meanwhile waits for a core: the system and the transfer thread need one, too. Where one is
free it costs nothing, until the link cannot keep up. Then messages are superseded before they have left, and the
interval is as long as the link takes for one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

TIMES: Final = 20
"""So many times as long as an exchange holds the loop is trained between two: a tenth of that is its cost."""
TIMES_ALONE: Final = 100
"""The same on one rank, where it brings nothing, and leaves no messages."""
CAP_S: Final = 1.0
"""The most seconds of training between two exchanges, where nobody has said how long an epoch is. Where a link takes
longer for a message, it is as long as that."""
IN_AN_EPOCH: Final = 8
"""The fewest exchanges in an epoch, where somebody has."""
SUPERSEDED: Final = 0.1
"""The part of the messages to other hosts that may be superseded."""
_LAST: Final = 7
"""The exchanges whose median counts. A loop that pauses once, to evaluate say, does not change it."""
_AT_ONCE: Final = 2
"""The interval changes by this factor at most from one exchange to the next."""
_FADING: Final = 0.97
"""What is left, after one more exchange, of the time that a link has taken. So a link that is fast again is noticed."""

_LEAST_S: Final = 1e-9
"""A count takes so long at least: a clock may stand still."""


class Traffic(NamedTuple):
    """The messages of a rank to other hosts, so far or between two exchanges."""

    messages: int = 0
    """Those handed over."""
    superseded: int = 0
    """Those of them, or of earlier ones, that have not left, nor will."""
    seconds: float = 0.0
    """The time for which some were on their way."""
    off_core_s: float = 0.0
    """The time for which the loop waited for a core."""


_NONE: Final = Traffic()


class Interval:
    """The counts between two exchanges.

    `low`, `high`: bounds; no upper one if None. `epoch`: the counts of an epoch; None: not known. `low` wins where an
    epoch is short. `first`: the interval at the start, within bounds. `times`: TIMES or TIMES_ALONE.
    """

    def __init__(
        self, low: int = 1, high: int | None = None, epoch: int | None = None, first: int | None = None,
        times: int = TIMES,
    ) -> None:  # fmt: skip
        self._times = times
        self._low, self._epoch = low, epoch
        most = [one for one in (high, None if epoch is None else epoch // IN_AN_EPOCH) if one is not None]
        self.high: float = max(low, min(most, default=math.inf))
        """The upper bound, perhaps infinity."""
        self.counts = low if first is None else self._bounded(first)
        """The interval now."""
        self.wish = low
        """What it would be, if it could change by any factor at once."""
        self._held_s = deque[float](maxlen=_LAST)
        self._per_count_s = deque[float](maxlen=_LAST)
        self._sends = deque[tuple[float, Traffic]](maxlen=_LAST)
        """The seconds of an exchange and of the training before it, and the traffic in them. Empty until there is some.
        """
        self._lost_s = 0.0
        """For how long an exchange keeps the core from the loop, at most: a mean, as a message may outlast some."""
        self._link_s = 0.0
        """How long the link takes for the messages of an exchange, where it could not keep up; it fades."""

    def note(self, counts: int, trained_s: float, held_s: float, traffic: Traffic = _NONE) -> int:
        """Note one exchange, and return the counts up to the next one.

        `counts` were trained in `trained_s` seconds since the last one ended; it has held the loop for `held_s`.
        `traffic` is that since then.
        """
        self._per_count_s.append(trained_s / max(1, counts))
        self._held_s.append(held_s)
        if traffic.messages or self._sends:
            self._sends.append((trained_s + held_s, traffic))
            self._note_link()
        wanted_s = self._times * (_median(self._held_s) + self._lost_s / 2)
        if self._epoch is None:
            wanted_s = min(wanted_s, CAP_S)
        wish = max(wanted_s, self._link_s) / max(_median(self._per_count_s), _LEAST_S)
        self.wish = self._bounded(wish)
        self.counts = self._bounded(min(max(wish, self.counts // _AT_ONCE), self.counts * _AT_ONCE))
        return self.counts

    # -- private ----------------------------------------------------------------------------------------------

    def _bounded(self, counts: float) -> int:
        return round(min(max(counts, self._low), self.high))

    def _note_link(self) -> None:
        """Find what messages cost the loop, and how long the link takes for them, where too many are superseded."""
        times, traffic = zip(*self._sends, strict=True)
        sent, superseded, sending_s, off_core_s = map(sum, zip(*traffic, strict=True))
        self._lost_s = max(0.0, min(sending_s, off_core_s)) / len(self._sends)  # another thread may have begun the loop
        if superseded > SUPERSEDED * sent:
            exchanges_left = len(self._sends) * max(0.0, 1 - superseded / max(1, sent))
            self._link_s = sum(times) / max(1.0, exchanges_left)
        else:
            self._link_s *= _FADING


def _median(values: Iterable[float]) -> float:
    """The median; of an even number of values the larger one in the middle."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
