"""The time for which threads wait for a core, as Linux counts it."""

from __future__ import annotations

import contextlib
from typing import Final

_SCHEDSTAT: Final = "/proc/thread-self/schedstat"
"""Nanoseconds on a core, nanoseconds on a run queue, time slices (Documentation/scheduler/sched-stats.rst of Linux)."""


def waited_for_core_s() -> float:
    """Return for how long this thread has been ready to run, and had no core; 0 where the system does not say. Local.

    It takes 15 us. Time in which the thread sleeps, or waits for a device, is not among it.
    """
    with contextlib.suppress(OSError, ValueError, IndexError), open(_SCHEDSTAT, "rb") as file:
        return int(file.read().split()[1]) / 1e9
    return 0.0
