"""The job state: what the ranks of a job have reported to the launcher, as files in the folder of the job.

In every job, beside the files of malt/launch/processes/departure.py:

started-<rank>      its process: number and start time
status-<rank>       it has failed, with that status, and the job ends
full                a rank could not write that it has started, and has said so
finished-<rank>     its program has ended well

Where no rank may fail:

inside-<rank>       it has loaded MPI, and its program has not ended

Where ranks may fail:

*-came-<rank>       it has come to the session (malt/resilience/rendezvous.py)
ready-<rank>        the session has begun for it; one that was started again: the others have admitted it
left-<rank>         it has failed, with a status, or departed before the others, with 0; they go on
lost-<rank>         the others have marked it failed: that incarnation, or the first where it is empty
failed-<rank>       the launcher has seen that it has failed (for malt/watch/ranks.py)

Where failed ranks are started again (malt run --rejoin):

again-<rank>        its incarnation. What it has reported before is removed (malt/launch/hosts/plain/starter.py)
ending              the launcher has decided that the job ends: no rank is started again

Ranks on other hosts report over a connection (malt/launch/reports/control.py). If they cannot connect, the launcher
knows nothing of them until the starter ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Set
from pathlib import Path
from typing import Final

from dstorm.membership import processes as system
from dstorm.membership.processes import SUSPECT_AFTER_S, Process, ProcessMonitor
from dstorm.stopwatch import Stopwatch
from dstorm.transports import shm_space
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.streams.display import say
from malt.watch.ranks import ranks_with

BAD_INPUT: Final = 2
"""The status of a program whose arguments or input are wrong. A restart would end alike."""

_CALL_S = 60.0
"""How long the others may take to the session, if a rank failed before it: some programs never begin one. Also how long
a rank may take to start."""
_ALL_STOPPED_S = 5.0
"""How long all ranks that are left may be stopped. After it the launcher ends them, as no rank can."""

_NOTE = re.compile(r"(?:.+-(?=came-))?(status|started|came|ready|left|finished|lost|elsewhere|ended|again)-(\d+)")


def failed_with(folder: Path) -> int | None:
    """Return the status of the rank that failed first, as far as ranks have reported that; else None. Local."""
    reports = [folder / f"status-{rank}" for rank in ranks_with(folder, "status")]
    with contextlib.suppress(OSError):  # a cleaner of /tmp comes between
        return next((_status(path.read_text()) for path in sorted(reports, key=written)), None)
    return None


def written(path: Path) -> tuple[int, str]:
    """When a file was written, and its name: by these files are in order of time. OSError. Local."""
    return path.stat().st_mtime_ns, path.name


def report_ends_inside_mpi(folder: Path, status: int) -> tuple[int, bool]:
    """Report the ranks that ended without MPI_Finalize, in a job where no rank may fail. Local.

    `status`: that of mpiexec. MPICH's ends the other ranks in such a case, and returns 0. Returns the status of the
    job, which is not 0 if there are such ranks, and whether the way in which they ended was known and reported.
    """
    reports = {rank: (folder / f"inside-{rank}").read_text() for rank in sorted(ranks_with(folder, "inside"))}
    by_name = {rank: how for rank, how in reports.items() if how}
    if by_name:
        how = " and ".join(sorted(set(by_name.values())))
        _publish(
            by_name.keys(),
            f"ended by {how} without MPI.Finalize(), which ends the job: let the program come to its end",
        )
    elif reports and status == 0:
        _publish(reports.keys(), "ended, or one of them and then the others, without coming to the end of the program")
    if set(by_name.values()) == {"os._exit(0)"}:
        status = 1  # MPICH's may return the status of the ranks that it has killed
    return status or int(bool(reports)), bool(by_name)


class JobState:
    """The state of a job whose ranks may fail. `is_spread`: some ranks may be on other hosts."""

    def __init__(self, folder: Path, ranks: int, is_spread: bool = False) -> None:
        self._notes, self._all, self._is_spread = _Notes(folder), set(range(ranks)), is_spread
        self._folder = folder
        self.report_ended: Callable[[Mapping[int, int]], object] = bool
        """Called with the ranks whose processes were seen to end on this host, and their incarnations."""
        self._incarnations: dict[int, int] = {}
        """How often ranks were started again."""
        self._members, self._joining = self._all, set[int]()
        """The ranks that may run in the session or before it; and those that were started again, and have not come to
        it so far."""
        self._has_begun = False
        """Whether a session has begun."""
        self._status: int | None = None
        self._watched: tuple[Mapping[int, Process], float] | None = None
        """The ranks that are ended if they are stopped for so many seconds. None: none are."""
        self._monitor = ProcessMonitor({}, time.monotonic)
        self._waited = Stopwatch()
        self._missing: tuple[Set[int], Set[int]] = set(), set()
        """The ranks that failed before the session, and those that have reported nothing, since `_waited` began."""
        self._failed_early: Set[int] = set()
        """The ranks that were the first to fail before the session."""
        self._unheard: Set[int] = set()
        """The ranks that have reported nothing for too long."""
        self._failed: dict[int, None] = {}
        """The ranks that were seen to have failed, in that order; of one look, those first that have said so."""

    def status(self) -> int | None:
        """Return the status of the job, or None while it runs. Local.

        0: all ranks that have not failed have ended well. Another status: the job has failed, or all ranks have, or the
        live ranks wait for one that failed before the session.
        """
        if self._status is None:
            self._status = self._found()
            if self._status is not None:
                with contextlib.suppress(OSError):  # a full disk
                    (self._folder / ENDING).touch()
        return self._status

    def members(self) -> Set[int]:
        """Return the ranks that may run, at the last `status`, without those that have not come back so far. Local."""
        return self._members

    def is_any_here(self) -> bool:
        """Whether a rank runs on this host, as far as is known, without those that have not come back. Local."""
        return any(not system.has_ended(one) for rank, one in self._processes().items() if rank not in self._joining)

    def heard(self) -> set[int]:
        """Return the ranks that have reported anything so far. Local."""
        return self._notes.ranks("started") | self._notes.ranks("elsewhere")

    def is_ending(self, unreached: Collection[int] = ()) -> bool:
        """Whether a rank that has finished still runs, as its interpreter closes files. Local.

        `unreached`: the ranks whose hosts are not heard any more, which are not waited for.
        """
        finished = self._notes.ranks("finished")
        if self._notes.ranks("elsewhere") & finished - self._notes.ranks("ended") - set(unreached):
            return True
        return any(rank in finished and not system.has_ended(it) for rank, it in self._processes().items())

    def report_early_failures(self) -> None:
        """Print which ranks failed too early for the others to go on, if the job failed for that reason. Local."""
        if self._has_begun or self._notes.ranks("left") == self._all:
            return
        finished = self._notes.ranks("finished")
        _publish(self._failed_early - finished, "died before the session began")
        _publish(self._unheard, f"said nothing for {_CALL_S:.0f} s")

    def end(self) -> int:
        """Return the status of the job after the end of the starter, which is 0 although ranks have failed. Local.

        Prints a line if no rank is known to have ended well.
        """
        if self._status is not None:
            return self._status
        if self._notes.ranks("finished"):
            return 0
        if self.heard():
            say("malt run: no rank has ended well, as far as is known\n")
            return 1
        say(f"malt run: nothing was heard of any rank: {self._why()}\n")
        return int(not self._is_spread)

    def clean(self) -> None:
        """Remove what ranks left in /dev/shm. Call it after the end of the job. Local."""
        for left in shm_space.files_of(self._folder.name):
            left.unlink(missing_ok=True)

    def _why(self) -> str:
        if self._is_spread:
            return "how they ended is not known, as they cannot connect to this host"
        return f"they were killed, or cannot write to {self._folder.parent}"

    def _found(self) -> int | None:
        # A rank reports status-, then finished-, then closes its connection, and ends last. They are read in the
        # reverse order: a rank that is seen to have ended has reported everything by then.
        self._note_restarts()
        processes = self._processes()
        ended_here = {rank for rank, process in processes.items() if system.has_ended(process)}
        self._report_ended_here(processes.keys(), ended_here)
        ended = ended_here | self._notes.ranks("ended")
        finished = self._notes.ranks("finished")
        if statuses := self._notes.texts("status"):
            return _status(next(iter(statuses.values())))
        ready = self._notes.ranks("ready")
        has_begun = self._has_begun = self._has_begun or bool(ready)
        self._watch(processes, ended | finished, not has_begun)
        elsewhere = self._notes.ranks("elsewhere")
        failed = ended - finished
        self._note_failed(failed)
        known = processes.keys() | elsewhere
        expected = known if self._is_spread and not elsewhere else self._all  # ranks elsewhere may be unable to connect
        living = known - failed
        if known and not has_begun and self._are_missing_too_long(expected - living, known):
            return 1
        running = self._all - finished - failed - self._lost()
        self._joining = {rank for rank in running - ready if rank in self._incarnations}
        self._members = running - self._joining
        if self._members:  # else nobody is left whom a rank that was started again could join
            return None
        return 0 if finished else self._failed_with()

    def _note_restarts(self) -> None:
        """Forget what ranks that were started again have reported before."""
        self._notes.reread("again")
        for rank, text in dict(self._notes.texts("again")).items():
            if self._incarnations.get(rank) != (incarnation := _number(text)):
                self._incarnations[rank] = incarnation
                self._notes.forget(rank)
                self._failed.pop(rank, None)

    def _report_ended_here(self, here: Set[int], ended: Set[int]) -> None:
        """Report the incarnations of ranks of this host that have ended: of a rank that runs, the one before."""
        found = {rank: self._incarnations.get(rank, 0) - (rank not in ended) for rank in here}
        self.report_ended({rank: incarnation for rank, incarnation in found.items() if incarnation >= 0})

    def _lost(self) -> set[int]:
        """The ranks that others have marked failed, in their present incarnations."""
        if self._incarnations:
            self._notes.reread("lost")
        lost = self._notes.texts("lost")
        return {rank for rank, text in lost.items() if _number(text) == self._incarnations.get(rank, 0)}

    def _processes(self) -> dict[int, Process]:
        texts = self._notes.texts("started")
        return {rank: system.process(*map(int, text.split())) for rank, text in texts.items()}

    def _note_failed(self, failed: Set[int]) -> None:
        """Write down when each rank was first seen to have failed."""
        for rank in [*self._notes.texts("left"), *failed]:
            if rank in failed and rank not in self._failed:
                self._failed[rank] = None
                with contextlib.suppress(OSError):
                    (self._folder / f"failed-{rank}").touch()

    def _failed_with(self) -> int:
        """The status if no rank has ended well: that of the one that failed first. Of a killed one it is 1."""
        left = self._notes.texts("left")
        failed = [rank for rank in self._failed if left.get(rank) != "0"]  # the others have departed
        return _status(left.get(failed[0], "")) if failed else 1

    def _watch(self, processes: Mapping[int, Process], ended: Set[int], is_early: bool) -> None:
        """End the ranks that are stopped. In a session the ranks do it themselves, as long as one of them runs."""
        left = [process for rank, process in processes.items() if rank not in ended]
        patience_s = SUSPECT_AFTER_S if is_early else _ALL_STOPPED_S if all(map(system.is_stopped, left)) else None
        if len(self._all) == 1 or patience_s is None:  # nobody waits for a single rank: it may stay stopped
            self._watched = None
            return
        if self._watched != (processes, patience_s):
            self._watched = processes, patience_s
            self._monitor = ProcessMonitor(processes, time.monotonic, patience_s)
        self._monitor.find_failed()

    def _are_missing_too_long(self, missing: Set[int], known: Set[int]) -> bool:
        """Whether ranks of `missing` that have not come to the session have been missing for too long."""
        missing = missing - self._notes.ranks("came")
        failed, unheard = missing & known, missing - known
        if (failed, unheard) != self._missing:
            self._missing = failed, unheard
            self._waited.restart()
            self._failed_early = self._failed_early & failed or failed
        if self._waited.seconds() <= _CALL_S or not missing:
            return False
        self._unheard = set() if failed else unheard
        return True


class _Notes:
    """The files that ranks have written so far, also those removed since: old files in /tmp may be deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._texts: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def ranks(self, kind: str) -> set[int]:
        """Return the ranks (or statuses) in the names of the files of this kind, read anew."""
        return set(self.texts(kind))

    def texts(self, kind: str) -> dict[int, str]:
        """Return the texts of the files of this kind, by rank, as they were when first seen, the oldest file first."""
        with contextlib.suppress(OSError):
            fresh = filter(_NOTE.fullmatch, set(os.listdir(self._folder)) - self._seen)
            for path in sorted(map(self._folder.joinpath, fresh), key=written):
                self._see(path.name)
        return self._texts[kind]

    def reread(self, kind: str) -> None:
        """Read the files of this kind again at the next call: they may have been written more than once."""
        self._seen = {name for name in self._seen if not name.startswith(f"{kind}-")}

    def forget(self, rank: int) -> None:
        """Read the files of `rank` again, and only those that are there: it was started again."""
        for texts in self._texts.values():
            texts.pop(rank, None)
        self._seen = {name for name in self._seen if (found := _NOTE.fullmatch(name)) is None or int(found[2]) != rank}

    def _see(self, name: str) -> None:
        found = _NOTE.fullmatch(name)
        if found is not None:
            with contextlib.suppress(OSError):
                self._texts[found[1]][int(found[2])] = (self._folder / name).read_text(encoding="utf-8")
                self._seen.add(name)


def _status(text: str) -> int:
    """The status of a rank that has failed."""
    return _number(text) or 1


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _publish(ranks: Set[int], what: str) -> None:
    if ranks:
        s = "s" if len(ranks) > 1 else ""
        say(f"malt run: rank{s} {', '.join(map(str, sorted(ranks)))} {what}\n")
