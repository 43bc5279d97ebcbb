"""The processes that a job has started: the children of this process, and orphans that it inherits from them.

It inherits them as a subreaper (prctl(2)), on Linux only. Elsewhere no processes are found.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from dstorm.membership.processes import stat_fields

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_KILLED_S, _POLL_S = 5.0, 0.01
"""How long to wait for killed processes, and the interval of the checks. One that waits for a disk may never end."""


class _Child(NamedTuple):
    number: int
    session: int
    started: int


class Offspring:
    """The children that this process gets from now on. `own`: children that it has itself started before."""

    def __init__(self, own: Collection[int] = ()) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._before = {(child.number, child.started) for child in _children()}
        """Children that are not of the job: a shell that called exec leaves its own to this process."""
        self._has_strangers = any(number not in own for number, _ in self._before)

    def kill(self, sessions: Iterable[int]) -> list[int]:
        """Kill them all, and the orphans that appear as they end. Returns the processes that do not end. Local.

        `sessions`: the sessions of the job. They tell its processes apart, if this process had children before.
        """
        end = time.monotonic() + _KILLED_S
        ours = set(sessions)
        while (found := self._found(ours)) and time.monotonic() < end:
            for child in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            for child in found:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
            time.sleep(_POLL_S)
        return found

    def _found(self, sessions: set[int]) -> list[int]:
        fresh = [child for child in _children() if (child.number, child.started) not in self._before]
        return [child.number for child in fresh if not self._has_strangers or child.session in sessions]


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Make the system send signal `number` to this process when its parent ends. Call it in the new process. Local.

    Where that is not SIGTERM, this is blocked: it is for the parent, whoever sends it to all.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if number != signal.SIGTERM:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _load_prctl() -> Callable[[int, int], None]:
    if sys.platform != "linux":
        return lambda option, value: None
    function = ctypes.CDLL(None).prctl
    function.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]

    def call(option: int, value: int) -> None:
        """As prctl(2) with one argument."""
        function(option, value, 0, 0, 0)

    return call


_prctl = _load_prctl()  # before a fork, in which nothing may be loaded


def _children() -> list[_Child]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            fields = stat_fields(int(path.name))
            if int(fields[1]) == os.getpid():
                found.append(_Child(int(path.name), int(fields[3]), int(fields[19])))
    return found
