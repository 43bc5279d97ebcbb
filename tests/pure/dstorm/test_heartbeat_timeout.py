"""Who is missed, after how long, and which part of a job goes on."""

from __future__ import annotations

import pytest

from dstorm.membership.heartbeat import FLOOR_S, GAPS, Silence

pytestmark = pytest.mark.serial


def listen(silence, ranks, start, end, every=0.25):
    now = start
    while now < end:
        for rank in ranks:
            silence.heard(rank, now)
        silence.has_stood_still(now)
        now += every
    return now


def test_who_is_heard_is_not_missed():
    silence = Silence([1, 2], 0.0)
    now = listen(silence, [1, 2], 0.0, 100.0)
    assert silence.silent([0, 1, 2], now) == []
    assert silence.suspect_after_s == FLOOR_S


def test_who_is_silent_is_missed_once_it_lasts():
    silence = Silence([1, 2], 0.0)
    now = listen(silence, [1], 0.0, FLOOR_S - 0.5)
    assert silence.silent([0, 1, 2], now) == []
    now = listen(silence, [1], now, FLOOR_S + 0.5)
    assert silence.silent([0, 1, 2], now) == [2]
    assert silence.silent([0, 1], now) == []


def test_who_was_lost_together_is_missed_together():
    silence = Silence([1, 2, 3], 0.0, 10.0)
    now = listen(silence, [1, 2, 3], 0.0, 20.0)
    silence.heard(3, now + 1.0)
    assert silence.silent(range(4), now + 9.6) == []
    assert silence.silent(range(4), now + 10.1) == [1, 2, 3]
    silence.heard(3, now + 5.0)
    assert silence.silent(range(4), now + 10.1) == [1, 2]


def test_a_silence_that_was_broken_makes_it_more_patient():
    silence = Silence([1], 0.0)
    now = listen(silence, [], 0.0, 6.0)
    silence.heard(1, now)
    assert silence.suspect_after_s == GAPS * now > FLOOR_S
    assert Silence([1], 0.0, 3.0).suspect_after_s == 3.0


def test_whoever_wakes_up_judges_nobody():
    silence = Silence([1], 0.0, 3.0)
    now = listen(silence, [1], 0.0, 1.0)
    assert silence.is_awake(now) and not silence.is_awake(now + 2.9)
    assert silence.has_stood_still(now + 2.0) is None
    assert silence.silent([0, 1], now + 2.0) == []
    assert silence.suspect_after_s == 3.0
    assert silence.has_stood_still(now + 4.9) == pytest.approx(2.9)


@pytest.mark.parametrize(
    ("rank_silent", "alive", "leaves"),
    [([1], [0, 1, 2], False), ([1, 2], [0, 1, 2], True), ([2, 3], [0, 1, 2, 3], False),
     ([0, 1], [0, 1, 2, 3], True), ([3], [2, 3], False), ([2], [2, 3], True)],
)  # fmt: skip
def test_the_larger_part_goes_on_and_of_halves_that_of_the_lowest(rank_silent, alive, leaves):
    assert Silence([], 0.0).must_leave(rank_silent, alive) == leaves


def test_of_two_parts_one_goes_on():
    for size in range(2, 7):
        alive = range(size)
        for bits in range(1, 2**size - 1):
            one = [rank for rank in alive if bits >> rank & 1]
            other = [rank for rank in alive if rank not in one]
            silence = Silence([], 0.0)
            assert silence.must_leave(one, alive) != silence.must_leave(other, alive)
