"""The striker of the launcher, on processes that stand for ranks."""

import os
import signal
import subprocess
import sys
import time

import pytest
from processes import wait_for
from reported import add

from dstorm.membership.processes import has_ended, is_stopped, process, stat_fields
from malt.launch.command import Job, Line
from malt.launch.hosts.plain.starter import ENDING
from malt.launch.injection.faults import parsed
from malt.launch.injection.schedule import Turn
from malt.launch.injection.striker import Striker
from malt.runner import roster
from malt.runner.roster import Roster

LIMIT_S = 20
RANKS = 3


@pytest.fixture
def begun():
    """The ranks whose sessions have begun."""
    return range(RANKS)


@pytest.fixture
def ranks(tmp_path, begun):
    """The processes of ranks."""
    started = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(RANKS)]
    found = []
    for rank, one in enumerate(started):
        began = int(stat_fields(one.pid)[19])
        add(tmp_path, f"started-{rank}", f"{one.pid} {began}")
        if rank in begun:
            add(tmp_path, f"ready-{rank}")
        found.append(process(one.pid, began))
    yield found
    for one in started:
        one.kill()
        one.wait()


@pytest.fixture
def strike(tmp_path):
    """strike(value): a striker that has begun. It has ended at the end of the test."""
    made = []

    def start(value, **options):
        line = Line({}, [], Job(RANKS, ()), remote_ranks=(), faults=parsed([value], RANKS, 1), **options)
        made.append(Striker(tmp_path, line))
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.close(0)


def test_ranks_are_killed_but_for_one(ranks, strike, capsys):
    striker = strike("kill:0.1s,seed:3", is_spread=True)
    wait_for(lambda: sum(map(has_ended, ranks)) == RANKS - 1, LIMIT_S)
    says = striker.close(0)
    assert sum(map(has_ended, ranks)) == RANKS - 1
    for rank, one in enumerate(ranks):
        assert says.count(f"rank {rank} killed after ") == has_ended(one), says
    assert "; the job survived both (--inject kill:0.1s,seed:3)\n" in says
    assert capsys.readouterr().err == (
        "malt run: --inject kill:0.1s,seed:3 strikes ranks on this host alone, once they have a session\n"
    )


@pytest.mark.parametrize("report", ["finished-2", "left-2", "retired"])
def test_who_has_finished_or_left_is_none_of_those_that_run(report, ranks, strike, tmp_path):
    if report == "retired":  # it goes because others are there: its process has not reported that
        crew = Roster.of(RANKS, 1, RANKS)
        crew.retire(2, 0)
        roster.write(tmp_path, crew)
    else:
        add(tmp_path, report)
    striker = strike("kill:0.1s")
    wait_for(lambda: striker._schedule.left_out and any(map(has_ended, ranks)), LIMIT_S)
    assert sum(map(has_ended, ranks)) == 1 and not has_ended(ranks[2])


@pytest.mark.parametrize("begun", [[0]])
def test_who_has_no_session_is_not_struck(begun, ranks, strike):
    striker = strike("kill:0.1s")
    wait_for(lambda: striker._schedule.left_out, LIMIT_S)
    assert not any(map(has_ended, ranks)) and "struck no rank: fewer than two ranks ran" in striker.close(0)


@pytest.mark.parametrize("how", ["the job ends", "the launcher ends"])
def test_who_is_stopped_goes_on_at_the_end(how, ranks, strike, tmp_path):
    striker = strike("slow:1x20")
    wait_for(lambda: is_stopped(ranks[1]), LIMIT_S)
    if how == "the job ends":
        (tmp_path / ENDING).touch()
        wait_for(lambda: not striker._thread.is_alive(), LIMIT_S)
    else:
        assert striker.close(0).startswith("malt run: struck: rank 1 slowed 20 times; the job survived it")
    assert not is_stopped(ranks[1]) and not has_ended(ranks[1])


def test_nobody_is_struck_or_goes_on_while_the_job_is_suspended(ranks, strike):
    striker, turns, is_suspended = strike("stop:0.1s,slow:1x2"), [], False
    turn = striker._schedule.turn

    def noted(*arguments):
        turns.append(is_suspended)
        return turn(*arguments)

    striker._schedule.turn = noted
    wait_for(lambda: turns, LIMIT_S)
    striker.suspend(signal.SIGSTOP)
    is_suspended = True
    time.sleep(0.1)  # as long as some turns take
    is_suspended, count = False, len(turns)
    striker.suspend(signal.SIGCONT)
    wait_for(lambda: len(turns) > count + 1, LIMIT_S)
    assert not any(turns)


def test_who_was_stopped_before_the_job_was_suspended_is_stopped_again(ranks, strike):
    striker = strike("kill:1000s")
    striker._schedule.turn = lambda now_s, live: Turn([], frozenset({1}))
    wait_for(lambda: is_stopped(ranks[1]), LIMIT_S)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        striker.suspend(number)
        if number == signal.SIGSTOP:
            for one in ranks:  # as the launcher does meanwhile
                os.kill(one.number, signal.SIGCONT)
    wait_for(lambda: is_stopped(ranks[1]) and not any(map(is_stopped, ranks[::2])), LIMIT_S)
