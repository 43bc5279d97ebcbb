"""Time in which a loop did not poll does not count."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dstorm.waits.running_time import RunningTime
from dstorm.waits.stopwatch import Stopwatch

STEPS = st.lists(st.floats(0.001, 100.0), min_size=1, max_size=30)


def counted(steps, longest_s):
    return sum(min(step, longest_s) for step in steps)


@given(STEPS, st.floats(0.001, 10.0))
def test_of_a_step_no_more_counts_than_a_loop_that_runs_can_take(steps, longest_s):
    running, moments = RunningTime(500.0, longest_s), [500.0]
    for step in steps:
        moments.append(moments[-1] + step)
        running.poll(moments[-1])
    assert running.seconds == pytest.approx(counted(steps, longest_s))
    for place, moment in enumerate(moments):
        left = [after - before for before, after in pairwise(moments[place:])]
        assert running.since(moment) == pytest.approx(counted(left, longest_s), abs=1e-6)


def test_what_was_noted_within_a_gap_is_no_older_than_its_end():
    """By another thread, which went on before this one has polled."""
    running = RunningTime(0.0, 1.0)
    running.poll(301.0)
    assert running.since(300.5) == running.since(301.0) == 0.0
    assert running.since(-2.0) == 3.0


def test_processor_time_is_time_in_which_the_process_ran():
    running = RunningTime(0.0, 1.0)
    running.poll(60.0, used_s=20.0)
    assert running.seconds == 20.0
    running.poll(65.0, used_s=40.0)  # of several threads
    assert running.seconds == 25.0
    running.poll(75.0, used_s=0.2)
    assert running.seconds == running.since(0.0) == 26.0


def test_a_loop_that_was_stopped_ever_so_often_holds_no_more_of_it():
    running = RunningTime(0.0, 1.0)
    for poll in range(1, 1000):
        running.poll(10.0 * poll)
    assert len(running._gaps) <= 100 and running.seconds == 999.0


def test_a_stopwatch_begins_anew():
    seconds = iter([0.0, 0.5, 1.0, 90.0, 91.0, 200.0, 200.5])
    watch = Stopwatch(lambda: next(seconds))
    assert [watch.seconds() for _ in range(4)] == [0.5, 1.0, 2.0, 3.0]
    watch.restart()
    assert watch.seconds() == 0.5
