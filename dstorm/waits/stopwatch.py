"""The time that has passed since a moment while this process ran: see dstorm/waits/running_time.py.

The agents on other hosts are sent this module (malt/launch/hosts/connection.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from dstorm.waits.running_time import RunningTime

_NEVER_STOPS: Final = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
LONGEST_STEP_S = 1.0
"""The longest time between two readings in a loop that runs. A thread that is to read every quarter of a second may be
late."""


class Stopwatch:
    """The seconds since its start. It is read in a loop, by one thread, at least every `longest_step_s`.

    `clock`: by default time.monotonic.
    """

    def __init__(self, clock: Callable[[], float] | None = None, longest_step_s: float = LONGEST_STEP_S) -> None:
        self._clock, self._longest_step_s = clock or time.monotonic, longest_step_s
        self.restart()

    def restart(self) -> None:
        """Begin at 0. Any thread may call it."""
        self._running = RunningTime(self._clock(), self._longest_step_s)

    def seconds(self) -> float:
        """Return the seconds that have passed, as far as they count."""
        running = self._running  # another thread may start it anew
        running.poll(self._clock())
        return running.seconds


def uptime_s() -> float:
    """Return the seconds since this machine was started. Nobody sets that clock, and it goes on while it is suspended.

    For ages, and for what others have promised: both grow old also while no process runs.
    """
    return time.clock_gettime(_NEVER_STOPS)
