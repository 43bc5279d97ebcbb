"""Detects the end of a job on several hosts even if its mpiexec stays, for example because a link is down."""

from __future__ import annotations

import os
import time

from dstorm.waits.stopwatch import Stopwatch
from malt.launch.hosts.agent.closing import has_closed
from malt.launch.hosts.remote import RemoteHosts
from malt.launch.reports.job_state import failed_with
from malt.launch.streams.display import say
from malt.runner.events import Kind, Stream

_STAYS_S = 4.0
"""How long mpiexec may stay after the last rank has ended its interpreter, before it is asked to end, then killed."""

_LATE_S, _POLL_S = 1.5, 0.05
"""How long a report of another host may come after mpiexec has ended."""


class Ending:
    """The end of a job of so many `ranks` on several hosts, of which `reports` are read. `remote`: the other hosts."""

    def __init__(self, reports: Stream, ranks: int, remote: RemoteHosts) -> None:
        self._reports, self._all, self._remote = reports, set(range(ranks)), remote
        self._finished: Stopwatch | None = None
        """Since all ranks were seen to have ended. None: they were not."""
        self.is_forced = self.is_cut_off = False
        """Whether mpiexec has not ended by itself; and whether it cannot, as a host is cut off."""

    def status(self) -> int | None:
        """Return the status of the job, or None while it runs or mpiexec may still report it. Local."""
        silent = self._remote.cut_off()
        failed = failed_with(self._reports.read())
        if failed is not None:
            self.is_cut_off = silent is not None
            return failed
        if silent is not None:
            if not self.is_cut_off:
                self._force(self._remote.why_cut_off())
            self.is_cut_off = True
            return 1
        if self._finished is None and self._have_ended():
            self._finished = Stopwatch()
        if self._finished is None or self._finished.seconds() < _STAYS_S:
            return None
        self._force("all ranks have ended, and mpiexec has not")
        return 0

    def settled(self, status: int) -> int:
        """Return the status of a job whose mpiexec has failed with `status`: that of the rank that failed first. Local.

        A report of another host comes over its agent, and perhaps after mpiexec has ended: it is waited for a while. A
        rank that was killed by a signal has reported nothing.
        """
        waited = Stopwatch()
        while (failed := self.status()) is None and waited.seconds() < _LATE_S:
            time.sleep(_POLL_S)
        return failed or status

    def _have_ended(self) -> bool:
        """Return whether all ranks have reported their end, and run no Python any more: files are closed, say.

        They may still be in MPI_Finalize, where they would wait for an mpiexec that stays.
        """
        reports = self._reports.read()
        here = reports.ranks(Kind.STARTED) & self._all
        have_ended = reports.ranks(Kind.FINISHED) >= self._all and reports.ranks(Kind.CLOSED) >= self._all - here
        return have_ended and all(has_closed(os.fspath(reports.folder), rank) for rank in here)

    def _force(self, why: str) -> None:
        if not self.is_forced:
            say(f"malt run: {why}: the job is ended\n")
        self.is_forced = True
