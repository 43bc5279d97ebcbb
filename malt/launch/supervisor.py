"""An mpiexec under supervision: it ends, or is ended, and nothing of it is left behind.

What each mpiexec does when it is told to end: a terminal's Ctrl-C makes MPICH's pass it on and wait, for ever where
ranks are inside MPI, which does not look at signals; SIGTERM makes both end all ranks within a second. A killed Open
MPI one leaves its ranks running. So mpiexec runs in a session of its own, where a terminal's signals do not reach it.
The launcher tells the ranks to leave (malt/launch/departure.py); once they have, or take too long, or it is told again,
it sends mpiexec a SIGTERM. Where that does not do, and where mpiexec itself was killed, all that came from it is
killed.

Open MPI's can also crash, or wait for ever, when a rank ends while others connect to it in MPI_Init. So a failing rank
says so in a file, with its status (malt/runner/program.py): where mpiexec does not end the job, it is ended from here.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping

from malt.launch import offspring
from malt.launch.departure import Departure
from malt.launch.mpi_library import LaunchError
from malt.launch.offspring import Offspring
from malt.launch.signals import Signals
from malt.launch.streams.output import Output
from malt.launch.streams.standard_input import StandardInput

END_S = 5.0
"""How long mpiexec may take to end its ranks before everything is killed."""

_LOOK_S = 0.05
"""How often to look whether a rank has failed."""
FAILED_S = 2.0
"""How long mpiexec may take then to end the job by itself."""


class Supervised:
    """An mpiexec and everything that it starts. LaunchError: it cannot be started."""

    def __init__(
        self, arguments: list[str], environ: Mapping[str, str], signals: Signals, departure: Departure, grace_s: float,
        output: Output,
    ) -> None:  # fmt: skip
        self._signals, self._departure, self._grace_s = signals, departure, grace_s
        self._offspring = Offspring()
        self._shared: set[str] = set()
        self._input = StandardInput(departure.folder, departure.is_spread)
        stdout, stderr = output.pipes
        try:
            self._process = subprocess.Popen(
                arguments, env=dict(environ), stdin=self._input.source, start_new_session=True,
                stdout=stdout, stderr=stderr, pass_fds=output.other_ends, preexec_fn=offspring.end_with_parent,
            )  # fmt: skip
        except OSError as error:
            raise LaunchError(f"cannot start {arguments[0]}: {error.strerror}") from None
        self._input.start()
        signals.suspend = self._suspend

    def wait(self, failure: Callable[[], int | None], is_ending: Callable[[], bool] = bool) -> int:
        """Return the job's status once it has ended, or 128 + the number of the signal that ended it.

        failure(): the status that a rank has failed with, or None. It is the job's, whatever became of mpiexec.
        is_ending(): where that is 0, whether ranks still run to their end.
        """
        status = self._wait(failure, is_ending)
        if status < 0:
            self.kill_leftovers()
        self._input.close()
        if self._signals.first is not None:
            return 128 + self._signals.first
        reports = failure()
        return reports if reports is not None else 128 - status if status < 0 else status

    def kill_leftovers(self) -> None:
        """Kill what the job that has ended left running."""
        left = self._offspring.kill({self._process.pid, *self._departure.sessions()})
        for name in self._shared:
            with contextlib.suppress(OSError):
                os.unlink(name)
        if left:
            names = ", ".join(map(str, left))
            print(f"malt run: killed, but not gone yet: process {names}", file=sys.stderr, flush=True)

    def _wait(self, failure: Callable[[], int | None], is_ending: Callable[[], bool]) -> int:
        """What mpiexec ends with, or is ended with where it is time."""
        failed_s = 0.0
        while not self._is_time_to_kill() and failed_s <= FAILED_S:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(_LOOK_S)
            status = failure()
            if status is not None and (status or (_is_read() and not is_ending())):
                failed_s += _LOOK_S
        self._shared = self._departure.shared()
        # Once all have left there is nothing that mpiexec could do but complain of how they end.
        has_ended = self._signals.first is not None and self._departure.is_over() and not self._departure.is_spread
        for end in (self._process.kill if has_ended else self._process.terminate, self._process.kill):
            end()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(END_S)
        return -signal.SIGKILL  # it waits for a disk or a file server

    def _is_time_to_kill(self) -> bool:
        """Whether ranks that were told to leave have left, or had their time."""
        number = self._signals.first
        if number is None:
            return False
        if self._signals.times > 1:
            return True
        self._departure.report(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)  # a terminal has gone, say
        if self._departure.is_over():
            return True
        if time.monotonic() - self._signals.forwarded_at <= self._grace_s:
            return False
        names = ", ".join(map(str, self._departure.slow()))
        print(f"malt run: rank {names} did not end within {self._grace_s:g} s: killed", file=sys.stderr, flush=True)
        return True

    def _suspend(self, number: int) -> None:
        """SIGSTOP: everything stands still; SIGCONT: it goes on."""
        self._departure.send(number)
        self._process.send_signal(number)


def _is_read() -> bool:
    """Whether there is room in stdout and stderr, so that mpiexec need not keep what ranks have printed."""
    try:
        return len(select.select([], [1, 2], [], 0)[1]) == 2
    except OSError:  # closed
        return True
