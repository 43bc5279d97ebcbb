"""Who is missed, after how long, and which part of a job goes on."""

from __future__ import annotations

import itertools
from random import Random

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


def test_what_waited_for_a_rank_that_was_stopped_does_not_make_it_patient():
    """It reads it before it finds out that it was stopped."""
    timeout = HeartbeatTimeout([1, 2], 0.0)
    now = listen(timeout, [1, 2], 0.0, 20.0) + 25.0
    timeout.heard(1, now)
    timeout.heard(2, now)
    assert timeout.suspect_after_s == FLOOR_S and not timeout.is_awake(now)
    assert timeout.was_stopped(now) == pytest.approx(25.25)


def test_a_patient_rank_that_was_stopped_first_looks_who_has_cut_it_off():
    """Others may be less patient than it is."""
    timeout = HeartbeatTimeout([1], 0.0)
    now = listen(timeout, [1], listen(timeout, [], 0.0, 6.0), 10.0)
    assert timeout.suspect_after_s > 20.0
    assert timeout.is_awake(now + 8.0) and not timeout.is_awake(now + 9.5)
    assert timeout.was_stopped(now + 12.0) is None and timeout.may_be_cut_off and not timeout.is_awake(now + 12.0)
    assert timeout.was_stopped(now + 13.0) is None and not timeout.may_be_cut_off and timeout.is_awake(now + 13.0)
    assert timeout.was_stopped(now + 18.0) is None and timeout.is_awake(now + 18.0), "nobody is so impatient"


class Rank:
    """A rank of a job on hosts of their own, with what the links make of a heartbeat timeout."""

    def __init__(self, rank, size):
        self.rank, self.alive, self.ended, self.left = rank, set(range(size)), set(), False
        self.timeout = HeartbeatTimeout([one for one in range(size) if one != rank], 0.0)

    def turn(self, job, came, now):
        """Read what has come; then as Links._give_heartbeats, and what the view makes of it."""
        for peer in came:
            self.timeout.heard(peer, now)
        self.ended |= {one.rank for one in job if one.left or self.rank not in one.alive} & self.alive
        if self.timeout.was_stopped(now) is not None:
            self.left = True
        elif self.timeout.may_be_cut_off:
            self.left = self.timeout.must_leave(self.ended, self.alive)
        elif self.timeout.is_awake(now):
            silent = self.timeout.silent(self.alive - self.ended, now)
            self.left = bool(silent) and self.timeout.must_leave(silent, self.alive - self.ended)
            self.alive -= set() if self.left else self.ended | set(silent)


def parts(random):
    """The parts of a job that go on, of whose ranks some are stopped for so long that others go on without them. An
    earlier stop makes those that wait for it more patient."""
    size = random.randint(2, 6)
    job = [Rank(rank, size) for rank in range(size)]
    stops = [(random.sample(range(size), random.randint(1, size - 1)), start, start + random.uniform(1, longest))
             for start, longest in ((5.0, 9.0), (30.0, 60.0))]  # fmt: skip
    heard = {rank: set() for rank in range(size)}
    for tick in range(500):
        now = tick / 4
        stopped = {rank for some, start, end in stops if start <= now < end for rank in some}
        running = [one for one in job if not one.left and one.rank not in stopped]
        for one in running:
            for peer in one.alive - {one.rank}:
                heard[peer].add(one.rank)
        for one in random.sample(running, len(running)):
            came, heard[one.rank] = heard[one.rank] & one.alive, set()
            one.turn(job, came, now)
        for one, other in itertools.permutations(running, 2):  # who has failed is passed on (decision.py)
            if other.rank in one.alive and one.rank in other.alive:
                one.alive &= other.alive
    left = [one for one in job if not one.left]
    assert all(one.alive <= {other.rank for other in left} for one in left)
    return {frozenset(one.alive) for one in left}


def test_of_ranks_that_are_stopped_for_a_while_at_most_one_part_goes_on():
    found = [parts(Random(seed)) for seed in range(150)]
    assert max(map(len, found)) == 1
    assert sum(map(len, found)) > 75, "in most jobs one does"


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
