"""Chooses the number of steps between two heartbeats of a loop, at which it reads the clock. Pure."""

from __future__ import annotations

_SHORT_S = 1e-3
"""The time between two readings where steps are shorter than that."""
_MOST = 64
"""The most steps between two readings. A loop that slows down suddenly is noticed after so many."""


class HeartbeatInterval:
    """The number of steps that a loop may take between two heartbeats, at which it reads the clock.

    The loop reads the clock about once in `_SHORT_S`, so that short steps do not pay for it. `now`: the clock in
    seconds when the loop begins.
    """

    def __init__(self, now: float) -> None:
        self._read_at = now
        self._steps = 1

    def steps(self, now: float) -> int:
        """Return the number of steps from this heartbeat, at `now` seconds, to the next one: at least 1. Local."""
        passed_s, self._read_at = now - self._read_at, now
        if passed_s < _SHORT_S:
            self._steps = min(2 * self._steps, _MOST)
        else:
            self._steps = max(1, int(self._steps * _SHORT_S / passed_s))
        return self._steps
