"""The supervisor of an mpiexec: it waits for the end of the job or brings it about, and kills what is left.

Each mpiexec reacts to signals in its own way. On Ctrl-C MPICH's forwards the signal and waits: for ever, if ranks are
inside MPI, where no handler runs. On SIGTERM Open MPI's ends all ranks within a second, MPICH's passes it on. If the
former is killed, its ranks run on. So:

1. mpiexec runs in a session of its own, which the terminal's signals do not reach.
2. After a signal the launcher asks the ranks to leave (malt/launch/processes/departure.py).
3. When they have left, take too long, or a second signal comes, the launcher ends mpiexec by a signal. For Open MPI's
   that is SIGHUP: who ends a service or a batch job sends SIGTERM to all of its processes, and it is blocked there.
4. If mpiexec does not end then, or was killed itself, the launcher kills all processes that came from it.

Open MPI's mpiexec can also crash, or wait for ever, when a rank ends while others connect to it in MPI_Init. So a
failed rank reports its status in a file (malt/runner/program.py), and the launcher ends the job if mpiexec does not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from functools import partial

from dstorm.waits.stopwatch import Stopwatch
from dstorm.words import named
from malt.launch.command import Line
from malt.launch.hosts.agent.processes import kill, of_job
from malt.launch.machine.mpi_library import LaunchError
from malt.launch.processes.departure import Departure
from malt.launch.processes.parent import end_with_parent
from malt.launch.processes.signals import Signals
from malt.launch.streams.display import say
from malt.launch.streams.output import Output
from malt.launch.streams.standard_input import StandardInput

END_S = 5.0
"""How long mpiexec may take to end its ranks before everything is killed."""

_POLL_S = 0.05
"""The interval of the checks for a failed rank."""
FAILED_S = 2.0
"""How long mpiexec may take to end the job by itself after a rank has failed."""
_STUCK_S = 1.0
"""How long mpiexec may take to end where it cannot reach a host: it would ask that host for ever."""


class Supervised:
    """An mpiexec and the processes that it starts, by `line`. LaunchError: it cannot be started."""

    def __init__(
        self, line: Line, environ: Mapping[str, str], signals: Signals, departure: Departure, grace_s: float,
        output: Output,
    ) -> None:  # fmt: skip
        self._signals, self._departure, self._grace_s = signals, departure, grace_s
        self._output, self._ended_by = output, line.ended_by
        self._leaving: Stopwatch | None = None
        """Since the ranks were asked to leave. None: they were not."""
        self._input = StandardInput(departure.folder, line.passes_input_on, output.note_typed)
        stdout, stderr = output.pipes
        try:
            self._process = subprocess.Popen(
                line.arguments, env=dict(environ), stdin=self._input.source, start_new_session=True,
                stdout=stdout, stderr=stderr, pass_fds=output.other_ends,
                preexec_fn=partial(end_with_parent, line.ended_by),
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(f"cannot start {line.arguments[0]}: {error.strerror}") from None
        self._input.start()
        signals.suspends.append(self._suspend)
        self._end, self._files = select.poll(), list[int]()
        with contextlib.suppress(AttributeError, OSError):  # no Linux: the end of mpiexec is seen at the next look
            self._files = [os.pidfd_open(self._process.pid)]
            self._end.register(self._files[0])

    def wait(
        self, failure: Callable[[], int | None], is_ending: Callable[[], bool] = bool,
        is_stuck: Callable[[], bool] = bool,
    ) -> int:  # fmt: skip
        """Wait for the end of the job. Returns its status, or 128 + the number of the signal that ended it. Local.

        failure(): the status of a failed rank, or None. It is the status of the job, whatever mpiexec ends with.
        is_ending(): whether ranks still run to their end. It is called when failure() returns 0. is_stuck(): whether
        what has started the ranks cannot end the job, as a host cannot be reached.
        """
        status = self._wait(failure, is_ending, is_stuck)
        for file in self._files:
            os.close(file)
        if status < 0:
            kill(partial(of_job, str(self._departure.folder)))
        self._input.close()
        if self._signals.first is not None:
            return 128 + self._signals.first
        failed_with = failure()
        if failed_with is not None:
            return failed_with
        if status < 0:
            say(f"malt run: the process that had started the ranks was killed, by signal {-status}\n")
        return 128 - status if status < 0 else status

    def _wait(
        self, failure: Callable[[], int | None], is_ending: Callable[[], bool], is_stuck: Callable[[], bool]
    ) -> int:  # fmt: skip
        """Wait for mpiexec, and end it when it is time to. Returns its status, or -n after signal n."""
        failed_s = 0.0
        while not self._is_time_to_kill() and failed_s <= (0.0 if is_stuck() else FAILED_S):
            self._end.poll(1000 * _POLL_S)
            if (ended_with := self._process.poll()) is not None:
                return ended_with
            status = failure()
            if status is not None and (status or (_is_read() and not is_ending())):
                failed_s += _POLL_S
        # When all ranks have left, mpiexec could only complain of how they ended: it is killed.
        has_ended = self._signals.first is not None and self._departure.is_over() and not self._departure.is_spread
        for number in (signal.SIGKILL if has_ended else self._ended_by, signal.SIGKILL):
            self._process.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(_STUCK_S if is_stuck() else END_S)
        return -signal.SIGKILL  # mpiexec waits for a disk or a file server

    def _is_time_to_kill(self) -> bool:
        """Return whether a signal ends the job, and its ranks have left or had the time to. Ranks get all signals."""
        self._signals.deliver()
        number = self._signals.first
        if number is None:
            return False
        if self._signals.came_again():
            return True
        self._leaving = self._leaving or Stopwatch()
        self._departure.notify(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)  # SIGHUP as SIGTERM
        if self._departure.is_over():
            return True
        if self._leaving.seconds() <= self._grace_s:
            return False
        say(f"malt run: {named(self._departure.slow())} did not end within {self._grace_s:g} s: killed\n")
        return True

    def _suspend(self, number: int) -> None:
        """Stop all that runs here of the job (SIGSTOP), first what starts ranks; or let it go on (SIGCONT)."""
        self._process.send_signal(number)
        for process in of_job(str(self._departure.folder)):
            with contextlib.suppress(OSError):  # it has ended
                os.kill(process, number)
        if number == signal.SIGSTOP:
            self._output.hide()  # the shell writes where the picture is


def _is_read() -> bool:
    """Return whether stdout and stderr can be written to, so that mpiexec holds back no output of the ranks."""
    try:
        return len(select.select([], [1, 2], [], 0)[1]) == 2
    except OSError:  # closed
        return True
