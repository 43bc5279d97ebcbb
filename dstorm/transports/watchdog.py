"""A deadline for calls that cannot be timed out: one that overruns it is reported, and the job is ended."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

_LAST_RESORT_S = 5.0
"""How long the job may take to end before this process exits by itself: ending the job may hang, too."""


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

    @contextlib.contextmanager
    def watching(self, what: str) -> Iterator[None]:
        """Watch the call `what` while the block runs. Local. Several threads may be in such blocks."""
        call = (what, time.monotonic())
        self._calls[id(call)] = call
        try:
            yield
        finally:
            del self._calls[id(call)]

    def stop(self) -> None:
        """End the thread. Local."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(min(1.0, self.deadline_s / 4)):
            now = time.monotonic()
            overrun = [what for what, since in list(self._calls.values()) if now - since > self.deadline_s]
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
