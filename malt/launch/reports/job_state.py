"""The job state: how a job ends, as what is reported of its ranks says (malt/runner/events.py). Pure."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import Final

from malt.runner.events import History, Kind, number

BAD_INPUT: Final = 2
"""The status of a program whose arguments or input are wrong. A restart would end alike."""

_CALL_S = 60.0
"""How long the others may take to the session, if a rank failed before it: some programs never begin one. Also how long
a rank may take to start."""


def failed_with(reports: History) -> int | None:
    """Return the status of the rank that failed first, as far as ranks have reported that; else None."""
    return next((number(one.text) or 1 for one in reports.of(Kind.STATUS)), None)


def ends_inside_mpi(reports: History, status: int) -> tuple[int, str]:
    """Return the status of a job where no rank may fail, and a line on the ranks that ended without MPI_Finalize.

    `status`: that of mpiexec. MPICH's ends the other ranks in such a case, and returns 0. The status is not 0 if there
    are such ranks. The line is empty without any; and where it is not known how they ended, but that they failed.
    """
    inside = reports.texts(Kind.INSIDE)
    by_name = {rank: how for rank, how in inside.items() if how}
    line = ""
    if by_name:
        how = " and ".join(sorted(set(by_name.values())))
        why = f"ended by {how} without MPI.Finalize(), which ends the job: let the program come to its end"
        line = _line(by_name, why)
    elif status == 0:
        line = _line(inside, "ended, or one of them and then the others, without coming to the end of the program")
    if set(by_name.values()) == {"os._exit(0)"}:
        status = 1  # MPICH's may return the status of the ranks that it has killed
    return status or int(bool(inside)), line


class JobState:
    """The state of a job that begins with so many `ranks`, which may fail. `reports`: of them. Both may become more.

    `is_spread`: some ranks may be on other hosts. Those report over a connection. If they cannot connect, nothing is
    known of them until the starter ends. `least`: where fewer are alive in a session, the job has failed.
    """

    def __init__(self, reports: History, ranks: int, is_spread: bool = False, least: int = 1) -> None:
        self._reports, self._all, self._is_spread, self._least = reports, set(range(ranks)), is_spread, least
        self.members: Set[int] = self._all
        """The ranks that may run, at the last look, without those that have not come back so far."""
        self.joining: Set[int] = set()
        """Those: they were started again, and have not come to the session."""
        self.has_begun = False
        """Whether a session has begun."""
        self.failed: dict[tuple[int, int], int] = {}
        """When each rank and incarnation has failed, as far as it was seen, in nanoseconds of the clock of events."""
        self._missing: tuple[Set[int], Set[int]] = set(), set()
        """The ranks that failed before the session, and those that have reported nothing, since `_since_s`."""
        self._since_s = 0.0
        self._failed_early: Set[int] = set()
        """The ranks that were the first to fail before the session."""
        self._has_too_few = False
        """Whether fewer ranks than `least` are alive, or have ended well."""
        self._unheard: Set[int] = set()
        """The ranks that have reported nothing for too long."""

    def look(self, ended_here: Set[int], now_s: float, at: int) -> int | None:
        """Return the status of the job, or None while it runs.

        0: all ranks that have not failed have ended well. Another status: the job has failed, or all ranks have, or the
        live ranks wait for one that failed before the session.

        `ended_here`: the ranks of this host whose processes have ended. All that these have reported is known. `now_s`:
        for how long the launcher has looked. `at`: the time now, in nanoseconds of the clock of events.
        """
        reports = self._reports
        if (status := failed_with(reports)) is not None:
            return status
        finished, ready, elsewhere = map(reports.ranks, (Kind.FINISHED, Kind.READY, Kind.ELSEWHERE))
        failed = (ended_here | reports.ranks(Kind.ENDED)) - finished
        self.has_begun = self.has_begun or bool(ready)
        self._note(failed, at)
        known = reports.ranks(Kind.STARTED) | elsewhere
        self._all |= known
        expected = known if self._is_spread and not elsewhere else self._all  # ranks elsewhere may be unable to connect
        if known and not self.has_begun and self._are_missing_too_long(expected - (known - failed), known, now_s):
            return self._failed_with()
        running = self._all - finished - failed - self._lost()
        self.joining = (running - ready) & reports.ranks(Kind.AGAIN)
        self.members = running - self.joining
        self._has_too_few = self.has_begun and len(self.members | finished) < self._least
        if self.members and not self._has_too_few:  # else nobody is left whom a rank that was started again could join
            return None
        return 0 if finished and not self._has_too_few else self._failed_with()

    def ends_here(self, ended_here: Set[int]) -> dict[int, int]:
        """Return the incarnations of ranks of this host that have ended: of a rank that runs, the one before."""
        last = {rank: self._incarnation(rank) - (rank not in ended_here) for rank in self._reports.ranks(Kind.STARTED)}
        return {rank: incarnation for rank, incarnation in last.items() if incarnation >= 0}

    def heard(self) -> set[int]:
        """Return the ranks that have reported anything so far."""
        return self._reports.ranks(Kind.STARTED) | self._reports.ranks(Kind.ELSEWHERE)

    def closing(self, ended_here: Set[int], unreached: Collection[int] = ()) -> set[int]:
        """Return the ranks that have finished and still run, as their interpreters close files.

        `unreached`: the ranks whose hosts are not heard any more, which are not waited for.
        """
        here, reports = self._reports.ranks(Kind.STARTED) - ended_here, self._reports
        elsewhere = reports.ranks(Kind.ELSEWHERE) - reports.ranks(Kind.ENDED) - set(unreached)
        return reports.ranks(Kind.FINISHED) & (here | elsewhere)

    def silent_failures(self) -> str:
        """Return lines that say which ranks have failed without a word, where no other went on after that."""
        left = self._reports.ranks(Kind.LEFT)
        if self._has_too_few and self.members:
            return f"malt run: fewer ranks are alive than --elastic asks for: {len(self.members)} of {self._least}\n"
        if self.has_begun:
            is_any_well = bool(self.members or self._reports.ranks(Kind.FINISHED))
            silent = set() if is_any_well else {rank for rank, _ in self.failed} - left
            return _line(silent, "ended without a word: killed, or by os._exit")
        if left == self._all:
            return ""
        early = self._failed_early - self._reports.ranks(Kind.FINISHED)
        return _line(early, "died before the session began") + _line(self._unheard, f"said nothing for {_CALL_S:.0f} s")

    def settled(self, status: int) -> int:
        """Return the status of a job that has ended with `status`, once all is known of its ranks of this host.

        Where all have failed, its starter may have said since how the first of them has.
        """
        have_failed = not self.members and not self._reports.ranks(Kind.FINISHED)
        return self._failed_with() if have_failed and failed_with(self._reports) is None else status

    def end(self, place: str) -> tuple[int, str]:
        """Return the status after the end of the starter, which is 0 although ranks have failed, and a line on that.

        The line is empty where a rank is known to have ended well. `place`: where the folder of the job is.
        """
        if self._reports.ranks(Kind.FINISHED):
            return 0, ""
        if self.heard():
            return 1, "malt run: no rank has ended well, as far as is known\n"
        return 1, f"malt run: nothing was heard of any rank: they were killed, or cannot write to {place}\n"

    def _incarnation(self, rank: int) -> int:
        """Return the number of times that a rank was restarted."""
        again = self._reports.get(Kind.AGAIN, rank)
        return number(again.text) if again else 0

    def _lost(self) -> set[int]:
        """The ranks that others have marked failed, in their present incarnations."""
        lost = self._reports.texts(Kind.LOST)
        return {rank for rank, text in lost.items() if number(text) == self._incarnation(rank)}

    def _note(self, failed: Set[int], at: int) -> None:
        """Note when each rank has failed: as it has said, or as that was seen first."""
        for rank in failed:
            said = self._reports.get(Kind.LEFT, rank) or self._reports.get(Kind.ENDED, rank)
            self.failed.setdefault((rank, self._incarnation(rank)), said.at if said else at)

    def _failed_with(self) -> int:
        """The status of the rank that failed first. Where it is not known, and where none has, it is 1."""
        left, ended = self._reports.texts(Kind.LEFT), self._reports.texts(Kind.ENDED)
        present = {rank: self._incarnation(rank) for rank in self._all}
        failed = sorted((at, rank) for (rank, life), at in self.failed.items() if present[rank] == life)
        first = next((rank for _, rank in failed if left.get(rank) != "0"), None)  # the others have departed
        return 1 if first is None else number(left.get(first) or ended.get(first) or self._exited(first)) or 1

    def _exited(self, rank: int) -> str:
        """The status with which the present incarnation of a rank on another host has failed, or ""."""
        said = self._reports.get(Kind.EXITED, rank)
        incarnation, _, status = said.text.partition(" ") if said else ("", "", "")
        return status if number(incarnation) == self._incarnation(rank) else ""

    def _are_missing_too_long(self, missing: Set[int], known: Set[int], now_s: float) -> bool:
        """Return whether ranks of `missing` that have not come to the session have been missing for too long."""
        missing = missing - self._reports.ranks(Kind.CAME)
        failed, unheard = missing & known, missing - known
        if (failed, unheard) != self._missing:
            self._missing, self._since_s = (failed, unheard), now_s
            self._failed_early = self._failed_early & failed or failed
        if now_s - self._since_s <= _CALL_S or not missing:
            return False
        self._unheard = set() if failed else unheard
        return True


def _line(ranks: Collection[int], what: str) -> str:
    s = "s" if len(ranks) > 1 else ""
    return f"malt run: rank{s} {', '.join(map(str, sorted(ranks)))} {what}\n" if ranks else ""
