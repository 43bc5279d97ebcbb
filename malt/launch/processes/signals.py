"""The signals that the launcher gets while a job runs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM)
_PASSED = (
    signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF,
    signal.SIGURG, signal.SIGXCPU,
)  # fmt: skip
"""Signals that are for the ranks. Batch systems warn programs by some of them, as Slurm does by --signal=USR1@60."""
_TWICE_S = 0.5
"""A signal that comes again within this time counts once: timeout(1) sends it to the process and to its group."""
_OFTEN = 5
"""The launcher ends at once after this many signals, even if processes of the job remain."""


class Signals:
    """A context in which signals are noted instead of ending this process. Main thread only."""

    def __init__(self) -> None:
        self.first: int | None = None
        """The first signal that ends the job. None: none has come."""
        self.times = 0
        """How many such signals have come."""
        self.suspends: list[Callable[[int], object]] = []
        """Called with SIGSTOP on Ctrl-Z, the last first, and with SIGCONT on fg."""
        self.pass_on: Callable[[int], bool] = lambda number: False
        """Called by `deliver` with a signal for the ranks. Returns whether they take it."""
        self._waiting: list[int] = []
        """The signals for the ranks that were not passed on so far."""
        self._is_stopped = False
        self._last = (0, 0.0)
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for numbers, handler in ((_ENDING, self._note), (_PASSED, self._keep)):
            for number in numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # under nohup, or in the background of a script
                    self._set(number, handler)
        self._set(signal.SIGCONT, self._keep)
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._set(signal.SIGTSTP, self._stop)
        self._set(signal.SIGCHLD, signal.SIG_DFL)  # if it is ignored, the status of a child is not kept
        return self

    def __exit__(self, *error: object) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def came_again(self) -> bool:
        """Return whether a second signal that ends the job has come: the user waits no more. Local."""
        return self.times > 1

    def _set(self, number: int, handler: Any) -> None:
        self._previous[number] = signal.signal(number, handler) or signal.SIG_DFL

    def deliver(self) -> None:
        """Pass on the signals for the ranks that have come. SIGHUP ends the job where they do not take it. Local."""
        while self._waiting:
            number = self._waiting.pop(0)
            if not self.pass_on(number) and number == signal.SIGHUP:
                self._note(number, None)

    def _keep(self, number: int, frame: FrameType | None) -> None:
        """Keep a signal for `deliver`: a handler may have interrupted what holds a lock that passing it on needs."""
        if not self._is_stopped:  # after Ctrl-Z all ranks get SIGCONT, by `suspend`
            self._waiting.append(number)

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        (last, at), self._last = self._last, (number, now)
        if number == last and now - at < _TWICE_S:
            return
        self.times += 1
        if self.first is None:
            self.first = number
        if self.times >= _OFTEN:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Stop the job, then this process, on Ctrl-Z: the terminal's signals do not reach the job."""
        self._is_stopped = True
        for suspend in reversed(self.suspends):
            suspend(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        for suspend in self.suspends:
            suspend(signal.SIGCONT)
        self._is_stopped = False
