"""The processes that have come from a job: children of this one, or those that have become so as a parent of theirs
ended (a subreaper, see prctl(2)). Linux; elsewhere none are found."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from dstorm.membership.processes import stat_fields

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_KILLED_S, _LOOK_S = 5.0, 0.01
"""How long a killed process may take to end: one that waits for a disk or a file server may take for ever."""


class _Child(NamedTuple):
    number: int
    session: int
    started: int


class Offspring:
    """What comes to this process from now on."""

    def __init__(self) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._before = {(child.number, child.started) for child in _children()}
        """Not of the job: a shell that has become this program by exec leaves it its own."""

    def kill(self, sessions: Iterable[int]) -> list[int]:
        """Kill it until there is none: children of a killed one are found the next time. Returns those that do not end.

        `sessions`: those of the job's processes. Where there were children before the job, others may be theirs.
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
            time.sleep(_LOOK_S)
        return found

    def _found(self, sessions: set[int]) -> list[int]:
        fresh = [child for child in _children() if (child.number, child.started) not in self._before]
        return [child.number for child in fresh if not self._before or child.session in sessions]


def end_with_parent() -> None:
    """Have this process sent SIGTERM when its parent ends: for a new one to call. Local."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _load_prctl() -> Callable[[int, int], None]:
    if sys.platform != "linux":
        return lambda option, value: None
    function = ctypes.CDLL(None).prctl
    function.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]

    def call(option: int, value: int) -> None:
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
