"""Runs a composed mpiexec line to its end, and leaves nothing of it behind.

What each mpiexec does when it is told to end: a terminal's Ctrl-C makes MPICH's pass it on and wait, for ever where
ranks are inside MPI, which does not look at signals; SIGTERM makes both end all ranks within a second. A killed Open
MPI one leaves its ranks running. So any signal to the launcher becomes a SIGTERM to mpiexec; where that does not do,
and where mpiexec itself was killed, all that came from it is killed.

Open MPI's can also crash, or wait for ever, when a rank ends while others connect to it in MPI_Init. So a failing rank
says so in a file, with its status (malt/program.py): where mpiexec does not end the job, it is ended from here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from malt.launcher import Line
from malt.mpi_library import LaunchError
from malt.program import FAILURE_DIR, JOB_DIR, RECEPTION, SESSION_BASE
from malt.reception import Reception
from malt.rollcall import RollCall, failed_with, tell_who_ended_inside_mpi

GRACE_S = 5.0
"""How long mpiexec may take to end its ranks before everything is killed."""

_LOOK_S, _FAILED_S = 0.05, 2.0
"""How often to look whether a rank has failed; and how long mpiexec may take then to end the job by itself."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


class End(NamedTuple):
    """How a job has ended."""

    status: int
    is_told: bool = False
    """Whether a signal told the launcher to end it."""


def run(line: Line, environ: Mapping[str, str]) -> End:
    """Run `line` to its end; on failure print the traceback of the rank that failed first, again."""
    with tempfile.TemporaryDirectory(prefix="malt-") as folder:
        ours = {SESSION_BASE: folder, **environ, **line.settings, FAILURE_DIR: folder}
        roll = RollCall(Path(folder), line.mortal_ranks, line.is_spread) if line.mortal_ranks else None
        for name in (JOB_DIR, RECEPTION):  # of a job that this one is started by
            ours.pop(name, None)
        reception = Reception(Path(folder)) if roll is not None and line.is_spread else None
        if roll is not None:
            ours[JOB_DIR] = folder
        if reception is not None:
            ours[RECEPTION] = reception.number
        job = _Supervised(line.arguments, ours)
        if roll is not None:
            status = job.wait(roll.status, roll.is_ending)
        else:
            status = job.wait(lambda: failed_with(Path(folder)))
        if reception is not None:
            reception.close()
        if roll is not None:
            status = status or roll.end()
            roll.clean()
            end_leftovers()  # children of ranks that died
        elif job.signalled is None:
            status = tell_who_ended_inside_mpi(Path(folder), status)
        if status != 0 and job.signalled is None:
            if roll is not None:
                roll.tell_who_died_early()
            print(first_failure(Path(folder)), end="", file=sys.stderr, flush=True)
    return End(status, job.signalled is not None)


def end_leftovers() -> None:
    """Kill what the job that has ended left running."""
    _kill(_children)


def first_failure(folder: Path) -> str:
    """What is printed at the very end: of the files rank-<r>.txt in `folder` the oldest, or nothing."""
    failures = sorted(folder.glob("rank-*.txt"), key=lambda path: path.stat().st_mtime_ns)
    if not failures:
        return ""
    rank = failures[0].stem.removeprefix("rank-")
    first = f", the first of {len(failures)} ranks," if len(failures) > 1 else ""
    trace = failures[0].read_text(encoding="utf-8", errors="replace").rstrip()
    return f"\nmalt run: rank {rank}{first} failed:\n{trace}\n"


class _Supervised:
    """An mpiexec and everything that it starts."""

    def __init__(self, arguments: list[str], environ: Mapping[str, str]) -> None:
        self.signalled: int | None = None
        """The signal that told the launcher to end the job."""
        self._process: subprocess.Popen[bytes] | None = None
        self._previous = {number: signal.getsignal(number) for number in (*_SIGNALS, signal.SIGALRM)}
        for number, previous in self._previous.items():
            if previous is not signal.SIG_IGN:  # under nohup, or in the background of a script
                signal.signal(number, self._end)
        prctl = _prctl()
        prctl(_PR_SET_CHILD_SUBREAPER, 1)  # what mpiexec leaves behind becomes ours to end
        try:
            self._process = subprocess.Popen(
                arguments, env=dict(environ), preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
            )
        except OSError as error:
            raise LaunchError(f"cannot start {arguments[0]}: {error.strerror}") from None
        if self.signalled is not None:  # before there was a process to pass it on to
            self._end(self.signalled, None)

    def wait(self, failure: Callable[[], int | None], is_ending: Callable[[], bool] = bool) -> int:
        """Return the job's status once it has ended, or 128 + the number of the signal that ended it.

        failure(): the status that a rank has failed with, or None. It is the job's, whatever became of mpiexec.
        is_ending(): where that is 0, whether ranks still run to their end.
        """
        assert self._process is not None
        status = self._wait(self._process, failure, is_ending)
        signal.setitimer(signal.ITIMER_REAL, 0)
        if status < 0:
            _kill(_children)
        for number, previous in self._previous.items():
            signal.signal(number, previous)
        if self.signalled is not None:
            return 128 + self.signalled
        told = failure()
        return told if told is not None else 128 - status if status < 0 else status

    def _wait(
        self, process: subprocess.Popen[bytes], failure: Callable[[], int | None], is_ending: Callable[[], bool]
    ) -> int:  # fmt: skip
        """What mpiexec ends with, or is ended with where a rank has failed and it goes on."""
        failed_s = 0.0
        while failed_s <= _FAILED_S:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_S)
            status = failure()
            if status is not None and (status or (_is_read() and not is_ending())):
                failed_s += _LOOK_S
        process.terminate()
        signal.setitimer(signal.ITIMER_REAL, GRACE_S)
        return process.wait()

    def _end(self, number: int, frame: FrameType | None) -> None:
        """End the job; the alarm says that asking was not enough."""
        if number != signal.SIGALRM:
            self.signalled = self.signalled or number
        if self._process is None:
            return
        if number == signal.SIGALRM:
            self._process.kill()
        else:
            self._process.terminate()
            signal.setitimer(signal.ITIMER_REAL, GRACE_S)


def _is_read() -> bool:
    """Whether there is room in stdout and stderr, so that mpiexec need not keep what ranks have printed."""
    try:
        return len(select.select([], [1, 2], [], 0)[1]) == 2
    except OSError:  # closed
        return True


def _prctl() -> Callable[[int, int], int]:
    if sys.platform != "linux":
        return lambda option, value: 0
    function = ctypes.CDLL(None).prctl
    function.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
    return lambda option, value: int(function(option, value, 0, 0, 0))


def _kill(processes: Callable[[], Iterable[int]]) -> None:
    """Kill `processes` until there are none: children of a killed one come to us and are found the next time."""
    while found := list(processes()):
        for process in found:
            os.kill(process, signal.SIGKILL)
        for process in found:
            os.waitpid(process, 0)


def _children() -> list[int]:
    """The processes whose parent this one is (Linux; elsewhere none are found)."""
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _parent(path) == os.getpid()]


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(")")[2].split()[1])  # after the name, which may contain anything
    except OSError:
        return 0  # it has ended
