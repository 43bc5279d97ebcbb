"""Who is missed, after how long, and which part of a job goes on."""

from __future__ import annotations

import pytest

from dstorm.membership.heartbeat import FLOOR_S, GAPS, HeartbeatTimeout

pytestmark = pytest.mark.serial


def listen(timeout, ranks, start, end, every=0.25):
    now = start
    while now < end:
        for rank in ranks:
            timeout.heard(rank, now)
        timeout.was_stopped(now)
        now += every
    return now


def test_who_is_heard_is_not_missed():
    timeout = HeartbeatTimeout([1, 2], 0.0)
    now = listen(timeout, [1, 2], 0.0, 100.0)
    assert timeout.silent([0, 1, 2], now) == []
    assert timeout.suspect_after_s == FLOOR_S


def test_who_is_silent_is_missed_once_it_lasts():
    timeout = HeartbeatTimeout([1, 2], 0.0)
    now = listen(timeout, [1], 0.0, FLOOR_S - 0.5)
    assert timeout.silent([0, 1, 2], now) == []
    now = listen(timeout, [1], now, FLOOR_S + 0.5)
    assert timeout.silent([0, 1, 2], now) == [2]
    assert timeout.silent([0, 1], now) == []


def test_who_was_lost_together_is_missed_together():
    timeout = HeartbeatTimeout([1, 2, 3], 0.0, 10.0)
    now = listen(timeout, [1, 2, 3], 0.0, 20.0)
    timeout.heard(3, now + 1.0)
    assert timeout.silent(range(4), now + 9.6) == []
    assert timeout.silent(range(4), now + 10.1) == [1, 2, 3]
    timeout.heard(3, now + 5.0)
    assert timeout.silent(range(4), now + 10.1) == [1, 2]


def test_a_silence_that_was_broken_makes_it_more_patient():
    timeout = HeartbeatTimeout([1], 0.0)
    now = listen(timeout, [], 0.0, 6.0)
    timeout.heard(1, now)
    assert timeout.suspect_after_s == GAPS * now > FLOOR_S
    assert HeartbeatTimeout([1], 0.0, 3.0).suspect_after_s == 3.0


def test_whoever_wakes_up_judges_nobody():
    timeout = HeartbeatTimeout([1], 0.0, 3.0)
    now = listen(timeout, [1], 0.0, 1.0)
    assert timeout.is_awake(now) and not timeout.is_awake(now + 2.9)
    assert timeout.was_stopped(now + 2.0) is None
    assert timeout.silent([0, 1], now + 2.0) == []
    assert timeout.suspect_after_s == 3.0
    assert timeout.was_stopped(now + 4.9) == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("rank_silent", "alive", "leaves"),
    [([1], [0, 1, 2], False), ([1, 2], [0, 1, 2], True), ([2, 3], [0, 1, 2, 3], False),
     ([0, 1], [0, 1, 2, 3], True), ([3], [2, 3], False), ([2], [2, 3], True)],
)  # fmt: skip
def test_the_larger_part_goes_on_and_of_halves_that_of_the_lowest(rank_silent, alive, leaves):
    assert HeartbeatTimeout([], 0.0).must_leave(rank_silent, alive) == leaves


def test_of_two_parts_one_goes_on():
    for size in range(2, 7):
        alive = range(size)
        for bits in range(1, 2**size - 1):
            one = [rank for rank in alive if bits >> rank & 1]
            other = [rank for rank in alive if rank not in one]
            timeout = HeartbeatTimeout([], 0.0)
            assert timeout.must_leave(one, alive) != timeout.must_leave(other, alive)
