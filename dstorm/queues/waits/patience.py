"""The time for which a rank yields its core to peers that are behind. Pure.

A peer may be behind because it waits for a core, as other ranks or programs run; or because it is slow, and yields
do not help it. A yield that gives the core away takes as long as others run, any other a microsecond.

Yields are for steps that are short beside a time slice of the system, 3 to 4 ms: a rank makes many of them before a
peer gets the core. Where steps take longer the system shares the cores fairly, step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

_GIVEN_S: Final = 0.5
"""How long a rank gives its core away in all, over the life of a vector, while no rank fails."""
_IN_VAIN_SHARE: Final = 0.25
"""How long it yields though nobody takes the core, as a share of the time for which others took it: the peer may wait
for another core then. Where nobody has taken it the peer is slow, and does not wait for a core."""
_TAKEN_S: Final = 1e-4
"""A yield that lasts as long has given the core away. Others take a microsecond."""
_LATE_S: Final = 1e-3
"""A nap that lasts as long has given the core away: others had it when the nap was over. It is meant to take 0.2 ms."""
_NAP_POLLS: Final = 1 << 20
"""A pause after so many polls is a nap. A core that idles takes over what waits for another core."""
_SHORT_S: Final = 1e-3
"""A rank whose last steps all took longer yields once a gather."""
_STEPS: Final = 8
"""How many steps are the last ones. Of so many, some are short even where the rank itself waits for its core."""


class Patience:
    """The yields of one vector on one rank. Local."""

    def __init__(self) -> None:
        self._given_s, self._in_vain_s = 0.0, 0.0
        """Seconds in which others took the core; those in which nobody did."""
        self._steps_s: deque[float] = deque(maxlen=_STEPS)
        """How long this rank's last steps took, each a mean over the steps between two gathers that yielded."""
        self._left_at, self._step = 0.0, 0

    def arrive(self, now: float, step: int) -> None:
        """Begin the yields of a gather of `step`, at `now`, in seconds."""
        if step > self._step > 0:
            self._steps_s.append((now - self._left_at) / (step - self._step))
        self._step = step

    def leave(self, now: float) -> None:
        """End them."""
        self._left_at = now

    @property
    def is_left(self) -> bool:
        """True if the rank should yield again to peers that are still behind."""
        is_short = min(self._steps_s, default=0.0) < _SHORT_S
        is_in_vain = self._in_vain_s >= _IN_VAIN_SHARE * self._given_s
        return is_short and self._given_s < _GIVEN_S and not is_in_vain

    def pause(self, pause: Callable[[int], object], clock: Callable[[], float]) -> None:
        """Yield the core by pause(0). If nobody takes it, let it idle for a moment, by a longer pause."""
        start = clock()
        pause(0)
        is_taken = clock() - start >= _TAKEN_S
        if not is_taken and self.is_left:
            pause(_NAP_POLLS)
            is_taken = clock() - start >= _LATE_S
        if is_taken:
            self._given_s += clock() - start
        else:
            self._in_vain_s += clock() - start
