"""How a job ends whose ranks may fail, by the events in its folder."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from itertools import combinations_with_replacement
from pathlib import Path
from unittest import mock

import pytest
from reported import add

from dstorm.membership.processes import this_process
from dstorm.transports import shm_space
from malt.launch.hosts.agent.watch import clean
from malt.launch.reports.follower import Follower
from malt.launch.reports.job_state import ends_inside_mpi
from malt.launch.streams.display import say
from malt.runner.events import Stream
from malt.watch import processes as watched


@pytest.fixture
def ended():
    """A process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return f"{child.pid} {here().split()[1]}"


@pytest.fixture
def stopped(tmp_path):
    """A process that is stopped, as rank 0."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        began = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        add(tmp_path, "started-0", f"{child.pid} {began}")
        child.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED | os.WNOWAIT)
        yield child
    finally:
        child.kill()
        child.wait()


def is_alive(child):
    """Whether the process is alive, also a moment from now: a kill takes a moment."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
    return child.poll() is None


def here():
    """This process, as a rank reports it."""
    return f"{this_process().number} {this_process().started}"


@pytest.fixture
def patience(monkeypatch):
    """The clock of the launcher, which the test moves."""

    class Clock:
        now = 100.0

        def pass_(self, seconds, state=None):
            """Let time pass; `state` is read every half second, if it is given."""
            end = self.now + seconds
            while state is not None and self.now < end - 0.5 and state.status() is None:
                self.now += 0.5
            self.now = end

    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    return clock


STORIES = {
    "ranks that come later are waited for": """
        started-0 HERE, finished-0, started-1 HERE, finished-1, started-2 HERE, ready-2 -> None
        finished-2 -> 0""",
    "a loss that is reported late does not undo that of a later incarnation": """
        elsewhere-0, ready-0, elsewhere-1, ready-1, again-1 10, ready-1, lost-1 10, lost-1 9 -> None
        finished-0 -> 0""",
    "a failure before the session is reported once the others do not come": """
        started-0 HERE, started-1 ENDED -> None
        50 s -> None
        11 s -> 1: malt run: rank 1 died before the session began""",
    "a rank that had come is not waited for": """
        started-0 HERE, started-1 ENDED, came-1 -> None
        61 s -> None""",
    "in a session no rank is waited for": """
        started-0 HERE, started-1 ENDED, ready-100 -> None
        61 s -> None""",
    "a rank that never starts is reported": """
        started-0 HERE -> None
        59 s -> None
        2 s -> 1: malt run: rank 1 said nothing for 60 s""",
    "time while the launcher is stopped does not count": """
        started-0 HERE -> None
        1000 s, stopped -> None""",
    "files that are cleaned away, after some days in /tmp, are remembered": """
        left-1 3, started-0 HERE, started-1 ENDED, ready-100 -> None
        cleaned away, 70 s -> None
        finished-0 -> 0""",
    "hosts may start one after another": """
        started-0 HERE, elsewhere-2 -> None
        50 s -> None
        11 s -> 1: malt run: rank 1 said nothing for 60 s""",
    "of a rank that was started again the present incarnation is lost": """
        elsewhere-0, elsewhere-1, finished-0, again-1 1, ready-1 -> None
        lost-1, lost-1 0 -> None
        lost-1 1 -> 0""",
    "the status is that of the rank that failed first, of those that were not started again": """
        started-0 HERE, started-1 ENDED, ready-0, ready-1, left-1 2 -> None
        again-1 1, started-1 HERE, ready-1 -> None
        left-0 5, started-0 ENDED -> None
        left-1 3, started-1 ENDED -> 5""",
    "it goes on where one that was started again has a session":
        "started-0 ENDED, started-1 ENDED, again-1 1, started-1 HERE, ready-1 -> None",
}  # fmt: skip
"""What is reported and what happens, and the status that the launcher finds then. HERE and ENDED are processes.

What other events come to: test_recorded_jobs.py.
"""


@pytest.mark.parametrize("name", STORIES)
def test_how_a_job_ends(name, tmp_path, ended, patience):
    follower = Follower(Stream(tmp_path), 3 if "-2" in STORIES[name] else 2, is_spread="elsewhere" in STORIES[name])
    for line in map(str.strip, STORIES[name].strip().splitlines()):
        happens, _, found = line.partition(" -> ")
        for event in happens.split(", "):
            kind, _, text = event.partition(" ")
            if text == "s":
                patience.pass_(int(kind), None if "stopped" in happens else follower)
            elif event == "cleaned away":
                for path in tmp_path.glob("*-*"):
                    path.unlink()
            elif event != "stopped":
                add(tmp_path, kind, {"HERE": here(), "ENDED": ended}.get(text, text))
        status, _, says = found.partition(": ")
        assert str(follower.status()) == status, line
        assert (tmp_path / "ending").exists() == (status != "None")
        assert follower.state.silent_failures().strip() == says or not says


@pytest.mark.parametrize(("least", "finished", "left", "status"), [
    (2, [], [], 1), (1, [], [], None), (2, [0], [], None), (1, [], ["0"], None),
])  # fmt: skip
def test_a_job_has_failed_once_fewer_ranks_are_alive_than_it_must_have(
    least, finished, left, status, tmp_path, ended, capsys
):
    """Those count that have ended well; not those that have left, as the job shrank."""
    for rank in range(3):
        add(tmp_path, f"started-{rank}", ended if rank else here())
        add(tmp_path, f"ready-{rank}")
    add(tmp_path, "started-1", here() if finished else ended)
    for rank in finished:
        add(tmp_path, f"finished-{rank}")
    for text in left:
        add(tmp_path, "left-1", text)
    follower = Follower(Stream(tmp_path), 2, least=least)
    assert follower.status() == status
    line = "malt run: fewer ranks are alive than --elastic asks for: 1 of 2\n"
    assert follower.state.silent_failures() == (line if status else follower.state.silent_failures())


def test_a_rank_that_is_alone_may_stay_stopped(tmp_path, stopped, patience):
    state = Follower(Stream(tmp_path), 1)
    for _ in range(3):
        assert state.status() is None
        patience.pass_(10, state)
    assert is_alive(stopped)


def test_a_rank_that_was_killed_first_counts_as_the_first(tmp_path, ended):
    state = Follower(Stream(tmp_path), 2)
    for name, text in {"started-0": ended, "started-1": here(), "ready-0": "", "ready-1": ""}.items():
        add(tmp_path, name, text)
    assert state.status() is None
    add(tmp_path, "left-1", "2")
    with mock.patch.object(watched, "has_ended", return_value=True):
        assert state.status() == 1


@pytest.mark.parametrize(("ready", "another"), [(False, False), (True, False), (True, True)])
def test_a_stopped_rank_is_killed_if_no_other_rank_would(tmp_path, stopped, ended, patience, ready, another):
    """Before the session; in it, if no other rank runs."""
    add(tmp_path, "started-1", here() if another else ended)
    add(tmp_path, "came-1", "session 1")
    if ready:
        add(tmp_path, "ready-1")
    state = Follower(Stream(tmp_path), 2)
    assert state.status() is None
    patience.pass_(3, state)
    assert state.status() is None
    if ready:
        assert is_alive(stopped)
        patience.pass_(3, state)
        assert state.status() is None
    if another:
        assert is_alive(stopped)
    else:
        assert stopped.wait(10) == -signal.SIGKILL
        assert state.status() == 1


def test_a_rank_stopped_before_the_session_has_its_time_anew_in_it(tmp_path, stopped, ended, patience):
    add(tmp_path, "started-1", ended)
    add(tmp_path, "came-1", "session 1")
    state = Follower(Stream(tmp_path), 2)
    assert state.status() is None
    patience.pass_(1, state)
    add(tmp_path, "ready-1")
    for _ in range(2):
        assert state.status() is None
        patience.pass_(3, state)
    assert is_alive(stopped)
    assert state.status() is None
    assert stopped.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("reports", "unreached", "is_ending"),
    [((), (), True), (("ended-1",), (), False), ((), (1,), False), (("ended-1",), (1,), False)],
)
def test_a_rank_elsewhere_that_has_finished_closes_files_until_it_has_ended(tmp_path, reports, unreached, is_ending):
    """Where its host is not heard of, it is not waited for."""
    for name in ("elsewhere-0", "elsewhere-1", "finished-1", *reports):
        add(tmp_path, name)
    assert Follower(Stream(tmp_path), 2, is_spread=True).is_ending(unreached) == is_ending


def test_what_a_session_left_in_memory_is_removed(tmp_path):
    path = shm_space.file_of(tmp_path.name + "-a-job", "session-1")
    path.write_text("")
    folder = tmp_path / (tmp_path.name + "-a-job")
    folder.mkdir()
    clean(str(folder))
    assert not path.exists()


ENDS = {
    "well": (["finished-0", "its end"], 0),
    "well, on another host": (["finished-0", "ended-0"], 0),
    "with a status that all share": (["status-0", "finished-0", "its end"], 4),
    "with a status that all share, on another host": (["status-0", "finished-0", "ended-0"], 4),
    "by itself": (["left-0", "its end"], 4),
}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("has_begun", [True, False])
def test_a_rank_may_end_at_any_moment_while_the_launcher_reads(how, has_begun, tmp_path, monkeypatch, capsys):
    """Every schedule: what the rank does comes between any two reads of the launcher."""
    doings, status = ENDS[how]
    elsewhere = "ended-0" in doings
    for number, moments in enumerate(combinations_with_replacement(range(7), len(doings))):
        folder = tmp_path / str(number)
        folder.mkdir()
        add(folder, "elsewhere-0" if elsewhere else "started-0", here())
        if has_begun:
            add(folder, "ready-100")
        left, reads = list(zip(moments, doings, strict=True)), 0

        def read(left=left, folder=folder):
            nonlocal reads
            while left and left[0][0] <= reads:
                doing = left.pop(0)[1]
                if doing != "its end":
                    add(folder, doing, "4")
            reads += 1

        real = Stream.fresh
        with monkeypatch.context() as patched:
            patched.setattr(Stream, "fresh", lambda self: (read(), real(self)))  # noqa: B023
            patched.setattr(watched, "has_ended", lambda process: (read(), not left)[1])  # noqa: B023
            state = Follower(Stream(folder), 1, is_spread=elsewhere)
            assert state.status() in (None, status), moments
            reads = 7
            assert state.status() == status, moments
            say(state.state.silent_failures())
        assert capsys.readouterr().err == ""


def test_a_rank_that_was_wrongly_found_ended_is_not_reported(tmp_path, monkeypatch, capsys):
    for rank in (0, 1):
        add(tmp_path, f"started-{rank}", here())
    state = Follower(Stream(tmp_path), 2)
    with monkeypatch.context() as patched:
        patched.setattr(watched, "has_ended", lambda process: True)
        add(tmp_path, "finished-0")
        assert state._look() == 0
    assert state.status() is None
    add(tmp_path, "status-1", "1")
    assert state.status() == 1
    say(state.state.silent_failures())
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("names", "is_spread", "status", "line"),
    [
        ([], False, 1, "malt run: nothing was heard of any rank: they were killed, or cannot write to "),
        ([], True, 1, "malt run: nothing was heard of any rank: they were killed, or cannot write to "),
        (["started-0"], False, 1, "malt run: no rank has ended well, as far as is known"),
        (["elsewhere-0"], True, 1, "malt run: no rank has ended well, as far as is known"),
        (["finished-0"], False, 0, ""),
    ],
)
def test_status_0_of_mpiexec_is_checked(names, is_spread, status, line, tmp_path, capsys):
    for name in names:
        add(tmp_path, name, here())
    assert Follower(Stream(tmp_path), 2, is_spread).end() == status
    reports = capsys.readouterr().err
    assert reports.startswith(line) and reports.count("\n") == bool(line)


def test_ranks_that_cannot_connect_are_left_to_mpiexec(tmp_path, patience):
    state = Follower(Stream(tmp_path), 2, is_spread=True)
    add(tmp_path, "started-0", here())
    for seconds in (1, 100):
        assert state.status() is None
        patience.pass_(seconds, state)
    assert state.status() is None and state.end() == 1


def test_if_all_end_by_themselves_none_failed_early(tmp_path, ended):
    for rank in (0, 1):
        add(tmp_path, f"left-{rank}", "3")
        add(tmp_path, f"started-{rank}", ended)
    state = Follower(Stream(tmp_path), 2)
    assert state.status() == 3 and state.state.silent_failures() == ""


def test_a_rank_that_has_ended_well_may_take_time_to_close_files(tmp_path, ended):
    state = Follower(Stream(tmp_path), 2)
    for name, text in {"started-0": here(), "started-1": ended, "finished-1": ""}.items():
        add(tmp_path, name, text)
    assert state.status() is None and not state.is_ending()
    add(tmp_path, "finished-0")
    assert state.is_ending()


@pytest.mark.parametrize(
    ("inside", "mpiexec", "status", "line"),
    [
        ({}, 0, 0, ""),
        ({0: "", 1: ""}, 9, 9, ""),  # one was killed, as mpiexec reports
        ({0: "", 1: "os._exit"}, 0, 1, "malt run: rank 1 ended by os._exit without MPI.Finalize()"),
        ({0: "", 1: "os._exit(0)"}, 9, 1, "malt run: rank 1 ended by os._exit(0) without MPI.Finalize()"),
        ({1: "os._exit"}, 3, 3, "malt run: rank 1 ended by os._exit without MPI.Finalize()"),
        ({0: "", 2: ""}, 0, 1, "malt run: ranks 0, 2 ended, or one of them and then the others, without coming to"),
    ],
)
def test_ranks_that_ended_inside_mpi(inside, mpiexec, status, line, tmp_path):
    for rank, how in inside.items():
        add(tmp_path, f"inside-{rank}", how)
    found, said = ends_inside_mpi(Stream(tmp_path).read(), mpiexec)
    assert found == status and said.startswith(line) and said.count("\n") == bool(line)


def test_ranks_elsewhere_are_told_which_incarnations_have_ended_here(tmp_path, ended):
    told = []
    state = Follower(Stream(tmp_path), 2)
    state.report_ended = told.append
    add(tmp_path, "started-0", here())
    for life, seen in enumerate(({}, {0: 0}, {0: 1})):
        if life:
            add(tmp_path, "again-0", str(life))
            add(tmp_path, "started-0", here())
        state.status()
        assert told[-1] == seen
    add(tmp_path, "again-0", "3")
    add(tmp_path, "started-0", ended)
    state.status()
    assert told[-1] == {0: 3}
