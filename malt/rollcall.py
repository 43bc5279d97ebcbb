"""What the ranks of a job have said of themselves to the launcher, as files in its folder.

status-<n>       a rank has failed, and the job ends with status n
where they may die, also:
started-<rank>      its process, by number and start
calls-<process>     it goes into MPI_Init
begun-<rank>        it has come through MPI_Init
memory-<process>    files of /dev/shm that it has mapped
*-came-<rank>       it has come to the session (malt/muster.py)
ready-<process>     the session has begun for it
left-<rank>         it has failed, with a status, or ended before the others, with 0; they go on
finished-<rank>     it has ended well
lost-<rank>         the others go on without it

Ranks on other hosts say so over a connection (malt/reception.py). Of those that cannot call the launcher knows nothing,
and takes from mpiexec that they have ended.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Final

from dstorm import shared_memory, vitals
from dstorm.vitals import SUSPECT_AFTER_S, Process, Vitals

BAD_INPUT: Final = 2
"""The status of a program that was used wrongly: it would end alike the next time."""

_GRACE_S = 3.0
"""How long the others may take to get through MPI_Init after one has died: they may wait there for it for ever."""
_CALL_S = 60.0
"""How long they may take from there to the session, where one died before it did: some programs never begin one. Also
how long nothing may be heard of ranks on other hosts, which start at different times."""
_STANDING_S = 5.0
"""How long all who are left may stand still: there is nobody who would end them."""


def failed_with(folder: Path) -> int | None:
    """The status that a rank has failed with; None: none has."""
    statuses = (path.name.removeprefix("status-") for path in folder.glob("status-*"))
    return min((int(status) for status in statuses if status.isdecimal()), default=None)


def started(folder: Path) -> dict[int, Process]:
    """The processes of those ranks that have started."""
    found = {}
    for rank in _ranks(folder, "started"):
        number, began = (folder / f"started-{rank}").read_text().split()
        found[rank] = vitals.process(int(number), int(began))
    return found


class RollCall:
    """How a job ends whose ranks may die. `is_spread`: some of them may be on other hosts."""

    def __init__(self, folder: Path, ranks: int, is_spread: bool = False) -> None:
        self._folder, self._all, self._is_spread = folder, set(range(ranks)), is_spread
        self._status: int | None = None
        self._watched: tuple[Set[int], float] | None = None
        """Whom the launcher ends if they stand still for so long; None: nobody."""
        self._vitals = Vitals({}, time.monotonic)
        self._lacking: set[int] = set()
        self._lacking_since = 0.0
        self._died_early: set[int] = set()
        """Who was seen first to have ended before the session."""

    def status(self) -> int | None:
        """0: those who did not die have ended well; another: the job has failed, or nobody is left, or those who live
        wait for one that died too early; None: neither, yet."""
        if self._status is None:
            self._status = self._found()
        return self._status

    def is_ending(self) -> bool:
        """Whether a rank that has ended well still runs here: its interpreter closes files."""
        finished = _ranks(self._folder, "finished")
        return any(rank in finished and not vitals.has_ended(it) for rank, it in started(self._folder).items())

    def tell_who_died_early(self) -> None:
        """Where the job has failed: who died too early for the others to go on, if that was the reason."""
        early = self._died_early or self._lacking
        if early and not any(self._folder.glob("ready-*")) and set(_ranks(self._folder, "left")) != self._all:
            names = ", ".join(map(str, sorted(early)))
            print(f"malt run: rank {names} died before the session began", file=sys.stderr, flush=True)

    def end(self) -> int:
        """The status after mpiexec has ended with 0: another where ranks were heard of, and none has ended well."""
        known = {*_ranks(self._folder, "started"), *_ranks(self._folder, "elsewhere")}
        return int(self._is_spread and bool(known) and not _ranks(self._folder, "finished"))

    def clean(self) -> None:
        """Remove what ranks that have ended early left in /dev/shm, also Open MPI. Call it after the end of the job."""
        for path in self._folder.glob("memory-*"):
            for name in path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(OSError):
                    os.unlink(name)
        for left in shared_memory.files_of(self._folder.name):
            left.unlink(missing_ok=True)

    def _found(self) -> int | None:
        status = failed_with(self._folder)
        if status is not None:
            return status
        processes, finished = started(self._folder), set(_ranks(self._folder, "finished"))
        has_begun = any(self._folder.glob("ready-*"))
        elsewhere = set(_ranks(self._folder, "elsewhere"))
        gone = (self._gone(processes, finished, not has_begun) | set(_ranks(self._folder, "ended"))) - finished
        known = processes.keys() | elsewhere
        expected = known if self._is_spread and not elsewhere else self._all  # they may be where they cannot call
        living = known - gone - (finished if self._is_in_mpi() else set())
        if known and not has_begun and self._is_lacking(expected - living, known):
            return 1
        if finished | gone | set(_ranks(self._folder, "lost")) != self._all:
            return None
        return 0 if finished else self._failed_with()

    def _is_in_mpi(self) -> bool:
        """Whether a rank waits in MPI_Init for all others, as far as it has told."""
        return any(self._folder.glob("calls-*")) and not any(self._folder.glob("begun-*"))

    def _failed_with(self) -> int:
        """The status where nobody is left who has ended well. Input is bad only where all say so."""
        left = _left_with(self._folder)
        status = max(left, default=1) or 1
        return status if status != BAD_INPUT or left.count(status) == len(self._all) else 1

    def _gone(self, processes: Mapping[int, Process], finished: Set[int], is_early: bool) -> set[int]:
        """Who has ended. Once the session has begun its ranks see to those who stand still, while one of them runs."""
        ended = {rank for rank, process in processes.items() if vitals.has_ended(process)}
        left = [process for rank, process in processes.items() if rank not in ended | finished]
        patience_s = SUSPECT_AFTER_S if is_early else _STANDING_S if all(map(vitals.is_stopped, left)) else None
        if len(self._all) == 1 or patience_s is None:  # one that is alone stands still for whoever stopped it
            self._watched = None
        elif self._watched != (processes.keys(), patience_s):
            self._watched = processes.keys(), patience_s
            self._vitals = Vitals(processes, time.monotonic, patience_s)
        return ended if self._watched is None else set(self._vitals.gone())

    def _is_lacking(self, lacking: set[int], known: Set[int]) -> bool:
        """Whether those who do not live and have not come either have been lacking for too long."""
        lacking = lacking - set(_ranks(self._folder, "*-came"))
        if lacking != self._lacking:
            self._lacking, self._lacking_since = lacking, time.monotonic()
            self._died_early = self._died_early or lacking & known
        may_yet_come = any(self._folder.glob("begun-*")) or (self._is_spread and not lacking & known)
        grace_s = _CALL_S if may_yet_come else _GRACE_S
        return bool(lacking) and time.monotonic() - self._lacking_since > grace_s


def _ranks(folder: Path, kind: str) -> list[int]:
    """The ranks that have left a file of this kind."""
    words = (path.name.rpartition("-")[2] for path in folder.glob(f"{kind}-*"))
    return [int(word) for word in words if word.isdecimal()]


def _left_with(folder: Path) -> list[int]:
    texts = [(folder / f"left-{rank}").read_text() for rank in _ranks(folder, "left")]
    return [int(text) if text.isdecimal() else 1 for text in texts]
