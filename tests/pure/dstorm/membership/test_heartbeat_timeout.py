"""Who is missed, and after how long."""

import pytest

from dstorm.membership.heartbeat import FLOOR_S, GAPS, HeartbeatTimeout


def listen(timeout, ranks, start, end, every=0.25):
    now = start
    while now < end:
        for rank in ranks:
            timeout.heard(rank, now)
        timeout.silent(ranks, now)
        now += every
    return now


def test_who_is_silent_is_missed_once_it_lasts_and_who_is_heard_is_not():
    timeout = HeartbeatTimeout([1, 2], 0.0)
    now = listen(timeout, [1, 2], 0.0, 100.0)
    assert timeout.suspect_after_s == FLOOR_S
    now = listen(timeout, [1], now, now + FLOOR_S - 0.5)
    assert timeout.silent([0, 1, 2], now) == []
    now = listen(timeout, [1], now, now + 1.0)
    assert timeout.silent([0, 1, 2], now) == [2]
    assert timeout.silent([0, 1], now) == []


def test_who_was_lost_together_is_missed_together():
    timeout = HeartbeatTimeout([1, 2, 3], 0.0, 10.0)
    now = listen(timeout, [1, 2, 3], 0.0, 20.0)
    timeout.heard(3, now + 1.0)
    listen(timeout, [], now, now + 9.6)
    assert timeout.silent(range(4), now + 9.6) == []
    assert timeout.silent(range(4), now + 10.1) == [1, 2, 3]
    timeout.heard(3, now + 5.0)
    assert timeout.silent(range(4), now + 10.1) == [1, 2]


def test_a_silence_that_was_broken_makes_it_more_patient():
    timeout = HeartbeatTimeout([1], 0.0)
    now = listen(timeout, [], 0.0, 6.0)
    timeout.heard(1, now)
    assert timeout.suspect_after_s == GAPS * (now - 0.25) > FLOOR_S
    assert HeartbeatTimeout([1], 0.0, 3.0).suspect_after_s == 3.0


@pytest.mark.parametrize("suspect_after_s", [None, 3.0, 0.6])
def test_whoever_wakes_up_judges_nobody(suspect_after_s):
    timeout = HeartbeatTimeout([1], 0.0, suspect_after_s)
    now = listen(timeout, [1], 0.0, 1.0)
    for _ in range(2):
        now += 40.0
        assert timeout.silent([0, 1], now) == []
        timeout.heard(1, now)


def test_time_in_which_this_rank_was_stopped_is_no_silence_of_others():
    """Whatever wakes first: the thread that receives, or the one that gives heartbeats."""
    for is_received_first in (False, True):
        timeout = HeartbeatTimeout([1], 0.0)
        now = listen(timeout, [1], 0.0, 1.0) + 40.0
        if is_received_first:
            timeout.heard(1, now)
        timeout.silent([1], now)
        timeout.heard(1, now)
        assert timeout.suspect_after_s == FLOOR_S
