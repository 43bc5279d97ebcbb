"""The striker: a thread of the launcher that kills, stops and slows ranks of this host, as the schedule has it.

It reads in the folder of the job which ranks have a session. Once the launcher ends the job (ENDING), also after a
signal, it strikes nobody any more, and lets those go on that it has stopped: else they could not end.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Set
from pathlib import Path

from dstorm.membership.processes import Process, send
from dstorm.waits.stopwatch import Stopwatch
from malt.launch.command import Line
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.injection.account import account
from malt.launch.injection.schedule import Schedule
from malt.launch.streams.display import say
from malt.runner import roster
from malt.runner.events import Kind, Stream
from malt.watch.processes import ended, processes

_POLL_S = 0.05
"""The interval of the looks at the ranks. Those that are made slow are stopped and continued in between."""


class Striker:
    """The striker of the job of `line`, in `folder`. Without faults it does nothing."""

    def __init__(self, folder: Path, line: Line) -> None:
        self._folder, self._is_spread = folder, line.is_spread
        self._reports = Stream(folder)
        self._schedule = None if line.faults is None else Schedule(line.faults, line.job.most)
        self._live: dict[int, Process] = {}
        self._stopped: dict[int, Process] = {}
        """The processes that are stopped now."""
        self._striking = threading.RLock()
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="malt striker", daemon=True)

    def start(self) -> None:
        """Begin, and say so. Call it after the start of the job. Local."""
        if self._schedule is not None:
            where = " on this host alone" if self._is_spread else ""
            say(f"malt run: --inject {self._schedule.faults} strikes ranks{where}, once they have a session\n")
            self._thread.start()

    def suspend(self, number: int) -> None:
        """Strike nobody from SIGSTOP to SIGCONT: no rank may go on in between.

        It is called by a handler in the main thread, which takes the lock here alone.
        """
        if number == signal.SIGSTOP:
            self._striking.acquire()
        else:
            self._stopped.clear()  # all ranks go on
            self._striking.release()

    def close(self, status: int) -> str:
        """Let all ranks go on, and return the line that says who was struck; "" without faults. Local.

        `status`: that of the job.
        """
        if self._schedule is None:
            return ""
        self._has_ended.set()
        self._thread.join()
        return account(self._schedule, status)

    def _run(self) -> None:
        try:
            if self._schedule is not None:
                self._strike(self._schedule)
        except Exception as error:  # the job goes on without it
            say(f"malt run: no rank is struck any more: {error!r}\n")
        finally:
            with self._striking:
                self._signal([], frozenset())

    def _strike(self, schedule: Schedule) -> None:
        """Strike until the job ends."""
        watch, looked_s = Stopwatch(), -_POLL_S
        while not self._has_ended.wait(min(schedule.wait_s(), _POLL_S)):
            with self._striking:
                if (self._folder / ENDING).exists():
                    return
                now_s = watch.seconds()
                if now_s - looked_s >= _POLL_S or schedule.is_due(now_s):
                    self._live, looked_s = self._look(), now_s
                self._signal(*schedule.turn(now_s, self._live))

    def _look(self) -> dict[int, Process]:
        """The ranks of this host whose session has begun, and whose programs run."""
        over, reports = ended(self._reports), self._reports
        over |= reports.ranks(Kind.FINISHED) | reports.ranks(Kind.LEFT)
        if (crew := roster.read(self._folder)) is not None:  # a rank may have left because another one is there
            again = reports.texts(Kind.AGAIN)
            over |= {rank for rank in crew.retired if crew.has_retired(rank, int(again.get(rank, "0")))}
        return {rank: one for rank, one in processes(reports).items() if rank in reports.ranks(Kind.READY) - over}

    def _signal(self, killed: Iterable[int], stopped: Set[int]) -> None:
        """Kill the ranks `killed`; stop `stopped`, and let all others go on."""
        for rank in killed:
            send(self._live[rank], signal.SIGKILL)
        for rank in self._stopped.keys() - stopped:
            send(self._stopped.pop(rank), signal.SIGCONT)
        for rank in stopped - self._stopped.keys():
            self._stopped[rank] = self._live[rank]
            send(self._live[rank], signal.SIGSTOP)
