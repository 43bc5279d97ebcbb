"""The follower of a job whose ranks may fail: it reads what is reported of them, and ends those that are stopped."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from dstorm.membership.processes import SUSPECT_AFTER_S, Process, ProcessMonitor, is_stopped
from dstorm.waits.stopwatch import Stopwatch
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.reports.job_state import JobState
from malt.launch.streams.display import say
from malt.runner.events import Kind, Stream
from malt.watch.processes import ended, processes

_ALL_STOPPED_S = 5.0
"""How long all ranks that are left may be stopped. After it the launcher ends them, as no rank can."""


class Follower:
    """The follower of a job, of which `reports` are read. Its other arguments are those of `JobState`."""

    def __init__(self, reports: Stream, ranks: int, is_spread: bool = False, least: int = 1) -> None:
        self._folder, self._ranks, self._reports = Path(reports.folder), ranks, reports
        self.state = JobState(reports, ranks, is_spread, least)
        self.report_ended: Callable[[Mapping[int, int]], object] = bool
        """Called with the ranks whose processes were seen to end on this host, and their incarnations."""
        self._running = Stopwatch()
        self._status: int | None = None
        self._watched: tuple[Mapping[int, Process], float] | None = None
        """The ranks that are ended if they are stopped for so many seconds. None: none are."""
        self._monitor = ProcessMonitor({}, time.monotonic)

    def status(self) -> int | None:
        """Return the status of the job, or None while it runs, as `JobState.look`. Local."""
        if self._status is None:
            self._status = self._look()
            if self._status is not None:
                with contextlib.suppress(OSError):  # a full disk
                    (self._folder / ENDING).touch()
        return self._status

    def is_any_here(self) -> bool:
        """Return whether a rank runs on this host, as far as is known, without those that have not come back. Local."""
        over = ended(self._reports)
        return bool(self._reports.ranks(Kind.STARTED) - over - self.state.joining)

    def heard(self) -> set[int]:
        """Return the ranks that have reported anything so far. Local."""
        self._reports.read()
        return self.state.heard()

    def is_ending(self, unreached: Collection[int] = ()) -> bool:
        """Return whether a rank that has finished still runs, as `JobState.closing`. Local."""
        return bool(self.state.closing(ended(self._reports), unreached))

    def end(self, status: int = 0) -> int:
        """Return the status of a job after the end of its starter, which has ended with `status`, and say why. Local.

        It is as `JobState.settled`, or where the job has ended before its end was seen as `JobState.end`.
        """
        self._reports.read()
        if self._status is not None and status in (0, self._status):
            return self.state.settled(self._status)
        if status:
            return status
        status, line = self.state.end(str(self._folder.parent))
        say(line)
        return status

    def _look(self) -> int | None:
        over = ended(self._reports)
        self.report_ended(self.state.ends_here(over))
        status = self.state.look(over, self._running.seconds(), time.monotonic_ns())
        if status is None:
            over |= self._reports.ranks(Kind.FINISHED)
            self._watch({rank: one for rank, one in processes(self._reports).items() if rank not in over})
        return status

    def _watch(self, running: Mapping[int, Process]) -> None:
        """End the ranks that are stopped. In a session the ranks do it themselves, as long as one of them runs."""
        patience_s = _ALL_STOPPED_S if all(map(is_stopped, running.values())) else None
        if not self.state.has_begun:
            patience_s = SUSPECT_AFTER_S
        if self._ranks == 1 or patience_s is None:  # nobody waits for a single rank: it may stay stopped
            self._watched = None
            return
        if self._watched != (running, patience_s):
            self._watched = running, patience_s
            self._monitor = ProcessMonitor(running, time.monotonic, patience_s)
        self._monitor.find_failed()
