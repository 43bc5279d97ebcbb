"""The starter of a job of plain processes: it starts the ranks of one host, and lasts until the job needs it no more.

    python malt/launch/hosts/plain/starter.py RANKS SIZE PROGRAM...     RANKS: numbers with commas, or - for none

It takes the place of mpiexec where ranks may fail (--survive), and may be started again (--rejoin). No process of one
host waits for one of another: if a host, a daemon or a connection fails, nothing ends here. What ranks are told:
MALT_RANK, MALT_SIZE and MALT_HOST_SIZE, and the folder of the job. How they find each other is in
malt/session/resilience/rendezvous.py and hosts.py.

It ends once all ranks of the job have ended, as the folder of the job says. On other hosts the agent takes its place
(malt/launch/hosts/agent/ranks.py).

With MALT_REJOIN a rank that has failed is started again, with MALT_INCARNATION: 1, 2... It is not once the launcher has
written ENDING; nor, where the launcher is not heard, once no rank of this host runs; nor after FAILURES at its start in
a row. A line on stderr says so.

Where the job has a roster (malt/runner/roster.py), only so many of RANKS are started as it says. When it says more, the
next ones are, as ranks that come back. A rank that has left as it said fewer is started again then, too.

It is started by its path, and finds malt above that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType


def _root() -> str:
    """The folder of the packages of malt. Agents are sent this module, and have none."""
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4))


if __name__ == "__main__":
    sys.path[:0] = [_root()]

from malt.runner.events import Kind, Stream, append, event  # noqa: E402
from malt.runner.reporting import HOST_SIZE, INCARNATION, RANK, REJOIN, SIZE  # noqa: E402
from malt.runner.roster import Roster, parsed, written  # noqa: E402

ENDING = "ending"
"""The file in the folder of the job which says that no rank is started again: the job ends."""
AGAIN_S = 5.0
"""The least time between two starts of a rank. One that fails earlier has failed at its start."""
FAILURES = 3
"""A rank that has failed so often at its start, in a row, is not started again."""
_POLL_S = 0.02


class Restarts:
    """The restarts of a rank. Pure: times are arguments, in seconds. `now`: when it was started first."""

    def __init__(self, now: float) -> None:
        self.incarnation = 0
        """How often it was started again."""
        self._started_at, self._failures = now, 0
        self._is_noted = False

    def note_failure(self, now: float) -> bool:
        """Note that it has failed. Returns False where that was noted since its last start."""
        if self._is_noted:
            return False
        self._is_noted = True
        self._failures = self._failures + 1 if now - self._started_at < AGAIN_S else 0
        return True

    def is_given_up(self) -> bool:
        """Return whether it has failed too often at its start."""
        return self._failures >= FAILURES

    def is_due(self, now: float) -> bool:
        """Return whether it is time to start it again."""
        return now - self._started_at >= AGAIN_S

    def begin(self, now: float) -> None:
        """Note that it is started again."""
        self.incarnation += 1
        self._started_at, self._is_noted = now, False


class Ranks:
    """The `ranks` of this host, of a job of `size` ranks in `folder`. Each runs `words` in `environ`."""

    def __init__(
        self, ranks: Sequence[int], size: int, words: Sequence[str], folder: str, environ: Mapping[str, str]
    ) -> None:  # fmt: skip
        self._folder, self._ranks, self._words, self._size = folder, ranks, words, size
        self._environ, self._rejoin = environ, REJOIN in environ
        self.is_adrift = False
        """Whether the launcher is not heard."""
        self._departs = False
        """Whether the ranks were told to leave."""
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lives: dict[int, int] = {}
        """The incarnations of these."""
        self._restarts: dict[int, Restarts] = {}
        self._roster: Roster | None = None
        self._written = ""
        """That as it was read."""

    def start(self) -> None:
        """Start them. OSError: one cannot be started; those before it run."""
        self._read_roster()
        for rank in filter(self._is_wanted, self._ranks):
            self._start(rank)
            self._restarts[rank] = Restarts(time.monotonic())

    def look_after(self, now: float) -> bool:
        """Start those again whose time has come. Returns whether a rank runs, or is to be started again."""
        is_any, goes_on = False, self._rejoin and not self._departs and not self._is_ending()
        for rank, process in self._processes.items():
            if process.poll() is None:
                is_any = True
            elif process.returncode:
                restarts, how = self._restarts[rank], _how(process.returncode)
                if restarts.note_failure(now):
                    self._tell_failure(rank, process.returncode, how)
                if goes_on and self._is_wanted(rank) and not restarts.is_given_up():
                    is_any = True
                    self._start_again(rank, now, how)
        is_any = is_any or (goes_on and len(self._ranks) < self._size and self._is_elastic())
        if goes_on and is_any:
            self._read_roster()
            for rank in filter(self._is_absent, self._ranks):
                self._start_again(rank, now)
        return is_any

    def _is_elastic(self) -> bool:
        """Return whether the job may have more ranks later, of which some may be of this host."""
        return self._roster is not None and self._roster.least < self._roster.most

    def _is_wanted(self, rank: int) -> bool:
        """Return whether the job is to have this rank, as far as its roster was read, if there is one."""
        return self._roster is None or not self._roster.goes(rank, self._lives.get(rank, 0))

    def _is_absent(self, rank: int) -> bool:
        """Return whether a rank is wanted that has not been started, or has left as the job shrank."""
        process = self._processes.get(rank)
        has_left = process is None or (
            process.poll() == 0 and self._roster is not None and self._roster.has_retired(rank, self._lives[rank])
        )
        return has_left and self._is_wanted(rank)

    def _read_roster(self) -> None:
        if (line := written(self._folder)) and line != self._written:
            self._roster, self._written = parsed(line), line

    def _start_again(self, rank: int, now: float, how: str = "") -> None:
        """Start a rank if its time has come. `how`: it has failed; "": the job has not had it, or not any more."""
        restarts = self._restarts.setdefault(rank, Restarts(now - AGAIN_S))
        if not restarts.is_due(now):
            return
        restarts.begin(now)
        what = f"rank {rank} failed ({how}), " if how else f"rank {rank} "
        try:
            self._start(rank, restarts.incarnation)
            if how:
                self.say(f"{what}started again ({_ordinal(restarts.incarnation)} time)")
        except OSError as error:  # no memory for it now, say
            self.say(f"{what}cannot be started now: {error.strerror}")

    def kill(self) -> None:
        """Kill those that run. None is started any more."""
        self._departs = True
        for process in self._processes.values():
            process.kill()

    def depart(self) -> bool:
        """Tell the ranks to leave, of which none is started any more. Returns False where the job does not change."""
        if not self._is_elastic():
            return False
        self._departs = True
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                process.terminate()
        return True

    def say(self, text: str) -> None:
        """Tell the user."""
        with contextlib.suppress(OSError):  # nobody reads
            os.write(2, f"malt: {text}\n".encode())

    def report_failed(self, rank: int, status: int) -> None:
        """Report with which status a rank has failed."""
        with contextlib.suppress(OSError):  # a full disk
            append(self._folder, event(Kind.ENDED, rank, str(status)))

    def popen(self, rank: int, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start the process of a rank. OSError."""
        return subprocess.Popen(self._words, env=environ, stdin=subprocess.DEVNULL)

    def _tell_failure(self, rank: int, status: int, how: str) -> None:
        """Report that a rank has failed, and say where it is given up."""
        self.report_failed(rank, 128 - status if status < 0 else status)
        if self._restarts[rank].is_given_up():
            self.say(f"rank {rank} failed {FAILURES} times in a row within {AGAIN_S:.0f} s of its start, at last "
                     f"{how}: it is not started again")  # fmt: skip

    def _start(self, rank: int, incarnation: int = 0) -> None:
        """Start a rank. OSError: it cannot be."""
        own = {RANK: str(rank), SIZE: str(self._size), HOST_SIZE: str(len(self._ranks))}
        own |= {INCARNATION: str(incarnation)} if incarnation else {}
        self._processes[rank] = self.popen(rank, {**self._environ, **own})
        self._lives[rank] = incarnation
        if self._departs:  # the handler of a signal has come between, and did not know it
            self._processes[rank].kill()

    def _is_ending(self) -> bool:
        """Return whether no rank is started again."""
        if os.path.exists(os.path.join(self._folder, ENDING)):
            return True
        return self.is_adrift and all(one.poll() is not None for one in self._processes.values())


def _how(status: int) -> str:
    """Return how a process has ended, in words, by its status, or minus the signal that has killed it."""
    if status > 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def _ordinal(number: int) -> str:
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def main() -> None:
    """Start the ranks of this host, and wait."""
    numbers, size, *program = sys.argv[1:]
    given = [int(number) for number in numbers.split(",")] if numbers != "-" else []
    folder, runner = os.environ["MALT_FAILURE_DIR"], os.path.join(_root(), "malt", "runner", "program.py")
    ranks = Ranks(given, int(size), [sys.executable, runner, *program], folder, os.environ)

    def end(number: int, frame: FrameType | None) -> None:
        """End the ranks, as the launcher ends this process, or was killed."""
        ranks.kill()
        os._exit(128 + number)

    signal.signal(signal.SIGHUP, end)
    try:
        ranks.start()
    except OSError as error:
        ranks.kill()
        sys.exit(f"{error.strerror}: {error.filename}")
    is_spread, reports = len(given) < int(size), Stream(folder)
    while ranks.look_after(time.monotonic()) or (is_spread and _is_waiting(folder, reports)):
        time.sleep(_POLL_S)


def _is_waiting(folder: str, reports: Stream) -> bool:
    """Return whether the job goes on, or ranks of other hosts run that have been heard of."""
    has_ended = os.path.exists(os.path.join(folder, ENDING))
    return not (has_ended and reports.read().ranks(Kind.ELSEWHERE) <= reports.ranks(Kind.ENDED))


if __name__ == "__main__":
    main()
