"""The time that passes while this process runs. The agent is sent with it: it imports nothing of malt."""

from __future__ import annotations

import time
from collections.abc import Callable

LONGEST_STEP_S = 1.0
"""What counts of the time between two readings. Where more has passed, the process was stopped or busy, and read
nothing."""


class Stopwatch:
    """The seconds since its start, by `clock`. It is to be read more often than each second."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.restart()

    def restart(self) -> None:
        """Begin at 0. Any thread may call it."""
        self._seconds, self._read_at = 0.0, self._clock()

    def seconds(self) -> float:
        """Return the seconds that have passed, of which a step counts for one at most."""
        now = self._clock()
        self._seconds, self._read_at = self._seconds + min(now - self._read_at, LONGEST_STEP_S), now
        return self._seconds
