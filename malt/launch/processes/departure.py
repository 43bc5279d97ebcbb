"""The departure of all ranks of a job that a signal ends: each rank gets the signal once, and ends by itself.

Files in the folder of the job:

ending      no failed rank is started again any more (malt/launch/hosts/plain/starter.py)
signal-<n>  the launcher sends signal n; without this file a rank was signalled by others, and does not leave
notified    the launcher has sent it to all ranks that had started; no rank leaves before, as a rank that gets the
            signal later would miss it

Where a cleaner of /tmp has removed the folder, it is made anew for these files. The launcher knows the ranks that it
has seen before.

Ranks on other hosts get the signal over their connection (malt/launch/reports/control.py).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterable
from pathlib import Path

from dstorm.membership.processes import Process, handles, has_ended, send
from dstorm.waits.stopwatch import Stopwatch
from malt.launch.hosts.agent.closing import has_closed
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.reports.control import ControlServer
from malt.runner import departure
from malt.runner.events import Event, Kind, Stream
from malt.watch.processes import processes

_FINALIZES_S = 1.0
"""A rank that has been seen to have finished for longer waits in MPI_Finalize, where no signal handler runs."""


class Departure:
    """The departure of the ranks of one job, of which `reports` are read.

    `is_spread`: some ranks may be on hosts that the launcher cannot reach. `is_fault_tolerant`: a rank may end alone.
    """

    def __init__(
        self, reports: Stream, ranks: int, is_spread: bool = False, is_fault_tolerant: bool = False,
        control_server: ControlServer | None = None,
    ) -> None:  # fmt: skip
        self.folder, self._all, self._control_server = Path(reports.folder), set(range(ranks)), control_server
        self.is_spread, self.is_fault_tolerant = is_spread, is_fault_tolerant
        self._reports = reports
        self._notified = set[Event]()
        """The starts of the ranks that were notified: one that was started again has another."""
        self._finished: dict[int, Stopwatch] = {}
        """Since the ranks were seen to have finished."""

    def notify(self, number: int) -> None:
        """Send signal `number` to all ranks that run Python by now and were not notified since their start. Local."""
        if not self._notified:
            self._tell(ENDING)
            self._tell(f"signal-{number}")
        here = self._started()
        fresh, elsewhere = (set(self._reports.of(kind)) - self._notified for kind in (Kind.STARTED, Kind.ELSEWHERE))
        # A rank may leave because one that was notified before is missing: a signal would keep it from closing files.
        over = self._reports.ranks(Kind.FINISHED) | self._reports.ranks(Kind.STOPPED)
        self._send(number, (here[one.rank] for one in fresh if one.rank not in over))
        if self._control_server is not None and elsewhere:
            self._control_server.notify(number)
        self._notified |= fresh | elsewhere
        self._tell(departure.NOTIFIED)

    def pass_on(self, number: int) -> bool:
        """Send signal `number` to all ranks whose programs run, for handlers of their own. Local.

        SIGHUP, which a terminal sends that is closed, only where all ranks of this host have one. Returns whether it
        was sent: there are none, or SIGHUP is to end the job.
        """
        here = self._started()
        running = [here[rank] for rank in here.keys() - self._reports.ranks(Kind.FINISHED)]
        if number == signal.SIGHUP and not (running and all(handles(process, number) for process in running)):
            return False
        self._send(number, running)
        if self._control_server is not None:
            self._control_server.pass_signal(number)
        return True

    def is_over(self) -> bool:
        """Return whether all ranks that can be notified have left. Local.

        As soon as one rank has started, the others on this host are waited for, too.
        """
        return self._awaited() <= self._left()

    def slow(self) -> list[int]:
        """Return the ranks that are waited for, and have not left, in ascending order. Local."""
        return sorted(self._awaited() - self._left())

    def _started(self) -> dict[int, Process]:
        """The processes of the ranks that have started, as far as this one has seen that."""
        return processes(self._reports.read())

    def _awaited(self) -> set[int]:
        """The ranks that have to leave."""
        known = self._started().keys() | self._reports.ranks(Kind.ELSEWHERE)
        return known if self.is_spread or not known else self._all | known

    def _tell(self, name: str) -> None:
        """Make a file for the ranks. Where that is not possible, they get the signal all the same."""
        with contextlib.suppress(OSError):  # a full disk, a folder of another user
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / name).touch()

    def _left(self) -> set[int]:
        left = {rank for rank, process in self._started().items() if has_ended(process)}
        left |= self._reports.ranks(Kind.ENDED)
        if not self.is_fault_tolerant:
            left |= {rank for rank in self._reports.ranks(Kind.STOPPED) if has_closed(str(self.folder), rank)}
            left |= {rank for rank in self._reports.ranks(Kind.FINISHED) if self._finalizes(rank)}
        return left

    def _finalizes(self, rank: int) -> bool:
        """Return whether `rank`, which has finished, waits in MPI_Finalize."""
        return self._finished.setdefault(rank, Stopwatch()).seconds() > _FINALIZES_S

    def _send(self, number: int, processes: Iterable[Process]) -> None:
        for process in processes:
            send(process, number)
