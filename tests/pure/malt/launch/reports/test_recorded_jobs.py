"""What the events of jobs come to, in the order in which they were recorded, and in 1,000 others."""

import signal

import pytest
from job_contract import Job, check_job

from malt.launch.job import _notified, first_failure
from malt.launch.reports.job_state import JobState, ends_inside_mpi, failed_with
from malt.runner.events import Event, History, Kind

ORDERS = 1000
TRACE = "Traceback: ZeroDivisionError"
FAILED = f"\nmalt run: rank 1 failed:\n{TRACE}\n"
BOTH_FAILED = f"\nmalt run: ranks 0, 1 failed:\n{TRACE}\n"
FIRST = f"\nmalt run: rank 1, the first of 2 ranks, failed:\n{TRACE}\n"


MPI = {
    "all end well": Job((
        "0 started; 1418 inside; 1717 ready; 1730 finished; end",
        "53 started; 1055 inside; 1717 ready; 1732 finished; end",
    ), 0),
    "one raises": Job((
        "0 started; 1133 inside; 1689 ready", f"37 started; 1179 inside; 1684 ready; 1688 traceback={TRACE}; end",
    ), 1, FAILED, mpiexec=1),
    "both raise": Job((
        f"0 started; 915 inside; 1676 ready; 1683 traceback={TRACE}; end",
        f"23 started; 1189 inside; 1675 ready; 1730 traceback={TRACE}; end",
    ), 1, BOTH_FAILED, mpiexec=1),
    "both raise, each in its way": Job((
        "0 started; 915 inside; 1676 ready; 1730 traceback=another; end",
        f"23 started; 1189 inside; 1675 ready; 1683 traceback={TRACE}; end",
    ), 1, FIRST, mpiexec=1),
    "one exits with 3, another with 7": Job((
        "83 started; 1267 inside; 1737 ready; 1748 status=3; end",
        "0 started; 974 inside; 1730 ready; 1789 status=7; end",
    ), 3, mpiexec=7),
    "os._exit inside MPI": Job((
        "0 started; 1331 inside; 2325 ready; 2337 quit; 2338 inside=os._exit(0); end",
        "54 started; 1810 inside; 2323 ready; 2333 quit; 2336 inside=os._exit(0); end",
    ), 1, "malt run: ranks 0, 1 ended by os._exit(0) without MPI.Finalize(), which ends the job: let the program come "
          "to its end\n", mpiexec=9),
    "os._exit without MPI": Job(("0 started", "5 started; 6 quit; 7 status=5; end"), 5, mpiexec=5),
    "one ends by a library, then the other": Job((
        "0 started; 1185 inside; 1655 ready; end", "134 started; 1353 inside; 1656 ready; end",
    ), 1, "malt run: ranks 0, 1 ended, or one of them and then the others, without coming to the end of the program\n"),
    "SIGTERM": Job((
        "0 started; 1286 inside; 1691 ready; 2234 was at=rank 0 was in x.py, line 3; 2235 stopped",
        "95 started; 1411 inside; 1691 ready; 2234 stopped",
    ), 143, "malt run: ended by SIGTERM; rank 0 was in x.py, line 3\n", mpiexec=143),
    "on a full disk": Job(("0 started; 1133 inside", "37 started; 1688 status=@-1; end"), 1, mpiexec=1),
}  # fmt: skip
PLAIN = {
    "all end well": Job((
        "56 started; 1473 came; 1590 ready; 1603 finished; end", "0 started; 1579 came; 1596 ready; 1603 finished; end",
    ), 0),
    "one raises, the other goes on": Job((
        "0 started; 1100 came; 1196 ready; 1760 finished; end",
        f"22 started; 1184 came; 1196 ready; 1205 traceback={TRACE}; 1308 left=1; end",
    ), 0, FAILED),
    "one is killed": Job((
        "0 started; 1511 came; 1544 ready; 2019 finished; end", "7 started; 1533 came; 1546 ready; end",
    ), 0),
    "one departs": Job((
        "0 started; 1185 came; 1583 ready; 2441 finished; end", "125 started; 1576 came; 1590 ready; 1593 left=0; end",
    ), 0),
    "both exit": Job((
        "0 started; 1253 came; 1263 ready; 1266 left=3; end", "4 started; 1258 came; 1264 ready; 1573 left=4; end",
    ), 3),
    "one departs, the other fails": Job((
        "0 started; 1253 came; 1263 ready; 1266 left=0; end", "4 started; 1258 came; 1264 ready; 1573 left=4; end",
    ), 4),
    "one departs, the other is killed": Job((
        "0 started; 1185 came; 1583 ready; 1593 left=0; end", "125 started; 1576 came; 1590 ready; end",
    ), 1, "malt run: rank 1 ended without a word: killed, or by os._exit\n"),
    "both are killed": Job((
        "9 started; 713 came; 727 ready; end; 756 ended=137", "0 started; 660 came; 729 ready; end; 756 ended=137",
    ), 137, "malt run: ranks 0, 1 ended without a word: killed, or by os._exit\n"),
    "both are killed, and nobody can write down how": Job((
        "0 started; 1561 came; 1564 ready; end", "36 started; 1335 came; 1569 ready; end",
    ), 1, "malt run: ranks 0, 1 ended without a word: killed, or by os._exit\n"),
    "SIGINT": Job((
        "33 started; 1415 came; 1427 ready; 1991 was at=rank 0 was in x.py, line 3; end",
        "0 started; 1244 came; 1428 ready; end",
    ), 1, "malt run: ended by SIGINT; rank 0 was in x.py, line 3\n"),
    "both exit after the session": Job((
        "8 started; 1148 came; 1152 ready; 1160 status=4; 1161 finished; end",
        "0 started; 1143 came; 1154 ready; 1164 status=4; 1165 finished; end",
    ), 4),
    "one dies before the session, the other waits": Job(("34 started; 590 came", "0 started; 1 left=6; end"), 6,
        "malt run: rank 1 died before the session began\n"),
    "one says nothing, the other waits": Job(("34 started; 590 came",), 1, "malt run: rank 1 said nothing for 60 s\n"),
    "one is killed, and comes back": Job((
        "16 started; 586 came; 591 ready; 5912 finished; end",
        "0 started; 561 came; 593 ready; end; 5028 again=1; 5029 started; 5501 came; 5542 ready; 5911 finished; end",
    ), 0),
    "one comes back to nobody": Job((
        "16 started; 586 came; 591 ready; 912 finished; end",
        "0 started; 561 came; 593 ready; end; 5028 again=1; 5029 started; 5501 came",
    ), 0),
    "both fail, and one again": Job((
        "67 started; 685 came; 692 ready; 694 left=5; end",
        "0 started; 603 came; 694 ready; 695 left=2; end; 5028 again=1; 5029 started; 5501 left=3; end",
    ), 5),
    "one raises on another host": Job((
        "3 elsewhere; 931 ready; 1472 finished; 1645 ended",
        f"0 elsewhere; 927 ready; 970 traceback={TRACE}; 1036 left=1; 1052 ended",
    ), 0, FAILED, is_spread=True),
    "a host is lost": Job((
        "42 started; 940 ready; 9500 lost=@1; 9800 finished; end", "0 elsewhere; 941 ready",
    ), 0, is_spread=True),
    "a host is lost whose rank had come back": Job((
        "42 started; 940 ready; 1200 lost=0@1; 9500 lost=1@1; 9800 finished; end",
        "0 elsewhere; 941 ready; 983 ended; 5500 elsewhere; 5501 again=1; 6000 ready",
    ), 0, is_spread=True),
    "all fail on two hosts": Job((
        "42 started; 940 ready; 1300 left=7; end", "0 elsewhere; 941 ready; 1290 left=2; 1310 ended",
    ), 2, is_spread=True),
    "one ends by os._exit on another host, then the other fails": Job((
        "42 started; 940 ready; 1311 left=7; end", "0 elsewhere; 941 ready; 1290 ended; 1312 exited=0 5",
    ), 5, "malt run: rank 1 ended without a word: killed, or by os._exit\n", is_spread=True),
}  # fmt: skip
RECORDED = {**{f"MPI: {name}": job for name, job in MPI.items()}, **PLAIN}


class OfMpiexec:
    """How the launcher judges a job that an mpiexec starts."""

    def __init__(self, job):
        self._job, self._history = job, History()

    def take(self, one):
        self._history.take([one])

    def look(self, ended, at):
        return None  # it waits for mpiexec

    def end(self, ended, at):
        number = _number(self._job)
        status, inside = ends_inside_mpi(self._history, self._job.mpiexec)
        says = _notified(self._history, number) or first_failure(self._history)
        return failed_with(self._history) or status, ("" if number else inside) + says


class OfPlainProcesses:
    """How it judges one whose ranks may fail."""

    def __init__(self, job):
        self._job, self._history = job, History()
        self._state, self._status = JobState(self._history, 2, job.is_spread), None

    def take(self, one):
        self._history.take([one])

    def look(self, ended, at):
        if self._status is None:
            self._status = self._state.look(ended, 0.0, at)
        return self._status

    def end(self, ended, at):
        number = _number(self._job)
        status = self._state.look(ended, 61.0, at) if self._status is None else self._status
        status = self._state.settled(status)
        says = _notified(self._history, number) or first_failure(self._history)
        return status, (self._state.silent_failures() if status and number is None else "") + says


def _number(job):
    """The signal that has ended it, or None."""
    return next((number for number in (signal.SIGINT, signal.SIGTERM) if number.name in job.says), None)


@pytest.mark.parametrize("name", RECORDED)
def test_events_come_to_the_same_in_any_order(name):
    check_job(RECORDED[name], OfPlainProcesses if name in PLAIN else OfMpiexec, ORDERS // len(RECORDED) + 1)


@pytest.mark.parametrize(("incarnation", "status"), [(0, 1), (1, 5)])
def test_the_status_of_a_process_that_was_replaced_does_not_count(incarnation, status):
    events = [
        *((kind, "") for kind in (Kind.ELSEWHERE, Kind.READY, Kind.ENDED)), (Kind.AGAIN, "1"), (Kind.READY, ""),
        (Kind.EXITED, f"{incarnation} 5"), (Kind.ENDED, ""),
    ]  # fmt: skip
    history = History()
    history.take([Event(kind, 0, text, at) for at, (kind, text) in enumerate(events)])
    assert JobState(history, 1, is_spread=True).look(set(), 0.0, len(events)) == status
