"""What signals tell the launcher, from the start of a job until nothing is left of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TWICE_S = 0.5
"""The same signal again within this time is the same one: timeout(1) sends it to the process and to its group."""
_OFTEN = 5
"""Told so many times the launcher ends at once, whatever it leaves behind."""


class Signals:
    """Takes down signals while it is entered, instead of ending this process. Main thread only."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The signal that told the launcher to end the job."""
        self.forwarded_at = 0.0
        """When that was, on the clock of time.monotonic."""
        self.times = 0
        """How many times it was told."""
        self.suspend: Callable[[int], None] = lambda number: None
        """suspend(SIGSTOP) and suspend(SIGCONT): what Ctrl-Z and fg are to do to the job."""
        self._last = (0, 0.0)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in _ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, or in the background of a script
                self._set(number, self._note)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._set(signal.SIGTSTP, self._stop)
        self._set(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored nobody learns how a child has ended
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _set(self, number: int, handler: Any) -> None:
        self._previous[number] = signal.signal(number, handler) or signal.SIG_DFL

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        (last, at), self._last = self._last, (number, now)
        if number == last and now - at < _TWICE_S:
            return
        self.times += 1
        if self.first is None:
            self.first, self.forwarded_at = number, now
        if self.times >= _OFTEN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Ctrl-Z: the job is out of reach of the terminal."""
        self.suspend(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        self.suspend(signal.SIGCONT)
