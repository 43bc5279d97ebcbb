"""The starter of a job of plain processes: it starts the ranks of one host, and lasts until the job needs it no more.

    python malt/launch/hosts/plain/starter.py RANKS SIZE PROGRAM...     RANKS: numbers with commas, or - for none

It takes the place of mpiexec where ranks may fail (--survive), and may be started again (--rejoin). No process of one
host waits for one of another: if a host, a daemon or a connection fails, nothing ends here. What ranks are told:
MALT_RANK, MALT_SIZE and MALT_HOST_SIZE, and the folder of the job. How they find each other is in
malt/session/resilience/rendezvous.py and hosts.py.

On the launcher's host it ends once all ranks of the job have ended, as the folder of the job says. On another,
where an agent has started it (malt/launch/hosts/agent/ranks.py), it ends once those of its host have, which
print into files; where the job may have more ranks later, once that ends. Its status is 0 there where one of them has
ended well, else NONE_ENDED_WELL; another where it cannot start them.

SIGTERM, by which a system that takes its host away tells all processes, ends the ranks; where the number of ranks may
change, they leave in order, and it ends after them.

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
import shutil
import signal
import subprocess
import sys
import time
from types import FrameType


def _root() -> str:
    """The folder of the packages of malt. Agents are sent this module, and have none."""
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[os.pardir] * 4))


if __name__ == "__main__":
    sys.path[:0] = [_root()]

from malt.launch.hosts.agent.processes import remove_memory  # noqa: E402
from malt.runner.events import Kind, Stream, append, event  # noqa: E402
from malt.runner.reporting import HOST_SIZE, INCARNATION, RANK, REJOIN, SIZE  # noqa: E402
from malt.runner.roster import Roster, changed_at  # noqa: E402
from malt.runner.roster import read as read_roster  # noqa: E402

PRINTED = "printed-{}-{}"
"""The files in the folder of the job to which ranks on other hosts print: rank, and 1 or 2 for stdout or stderr."""
AWAY = "MALT_IS_AWAY"
"""The variable that is set where an agent has started it: to the folder of the job, where that is the agent's."""
ENDING, ADRIFT = "ending", "adrift"
"""The files there which say that no rank is started again: the job ends; the launcher is not heard any more."""
EXITED = "exited"
"""What the line begins with by which the starter on another host says that a rank has failed: that, its incarnation and
its status follow."""
NONE_ENDED_WELL = 3
"""The status of a starter on another host of whose ranks none has ended well."""
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

    def note_failure(self, now: float) -> None:
        """Note that it has failed, if that was not noted since its last start."""
        if not self._is_noted:
            self._is_noted = True
            self._failures = self._failures + 1 if now - self._started_at < AGAIN_S else 0

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


def commands(ranks: list[int], size: int, program: list[str]) -> dict[int, tuple[list[str], dict[str, str]]]:
    """The command line and the variables of each rank. Pure."""
    words = [sys.executable, os.path.join(_root(), "malt", "runner", "program.py"), *program]
    counts = {SIZE: str(size), HOST_SIZE: str(len(ranks))}
    return {rank: (words, {RANK: str(rank), **counts}) for rank in ranks}


class Ranks:
    """The ranks of this host, started. Rank 0 reads the input of this process, unless an agent has started it.

    `is_away`: whether it has. `rejoin`: whether ranks that fail are started again.

    SystemExit: one cannot be started; those before it are killed.
    """

    def __init__(
        self, ranks: list[int], size: int, program: list[str], folder: str, is_away: bool, rejoin: bool = False
    ) -> None:  # fmt: skip
        self._folder, self._is_away, self._rejoin = folder, is_away, rejoin
        self._commands = commands(ranks, size, program)
        self._is_spread = len(ranks) < size
        self._departs = False
        """Whether the ranks were told to leave."""
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lives: dict[int, int] = {}
        """The incarnations of these."""
        self._restarts: dict[int, Restarts] = {}
        self._roster: Roster | None = None
        self._roster_at = 0
        self._given_up: set[int] = set()
        self._reported: dict[int, subprocess.Popen[bytes]] = {}
        """The processes that have failed, as the launcher was told, by rank."""
        self._read_roster()
        for rank in filter(self._is_wanted, ranks):
            try:
                self._start(rank)
            except OSError as error:
                self.kill()
                sys.exit(f"rank {rank}: {error.strerror}: {error.filename}")
            self._restarts[rank] = Restarts(time.monotonic())

    def tend(self, now: float) -> bool:
        """Start those again whose time has come. Returns whether a rank runs, or is to be started again."""
        is_any, goes_on = False, self._rejoin and not self._departs and not self._is_ending()
        for rank, process in self._processes.items():
            if process.poll() is None:
                is_any = True
            elif process.returncode:
                self._report(rank, process)
                if goes_on and self._is_wanted(rank) and rank not in self._given_up:
                    is_any = self._tend_failed(rank, process.returncode, now) or is_any
        is_any = is_any or (goes_on and self._is_spread and self._is_elastic())
        if goes_on and is_any:
            self._read_roster()
            for rank in filter(self._is_absent, self._commands):
                self._start_more(rank, now)
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
        if (at := changed_at(self._folder)) != self._roster_at:
            self._roster, self._roster_at = read_roster(self._folder) or self._roster, at

    def _start_more(self, rank: int, now: float) -> None:
        """Start a rank that the job has not had, or not any more, if its time has come."""
        restarts = self._restarts.setdefault(rank, Restarts(now - AGAIN_S))
        if restarts.is_due(now):
            restarts.begin(now)
            try:
                self._start(rank, restarts.incarnation)
            except OSError as error:
                _say(f"rank {rank} cannot be started now: {error.strerror}")

    def kill(self) -> None:
        """Kill those that run."""
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

    def have_all_failed(self) -> bool:
        """Return whether none has ended well, of those that have ended."""
        return all(process.returncode for process in self._processes.values())

    def _report(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """Report with which status the process of a rank has failed, once. Agents pass it on: they have another clock.
        """
        if self._reported.get(rank) is process:
            return
        self._reported[rank], status = process, process.returncode
        status = 128 - status if status < 0 else status
        with contextlib.suppress(OSError):  # a full disk
            if self._is_away:
                os.write(2, f"{EXITED} {rank} {self._lives[rank]} {status}\n".encode())
            else:
                append(self._folder, event(Kind.ENDED, rank, str(status)))

    def _tend_failed(self, rank: int, status: int, now: float) -> bool:
        """Start a failed rank again, if it is time to. Returns whether it runs, or is to be started later."""
        restarts, how = self._restarts[rank], _how(status)
        restarts.note_failure(now)
        if restarts.is_given_up():
            self._given_up.add(rank)
            _say(f"rank {rank} failed {FAILURES} times in a row within {AGAIN_S:.0f} s of its start, at last "
                 f"{how}: it is not started again")  # fmt: skip
            return False
        if restarts.is_due(now):
            restarts.begin(now)
            times = restarts.incarnation
            try:
                self._start(rank, times)
                _say(f"rank {rank} failed ({how}), started again ({_ordinal(times)} time)")
            except OSError as error:  # no memory for it now, say
                _say(f"rank {rank} failed ({how}), and cannot be started again now: {error.strerror}")
        return True

    def _start(self, rank: int, incarnation: int = 0) -> None:
        """Start a rank. OSError: it cannot be."""
        words, variables = self._commands[rank]
        given = None if rank == 0 and not self._is_away and not incarnation else subprocess.DEVNULL
        environ = {name: value for name, value in os.environ.items() if name != AWAY} | variables
        environ |= {INCARNATION: str(incarnation)} if incarnation else {}
        prints = [_file(self._folder, rank, number, incarnation) for number in (1, 2)] if self._is_away else []
        try:
            self._processes[rank] = subprocess.Popen(
                words, env=environ, stdin=given, stdout=prints[0] if prints else None,
                stderr=prints[1] if prints else None,
            )  # fmt: skip
            self._lives[rank] = incarnation
        finally:
            for number in prints:
                os.close(number)

    def _is_ending(self) -> bool:
        """Return whether no rank is started again."""
        if self._is_written(ENDING):
            return True
        return self._is_written(ADRIFT) and all(one.poll() is not None for one in self._processes.values())

    def _is_written(self, name: str) -> bool:
        return os.path.exists(os.path.join(self._folder, name))


def _how(status: int) -> str:
    """Return how a process has ended, in words, by its status, or minus the signal that has killed it."""
    if status > 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


def _ordinal(number: int) -> str:
    return f"{number}{'th' if number % 100 in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody reads
        os.write(2, f"malt: {text}\n".encode())


def _file(folder: str, rank: int, number: int, incarnation: int = 0) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_APPEND | (0 if incarnation else os.O_EXCL)
    return os.open(os.path.join(folder, PRINTED.format(rank, number)), flags, 0o600)


def main() -> None:
    """Start the ranks of this host, and wait."""
    numbers, size, *program = sys.argv[1:]
    given = [int(number) for number in numbers.split(",")] if numbers != "-" else []
    folder, is_away, rejoin = os.environ["MALT_FAILURE_DIR"], AWAY in os.environ, REJOIN in os.environ
    ended_by = 0

    def note(number: int, frame: FrameType | None) -> None:
        """Note the signal that ends the ranks."""
        nonlocal ended_by
        ended_by = number

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, note)
    agent = os.getppid()
    ranks = Ranks(given, int(size), program, folder, is_away, rejoin)
    elsewhere = set() if is_away else set(range(int(size))) - set(given)
    reports = Stream(folder)
    while ranks.tend(time.monotonic()) or _is_waiting(folder, elsewhere, rejoin, reports):
        if is_away and os.getppid() != agent:  # that was killed, and cleans up no more
            ranks.kill()
            shutil.rmtree(os.environ[AWAY], ignore_errors=True)
            ended_by = signal.SIGKILL
        if ended_by == signal.SIGTERM and ranks.depart():
            ended_by = 0
        if ended_by:
            ranks.kill()
            remove_memory(folder)  # the launcher may have been killed
            os._exit(128 + ended_by)
        time.sleep(_POLL_S)
    if is_away and ranks.have_all_failed():
        sys.exit(NONE_ENDED_WELL)


def _is_waiting(folder: str, elsewhere: set[int], rejoin: bool, reports: Stream) -> bool:
    """Return whether ranks of other hosts run, or may be started again."""
    if not elsewhere:
        return False
    ended = reports.read().ranks(Kind.ENDED)
    if rejoin:  # of ranks that were never there nothing is heard
        return not os.path.exists(os.path.join(folder, ENDING)) or not reports.ranks(Kind.ELSEWHERE) <= ended
    return not elsewhere <= ended


if __name__ == "__main__":
    main()
