"""The process monitor: whether the processes of other ranks on this host are alive (/proc, Linux). All of it is Local.

A process is identified by its number and its start time, as numbers are used again. A process that stays stopped
(SIGSTOP, a debugger) for `suspect_after_s` is killed. So it cannot resume and write into memory that has another use by
then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from dstorm.waits.running_time import RunningTime

SUSPECT_AFTER_S = 2.0
"""How long a process may stay stopped by default. No process is stopped for so long without a cause."""

_ENDED, _STOPPED = "ZX", "Tt"
_ENDING_S = 1.0
"""A stopped process that is killed runs again for a moment before it ends. It counts as stopped for this time."""
_POLL_S = 0.001
_LONGEST_STEP = 0.5
"""The longest time between two checks, as a share of `suspect_after_s`, that counts in any case. Of a longer one it is
what this process has computed: it may have been stopped itself, and its job with it. When that is resumed, the ranks
that run first still see the others stopped."""
_UNKNOWN = ("?", -1, 0)
"""The state of a process that cannot be read (no file descriptors left, no memory). It may be alive."""


class Process(NamedTuple):
    """The identity of a process. All fields are -1 where the system does not give it."""

    number: int = -1
    """Its number (pid)."""
    started: int = -1
    """Its start time in clock ticks after the start of the system."""
    namespace: int = -1
    """The namespace in which its number is valid."""


def this_process() -> Process:
    """The identity of the calling process."""
    number = os.getpid()
    seen = _state(number)
    try:
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return Process()
    return Process(number, seen[1], namespace) if seen is not None and seen != _UNKNOWN else Process()


def stat_fields(number: int) -> list[bytes]:
    """The fields of proc_pid_stat(5) after the name, which may contain any bytes.

    OSError: the process has ended, or the system has no such file.
    """
    with open(f"/proc/{number}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()


def process(number: int, started: int) -> Process:
    """The identity of a process in the namespace of this one."""
    return this_process()._replace(number=number, started=started)


def has_ended(process: Process) -> bool:
    """Return whether `process` has ended. A zombie has. False if the system hides its state, as of a container."""
    return _is_visible(process) and _is_over(process, _state(process.number))


def is_stopped(process: Process) -> bool:
    """Return whether `process` is stopped (SIGSTOP, a debugger)."""
    seen = _state(process.number) if _is_visible(process) else None
    return seen is not None and not _is_over(process, seen) and seen[0] in _STOPPED


def handles(process: Process, number: int) -> bool:
    """Return whether `process` has a handler for signal `number`. False if the system does not say (not Linux)."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        with open(f"/proc/{process.number}/status", encoding="ascii", errors="replace") as file:
            caught = next(line for line in file if line.startswith("SigCgt:")).split()[1]
        return bool(int(caught, 16) >> (number - 1) & 1)
    return False


def send(process: Process, number: int) -> None:
    """Send signal `number` to a process, if it has not ended, and may get one from this one."""
    if not has_ended(process):
        with contextlib.suppress(OSError):
            os.kill(process.number, number)


class ProcessMonitor:
    """A monitor of the processes of some ranks, by rank. Processes that this one cannot see are never reported."""

    def __init__(
        self, processes: Mapping[int, Process], clock: Callable[[], float], suspect_after_s: float | None = None
    ) -> None:
        self._processes = {rank: process for rank, process in processes.items() if _is_visible(process)}
        self._clock = clock
        self._suspect_after_s = SUSPECT_AFTER_S if suspect_after_s is None else suspect_after_s
        self._stopped_at: dict[int, tuple[float, int]] = {}
        """Since when each rank is stopped, and its processor time then."""
        self._seen_stopped: dict[int, tuple[float, float]] = {}
        """When each rank was first and last seen stopped."""
        self._running = RunningTime(clock(), _LONGEST_STEP * self._suspect_after_s)
        self._lost: set[int] = set()
        """The ranks that count as ended, whatever process they have."""
        self._used_s = time.process_time()
        """The processor time of this process at its last check."""

    @property
    def watched(self) -> Mapping[int, Process]:
        """The processes that are watched, by rank."""
        return self._processes

    def lose(self, rank: int) -> None:
        """Let `rank` count as ended until it is readmitted: its process takes no part."""
        self._processes.pop(rank, None)
        self._lost.add(rank)

    def readmit(self, rank: int, process: Sequence[int]) -> None:
        """Watch `process` in place of the former one of `rank`."""
        self._lost.discard(rank)
        self._stopped_at.pop(rank, None)
        self._seen_stopped.pop(rank, None)
        if _is_visible(Process(*process)):
            self._processes[rank] = Process(*process)

    def find_failed(self) -> Sequence[int]:
        """The ranks whose processes have ended. Processes that have been stopped for too long are killed."""
        used_s = time.process_time()
        self._running.poll(self._clock(), used_s - self._used_s)
        self._used_s = used_s
        return [*self._lost, *(rank for rank in self._processes if self._is_over(rank))]

    def end(self, ranks: Iterable[int]) -> None:
        """Kill the processes of `ranks` that have not ended; return when they have, or after 1 s.

        Another host may have marked a rank failed that gave it no heartbeat. Its process must not go on writing into
        the memory of this host.
        """
        until = self._clock() + _ENDING_S
        for process in [self._processes[rank] for rank in ranks if rank in self._processes]:
            while not has_ended(process) and self._clock() < until:
                send(process, signal.SIGKILL)
                time.sleep(_POLL_S)

    def kill(self, rank: int) -> bool:
        """Kill the process of `rank` without waiting for its end; return whether this process can see it."""
        if rank not in self._processes:
            return False
        send(self._processes[rank], signal.SIGKILL)
        return True

    def stopped_s(self, rank: int) -> float:
        """Seconds for which `rank` has been stopped, or had been when it ended; 0 where it was not seen stopped."""
        since, until = self._seen_stopped.get(rank, (0.0, 0.0))
        now = self._clock()
        return now - since if now - until < _ENDING_S else 0.0

    def _is_over(self, rank: int) -> bool:
        process = self._processes[rank]
        seen = _state(process.number)
        if seen is None or _is_over(process, seen):
            return True
        if seen == _UNKNOWN:
            return False
        now = self._clock()
        if seen[0] not in _STOPPED:
            self._stopped_at.pop(rank, None)
            return False
        since, used = self._stopped_at.get(rank, (now, seen[2]))
        if used != seen[2]:  # it has run since the last check
            since = now
        self._stopped_at[rank] = since, seen[2]
        self._seen_stopped[rank] = since, now
        if self._running.since(since) > self._suspect_after_s:
            send(process, signal.SIGKILL)
        return False


def _is_visible(process: Process) -> bool:
    """Return whether the number of `process` is valid here: another container of this machine counts for itself."""
    with contextlib.suppress(OSError):
        return process.number > 0 and process.namespace == os.stat("/proc/self/ns/pid").st_ino
    return False


def _is_over(process: Process, seen: tuple[str, int, int] | None) -> bool:
    return seen is None or (seen != _UNKNOWN and (seen[1] != process.started or seen[0] in _ENDED))


def _state(number: int) -> tuple[str, int, int] | None:
    """(state, start time, processor time), in clock ticks; None: no such process; _UNKNOWN: it cannot be read."""
    try:
        fields = stat_fields(number)
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return _UNKNOWN if _is_there(number) else None
    return fields[0].decode(), int(fields[19]), int(fields[11]) + int(fields[12])


def _is_there(number: int) -> bool:
    """Return whether there is a process of this number, also a zombie. The question takes no file descriptor."""
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # it belongs to another user
    return True
