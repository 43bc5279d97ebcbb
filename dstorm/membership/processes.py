"""Whether the processes of other ranks on this host are alive, as the system sees them (/proc, Linux). All is *Local.*

A process is known by its number and the moment it started, so that another one of the same number does not pass for it.
One that was stopped (SIGSTOP, a debugger) and stands still for `suspect_after_s` is killed: it can then not wake up and
write into memory that has another use by now.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

SUSPECT_AFTER_S = 2.0
"""How long a stopped process may stand still by default: nothing stops one for so long by itself."""

_ENDED, _STOPPED = "ZX", "Tt"
_ENDING_S = 1.0
"""A process that is killed while it stands still runs for a moment: nobody need see it stand in its last one."""
_LOOK_S = 0.001
_LONG_AGO, _RAN = 0.5, 0.25
"""A look is long ago after this part of `suspect_after_s`. Who has used less of the processor since than that part of
the time may have stood still itself."""
_UNKNOWN = ("?", -1, 0)
"""What is seen where looking fails (no file descriptors left, no memory), and the process may live."""


class Process(NamedTuple):
    """A process, as others can find it. All of -1: there is no way to tell."""

    number: int = -1
    started: int = -1
    """Clock ticks after the system."""
    namespace: int = -1
    """In which numbers mean the same."""


def this_process() -> Process:
    """The one that calls."""
    number = os.getpid()
    seen = _look(number)
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return Process()
    return Process(number, seen[1], namespace) if seen is not None and seen != _UNKNOWN else Process()


def stat_fields(number: int) -> list[bytes]:
    """The fields of proc_pid_stat(5) after the name, which may contain anything. OSError: it has ended, or there is no
    such file here."""
    with open(f"/proc/{number}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def process(number: int, started: int) -> Process:
    """One that numbers its processes as this one does."""
    return this_process()._replace(number=number, started=started)


def has_ended(process: Process) -> bool:
    """Whether it has: also while nobody has waited for it. Not where that cannot be found out."""
    return _is_over(process, _look(process.number))


def is_stopped(process: Process) -> bool:
    """Whether it stands still (SIGSTOP, a debugger)."""
    seen = _look(process.number)
    return seen is not None and not _is_over(process, seen) and seen[0] in _STOPPED


class ProcessMonitor:
    """A watch over the processes of some ranks; those that this one cannot see are never reported."""

    def __init__(
        self, processes: Mapping[int, Process], clock: Callable[[], float], suspect_after_s: float | None = None
    ) -> None:
        here = this_process().namespace
        self._processes = {
            rank: process for rank, process in processes.items() if process.namespace == here and process.number > 0
        }
        self._clock = clock
        self._suspect_after_s = SUSPECT_AFTER_S if suspect_after_s is None else suspect_after_s
        self._stopped_at: dict[int, tuple[float, int]] = {}
        """Since when each stands still, and what it had used of the processor by then."""
        self._stood: dict[int, tuple[float, float]] = {}
        """Since when, and when last, each was seen to stand still."""
        self._looked_at = self._used_s = 0.0
        """When this process last looked, and what it had used of the processor by then."""

    def find_failed(self) -> Sequence[int]:
        """The ranks whose processes have ended; those that stand still for too long are ended."""
        self._doubt_own_count()
        return [rank for rank in self._processes if self._is_over(rank)]

    def end(self, ranks: Iterable[int]) -> None:
        """Return when the processes of `ranks` have ended; one that has not is killed, and given a moment: it runs no
        more. What others take for dead, as it is silent towards them, may write into memory of this host."""
        until = self._clock() + _ENDING_S
        for process in [self._processes[rank] for rank in ranks if rank in self._processes]:
            while not has_ended(process) and self._clock() < until:
                with contextlib.suppress(OSError):
                    os.kill(process.number, signal.SIGKILL)
                time.sleep(_LOOK_S)

    def kill(self, rank: int) -> bool:
        """Kill its process, whatever it is at, without waiting for its end; whether it is one that can be."""
        if rank not in self._processes:
            return False
        if not has_ended(self._processes[rank]):
            with contextlib.suppress(OSError):
                os.kill(self._processes[rank].number, signal.SIGKILL)
        return True

    def standing_s(self, rank: int) -> float:
        """How long it has been standing still, or had been when it ended; 0 where it was not seen to."""
        since, until = self._stood.get(rank, (0.0, 0.0))
        now = self._clock()
        return now - since if now - until < _ENDING_S else 0.0

    def _doubt_own_count(self) -> None:
        """Where this process may have stood still, the count of the others begins anew: of a job that is suspended and
        resumed whole, those who go on first see the others stand."""
        now, used_s = self._clock(), time.process_time()
        away_s = now - self._looked_at
        if away_s > _LONG_AGO * self._suspect_after_s and used_s - self._used_s < _RAN * away_s:
            self._stopped_at.clear()
        self._looked_at, self._used_s = now, used_s

    def _is_over(self, rank: int) -> bool:
        process = self._processes[rank]
        seen = _look(process.number)
        if seen is None or _is_over(process, seen):
            return True
        if seen == _UNKNOWN:
            return False
        now = self._clock()
        if seen[0] not in _STOPPED:
            self._stopped_at.pop(rank, None)
            return False
        since, used = self._stopped_at.get(rank, (now, seen[2]))
        if used != seen[2]:  # it has run since the last look
            since = now
        self._stopped_at[rank] = since, seen[2]
        self._stood[rank] = since, now
        if now - since > self._suspect_after_s:
            with contextlib.suppress(OSError):
                os.kill(process.number, signal.SIGKILL)
        return False


def _is_over(process: Process, seen: tuple[str, int, int] | None) -> bool:
    return seen is None or (seen != _UNKNOWN and (seen[1] != process.started or seen[0] in _ENDED))


def _look(number: int) -> tuple[str, int, int] | None:
    """(state, start, time on the processor in clock ticks) of a process; None: there is none. _UNKNOWN."""
    try:
        fields = stat_fields(number)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return _UNKNOWN if _is_there(number) else None
    return fields[0].decode(), int(fields[19]), int(fields[11]) + int(fields[12])


def _is_there(number: int) -> bool:
    """Whether there is a process of this number, be it a zombie: what can be asked without a file descriptor."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return True
