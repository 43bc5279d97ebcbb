"""A deadline for calls that cannot be timed out: one that overruns it is reported, and the job is ended."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from dstorm.waits.running_time import RunningTime

_LONGEST_POLL_S = 0.5
"""The longest time between two looks at the calls. It counts where this process was stopped."""
_LAST_RESORT_S = 5.0
"""How long the job may take to end before this process exits by itself: ending the job may hang, too."""


class _Watching:
    """A block of code in which a call is watched: in a third of the time of a generator."""

    __slots__ = ("_calls", "_what")

    def __init__(self, calls: dict[int, tuple[str, float]], what: str) -> None:
        self._calls, self._what = calls, what

    def __enter__(self) -> None:
        self._calls[id(self)] = self._what, time.monotonic()

    def __exit__(self, *_: object) -> None:
        del self._calls[id(self)]


class Watchdog:
    """A thread that watches the calls of this rank. It calls `end_job` once, where one overruns `deadline_s`."""

    def __init__(self, rank: int, deadline_s: float, end_job: Callable[[], None]) -> None:
        self._rank = rank
        self.deadline_s = deadline_s
        """The deadline of each call in seconds. It may be changed at any time."""
        self._end_job = end_job
        self._calls: dict[int, tuple[str, float]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="malt watchdog", daemon=True)
        self._thread.start()

    def watching(self, what: str) -> AbstractContextManager[None]:
        """Watch the call `what` while the block runs. Local. Several threads may be in such blocks."""
        return _Watching(self._calls, what)

    def stop(self) -> None:
        """End the thread. Local."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        running = RunningTime(time.monotonic(), _LONGEST_POLL_S)
        while not self._stopped.wait(min(_LONGEST_POLL_S / 2, self.deadline_s / 4)):
            running.poll(time.monotonic())
            calls = list(self._calls.values())
            overrun = [what for what, began in calls if running.since(began) > self.deadline_s]
            if overrun:
                self._report(overrun[0])
                return

    def _report(self, what: str) -> None:
        overrun = f"{what} has not returned for {self.deadline_s:g} s, the deadline"
        print(f"malt: rank {self._rank}: {overrun}: ending the job", file=sys.stderr, flush=True)
        leave = threading.Timer(_LAST_RESORT_S, os._exit, [1])
        leave.daemon = True
        leave.start()
        self._end_job()
