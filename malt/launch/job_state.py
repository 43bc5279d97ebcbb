"""What the ranks of a job have said of themselves to the launcher, as files in its folder.

status-<n>       a rank has failed, and the job ends with status n
inside-<rank>    where they may not die: it has loaded MPI, and not come to the end of its program
started-<rank>, finished-<rank>, and what malt/launch/departure.py tells of
where they may die, also:
started-<rank>      its process, by number and start
calls-<process>     it goes into MPI_Init
begun-<rank>        it has come through MPI_Init
memory-<process>    files of /dev/shm that it has mapped
*-came-<rank>       it has come to the session (malt/resilience/rendezvous.py)
ready-<process>     the session has begun for it
left-<rank>         it has failed, with a status, or ended before the others, with 0; they go on
finished-<rank>     it has ended well
lost-<rank>         the others go on without it

Ranks on other hosts say so over a connection (malt/launch/control.py). Of those that cannot call the launcher knows
nothing, and takes from mpiexec that they have ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

from dstorm.membership import processes as vitals
from dstorm.membership.processes import SUSPECT_AFTER_S, Process, ProcessMonitor
from dstorm.transports import shm_space

BAD_INPUT: Final = 2
"""The status of a program that was used wrongly: it would end alike the next time."""

_GRACE_S = 3.0
"""How long the others may take to get through MPI_Init after one has died: they may wait there for it for ever."""
_CALL_S = 60.0
"""How long they may take from there to the session, where one died before it did: some programs never begin one. Also
how long nothing may be heard of a rank: where it is slow to start it has not died."""
_LOOK_S = 1.0
"""The longest time that counts from one look to the next: the launcher itself may have been stopped (Ctrl-Z)."""
_STANDING_S = 5.0
"""How long all who are left may stand still: there is nobody who would end them."""

_NOTE = re.compile(
    r"(?:.+-(?=came-))?(status|started|calls|begun|memory|came|ready|left|finished|lost|elsewhere|ended)-(\d+)"
)


def failed_with(folder: Path) -> int | None:
    """The status that a rank has failed with; None: none has."""
    statuses = (path.name.removeprefix("status-") for path in folder.glob("status-*"))
    return min((int(status) for status in statuses if status.isdecimal()), default=None)


def started(folder: Path) -> dict[int, Process]:
    """The processes of those ranks that have started."""
    found = {}
    for rank in ranks_with(folder, "started"):
        with contextlib.suppress(OSError):  # removed, as old files of /tmp are
            number, began = (folder / f"started-{rank}").read_text().split()
            found[rank] = vitals.process(int(number), int(began))
    return found


def report_ends_inside_mpi(folder: Path, status: int) -> tuple[int, bool]:
    """The status of a job whose ranks may not die, once mpiexec has ended with `status`: not 0 where ranks ended
    without MPI_Finalize; and whether they were told. MPICH's ends the others then, and calls that a good end."""
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
        status = 1  # MPICH's may also return that of those that it has killed
    return status or int(bool(reports)), bool(by_name)


class JobState:
    """How a job ends whose ranks may die. `is_spread`: some of them may be on other hosts."""

    def __init__(self, folder: Path, ranks: int, is_spread: bool = False) -> None:
        self._notes, self._all, self._is_spread = _Notes(folder), set(range(ranks)), is_spread
        self._folder = folder
        self._status: int | None = None
        self._watched: tuple[Set[int], float] | None = None
        """Whom the launcher ends if they stand still for so long; None: nobody."""
        self._monitor = ProcessMonitor({}, time.monotonic)
        self._looked, self._waited_s = time.monotonic(), 0.0
        self._missing_files: tuple[Set[int], Set[int]] = set(), set()
        """Who has ended before the session, and who was not heard of; `_waited_s`: how long it has been those."""
        self._failed_early: Set[int] = set()
        """Who was seen first to have ended before the session."""
        self._unheard: Set[int] = set()
        """Of whom nothing was heard for too long."""

    def status(self) -> int | None:
        """0: those who did not die have ended well; another: the job has failed, or nobody is left, or those who live
        wait for one that died too early; None: neither, yet."""
        if self._status is None:
            self._status = self._found()
        return self._status

    def is_ending(self) -> bool:
        """Whether a rank that has ended well still runs here: its interpreter closes files."""
        finished = self._notes.ranks("finished")
        return any(rank in finished and not vitals.has_ended(it) for rank, it in self._processes().items())

    def report_early_failures(self) -> None:
        """Where the job has failed: who died too early for the others to go on, if that was the reason."""
        if self._notes.ranks("ready") or self._notes.ranks("left") == self._all:
            return
        finished = self._notes.ranks("finished")
        _publish(self._failed_early - finished, "died before the session began")
        _publish(self._failed_early & finished, "ended while the others waited for it in MPI_Init")
        _publish(self._unheard, f"said nothing for {_CALL_S:.0f} s")

    def end(self) -> int:
        """The status after mpiexec has ended with 0: that is also what it says of ranks that were killed."""
        if self._status is not None:
            return self._status
        if self._notes.ranks("finished"):
            return 0
        if self._notes.ranks("started") | self._notes.ranks("elsewhere"):
            print("malt run: no rank has ended well, as far as is known", file=sys.stderr, flush=True)
            return 1
        print(f"malt run: nothing was heard of any rank: {self._why()}", file=sys.stderr, flush=True)
        return int(not self._is_spread)

    def clean(self) -> None:
        """Remove what ranks that have ended early left in /dev/shm, also Open MPI. Call it after the end of the job."""
        self._notes.look_again("memory")
        for text in self._notes.texts("memory").values():
            for name in text.splitlines():
                with contextlib.suppress(OSError):
                    os.unlink(name)
        for left in shm_space.files_of(self._folder.name):
            left.unlink(missing_ok=True)

    def _why(self) -> str:
        if self._is_spread:
            return "how they ended is not known, as they cannot connect to this host"
        return f"they were killed, or cannot write to {self._folder.parent}"

    def _found(self) -> int | None:
        # A rank says how it ends, then ends; and it says status- before finished-, and that before its connection
        # ends. So these are read the other way round: whoever is seen to have ended has said all by then.
        processes = self._processes()
        ended = {rank for rank, process in processes.items() if vitals.has_ended(process)} | self._notes.ranks("ended")
        finished = self._notes.ranks("finished")
        statuses = self._notes.ranks("status")
        if statuses:
            return min(statuses)
        has_begun = bool(self._notes.ranks("ready"))
        self._watch(processes, ended | finished, not has_begun)
        elsewhere = self._notes.ranks("elsewhere")
        find_failed = ended - finished
        known = processes.keys() | elsewhere
        expected = known if self._is_spread and not elsewhere else self._all  # they may be where they cannot call
        living = known - find_failed - (finished if self._is_in_mpi() else set())
        if known and not has_begun and self._is_missing(expected - living, known):
            return 1
        if finished | find_failed | self._notes.ranks("lost") != self._all:
            return None
        return 0 if finished else self._failed_with()

    def _processes(self) -> dict[int, Process]:
        texts = self._notes.texts("started")
        return {rank: vitals.process(*map(int, text.split())) for rank, text in texts.items()}

    def _is_in_mpi(self) -> bool:
        """Whether a rank waits in MPI_Init for all others, as far as it has told."""
        return bool(self._notes.ranks("calls")) and not self._notes.ranks("begun")

    def _failed_with(self) -> int:
        """The status where nobody is left who has ended well. Input is bad only where all say so."""
        left = [int(text) if text.isdecimal() else 1 for text in self._notes.texts("left").values()]
        status = max(left, default=1) or 1
        return status if status != BAD_INPUT or left.count(status) == len(self._all) else 1

    def _watch(self, processes: Mapping[int, Process], ended: Set[int], is_early: bool) -> None:
        """End those who stand still. Once the session has begun its ranks do, while one of them runs."""
        left = [process for rank, process in processes.items() if rank not in ended]
        patience_s = SUSPECT_AFTER_S if is_early else _STANDING_S if all(map(vitals.is_stopped, left)) else None
        if len(self._all) == 1 or patience_s is None:  # one that is alone stands still for whoever stopped it
            self._watched = None
            return
        if self._watched != (processes.keys(), patience_s):
            self._watched = processes.keys(), patience_s
            self._monitor = ProcessMonitor(processes, time.monotonic, patience_s)
        self._monitor.find_failed()

    def _is_missing(self, missing: Set[int], known: Set[int]) -> bool:
        """Whether those who do not live and have not come either have been lacking for too long."""
        missing = missing - self._notes.ranks("came")
        failed, unheard = missing & known, missing - known
        now = time.monotonic()
        self._waited_s += min(now - self._looked, _LOOK_S)
        self._looked = now
        if (failed, unheard) != self._missing_files:
            self._missing_files, self._waited_s = (failed, unheard), 0.0
            self._failed_early = self._failed_early & failed or failed
        patience_s = _GRACE_S if failed and not self._notes.ranks("begun") else _CALL_S
        if not missing or self._waited_s <= patience_s:
            return False
        self._unheard = set() if failed else unheard
        return True


class _Notes:
    """What the ranks have left in the folder so far, also what was removed since: /tmp may be cleaned of old files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._texts: defaultdict[str, dict[int, str]] = defaultdict(dict)

    def ranks(self, kind: str) -> set[int]:
        """The ranks (or statuses, or processes) that files of this kind name, all that are there now included."""
        return set(self.texts(kind))

    def texts(self, kind: str) -> dict[int, str]:
        """What files of this kind said when they were seen first."""
        with contextlib.suppress(OSError):
            for name in set(os.listdir(self._folder)) - self._seen:
                self._see(name)
        return self._texts[kind]

    def look_again(self, kind: str) -> None:
        """For files that are written more than once."""
        self._seen = {name for name in self._seen if not name.startswith(f"{kind}-")}

    def _see(self, name: str) -> None:
        found = _NOTE.fullmatch(name)
        if found is not None:
            with contextlib.suppress(OSError):
                self._texts[found[1]][int(found[2])] = (self._folder / name).read_text(encoding="utf-8")
                self._seen.add(name)


def _publish(ranks: Set[int], what: str) -> None:
    if ranks:
        s = "s" if len(ranks) > 1 else ""
        print(f"malt run: rank{s} {', '.join(map(str, sorted(ranks)))} {what}", file=sys.stderr, flush=True)


def ranks_with(folder: Path, kind: str) -> set[int]:
    """The ranks that have left a file of this kind."""
    words = (path.name.rpartition("-")[2] for path in folder.glob(f"{kind}-*"))
    return {int(word) for word in words if word.isdecimal()}
