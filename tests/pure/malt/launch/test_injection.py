"""The faults of `malt run --inject`: what is asked for, who is struck when, by a fake clock, and what is said of it."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from malt.launch.injection.account import account
from malt.launch.injection.faults import Faults, parsed
from malt.launch.injection.schedule import LONGEST_PAUSE_S, LONGEST_STOP_S, SLICE_S, Schedule

POLL_S = 0.05
RANKS = 4


class Job:
    """Ranks that are struck, by a fake clock.

    `ends_after_s`: how long a killed rank is seen to run yet. `back_after_s`: when it is there again, as another
    process; None: never. `allowed_s`: how long a rank may stay stopped until the others end it.
    """

    def __init__(self, value, ranks=RANKS, ends_after_s=0.0, back_after_s=None, allowed_s=2.0):
        self.schedule = Schedule(parsed([value], ranks, seed=5), ranks)
        self._ends_after_s, self._back_after_s, self._allowed_s = ends_after_s, back_after_s, allowed_s
        self.now_s, self.live, self.stopped = 0.0, {rank: (rank, 0) for rank in range(ranks)}, {}
        self._ends, self._backs = {}, {}

    def run(self, seconds):
        """Let the clock go on, and check at each turn that somebody runs."""
        end = self.now_s + seconds
        while self.now_s < end:
            self._turn()
            self.now_s += min(POLL_S, self.schedule.wait_s())
        return self

    def _turn(self):
        for rank in [rank for rank, at in self._ends.items() if at <= self.now_s]:
            self._end(rank)
        for rank in [rank for rank, at in self._backs.items() if at <= self.now_s]:
            self.live[rank] = rank, self._backs.pop(rank)
        for rank in [rank for rank, since in self.stopped.items() if self.now_s - since > self._allowed_s]:
            self._end(rank)
        killed, stopped = self.schedule.turn(self.now_s, dict(self.live))
        assert {*killed, *stopped} <= self.live.keys()
        self._ends |= dict.fromkeys(killed, self.now_s + self._ends_after_s)
        self.stopped = {rank: self.stopped.get(rank, self.now_s) for rank in stopped}
        assert self.live.keys() - self._ends.keys() - stopped or not self.live

    def _end(self, rank):
        del self.live[rank]
        self._ends.pop(rank, None)
        self.stopped.pop(rank, None)
        if self._back_after_s is not None:
            self._backs[rank] = self.now_s + self._back_after_s


def struck(job, kind):
    return [(one.rank, round(one.at_s, 3)) for one in job.schedule.strikes if one.kind == kind]


@pytest.mark.parametrize("values", [
    ["kill:30s"], ["kill:0.5s,stop:120s", "seed:7"], ["slow:3x4", "slow:0x1.25,seed:12345678901"],
])  # fmt: skip
def test_what_is_printed_asks_for_the_same_again(values):
    found = parsed(values, RANKS, seed=5)
    assert parsed([str(found)], RANKS, seed=6) == found
    assert found.seed == 5 or f"seed:{found.seed}" in ",".join(values)


def test_several_values_add_up():
    everything = Faults((("kill", 30.0), ("stop", 2.5)), ((1, 4.0), (0, 2.0)), 7)
    assert parsed(["kill:30s,slow:1x4", "stop:2.5s", "seed:7,slow:0x2"], 2, 0) == everything


@pytest.mark.parametrize(("value", "why"), [
    ("", "faults are kill:30s, stop:30s, slow:RANKxTIMES and seed:NUMBER, with commas between them, not ''"),
    ("kill:30", "not 'kill:30'"),
    ("kill:-1s", "not 'kill:-1s'"),
    ("kill:1s,", "not ''"),
    ("slow:1", "not 'slow:1'"),
    ("seed:7", "a seed alone strikes nobody"),
    ("kill:0s", "kill:0s: the mean time between two strikes is 0.1 s or more"),
    ("slow:4x2", "slow:4x2: no rank 4: there are ranks 0 to 3"),
    ("slow:1x1", "slow:1x1: a rank is made more than 1 and up to 20 times slower"),
    ("slow:1x21", "slow:1x21: a rank"),
    ("kill:1s,kill:2s", "kill:2s comes on top of another kill"),
    ("slow:1x2,slow:01x3", "slow:01x3 comes on top of another slow"),
])  # fmt: skip
def test_what_cannot_be_is_refused(value, why):
    with pytest.raises(ValueError) as error:
        parsed([value], RANKS, 5)
    assert why in str(error.value)


def test_a_seed_gives_the_same_strikes_and_another_one_others():
    runs = [Job(f"kill:10s,stop:10s,seed:{seed}", back_after_s=1.0).run(200) for seed in (7, 7, 8)]
    first, again, other = ([(one.kind, one.rank, one.at_s, one.extent) for one in job.schedule.strikes] for job in runs)
    assert first == again and first != other and len(first) > 20


def test_what_a_seed_gives_stays_as_it_is():
    """Users keep seeds: neither a change here nor another Python may draw otherwise."""
    job = Job("kill:10s,stop:10s,seed:7", back_after_s=1.0).run(30)
    assert [(one.kind, one.rank, round(one.at_s, 2)) for one in job.schedule.strikes] == [
        ("stop", 2, 6.08), ("kill", 0, 6.18), ("stop", 1, 6.92), ("stop", 3, 10.9), ("stop", 2, 11.21),
        ("kill", 1, 24.17), ("kill", 3, 28.29),
    ]  # fmt: skip


def test_strikes_are_random_and_so_often_on_average():
    job = Job("kill:1s", back_after_s=0.0).run(2000)
    times = [at for _, at in struck(job, "kill")]
    gaps = [later - one for one, later in pairwise(times)]
    assert sum(gaps) / len(gaps) == pytest.approx(1.0, rel=0.05)
    assert sum(gap > 1 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)  # exp(-1): no memory
    shares = Counter(rank for rank, _ in struck(job, "kill"))
    assert all(share == pytest.approx(len(times) / RANKS, rel=0.1) for share in shares.values()) and len(shares) == 4


def test_nobody_is_struck_before_the_session_and_its_time_begins_there():
    early, late = Job("kill:10s,slow:1x4,seed:7").run(7), Job("kill:10s,slow:1x4,seed:7")
    live, late.live = late.live, {}
    late.run(50)
    assert late.schedule.strikes == [] and late.schedule.session_s is None
    late.live = live
    late.run(7)
    assert struck(late, "kill") == struck(early, "kill") == [(0, 6.176)]
    assert late.schedule.session_s == pytest.approx(early.schedule.session_s, abs=POLL_S)


@pytest.mark.parametrize("ends_after_s", [0.0, 30.0])
def test_one_rank_is_left(ends_after_s):
    """Also where ranks that were killed are seen to run for long."""
    job = Job("kill:1s", ends_after_s=ends_after_s).run(100)
    assert len(struck(job, "kill")) == RANKS - 1 and len(job.live) == 1
    assert job.schedule.left_out > 50


def test_a_rank_runs_at_any_time_while_others_are_killed_and_stopped():
    job = Job("kill:1s,stop:0.3s", ends_after_s=0.2, back_after_s=3.0).run(1000)  # which is checked in each turn
    assert len(struck(job, "kill")) > 50 and len(struck(job, "stop")) > 300


def test_a_rank_that_came_back_between_two_looks_is_struck_again():
    job = Job("kill:1s", ranks=2, back_after_s=0.0).run(100)
    assert len(struck(job, "kill")) > 50


def test_a_rank_is_stopped_for_some_time_and_goes_on_or_is_ended():
    job = Job("stop:10s", back_after_s=1.0).run(2000)
    stops = [one for one in job.schedule.strikes if one.kind == "stop"]
    assert {one.is_ended for one in stops if one.extent < 1.9} == {False}
    assert {one.is_ended for one in stops if one.extent > 2.2} == {True}
    assert max(one.extent for one in stops) <= LONGEST_STOP_S
    assert sum(one.is_ended for one in stops) / len(stops) == pytest.approx(0.5, abs=0.1)


def test_a_stop_lasts_as_long_as_drawn():
    job = Job("stop:10s", allowed_s=10.0)
    job.run(job.schedule.first_s + 2 * POLL_S)
    [(rank, since)] = job.stopped.items()
    extent = job.schedule.strikes[0].extent
    job.run(extent - 3 * POLL_S)
    assert job.stopped == {rank: since} and not job.schedule.strikes[0].is_ended
    job.run(4 * POLL_S)
    assert job.stopped == {}


@pytest.mark.parametrize("times", [1.5, 4.0, 20.0])
@pytest.mark.parametrize("latest_s", [0.0, 0.02])
def test_a_slow_rank_runs_in_its_share_of_the_time(times, latest_s):
    """Also where the launcher comes late to stop it or to let it go on."""
    late, schedule = random.Random(3), Schedule(Faults((), ((1, times),), 0), RANKS)
    live, now_s, ran_s, longest_s = dict.fromkeys(range(RANKS), 0), 0.0, 0.0, 0.0
    while now_s < 100:
        killed, stopped = schedule.turn(now_s, live)
        assert killed == [] and stopped <= {1}
        passed_s = schedule.wait_s() + late.uniform(0, latest_s)
        ran_s += 0 if stopped else passed_s
        longest_s = max(longest_s, passed_s if stopped else 0)
        now_s += passed_s
    assert ran_s / now_s == pytest.approx(1 / times, rel=0.02)
    assert longest_s <= LONGEST_PAUSE_S + latest_s
    assert [(one.kind, one.rank, one.extent) for one in schedule.strikes] == [("slow", 1, times)]


def test_a_launcher_that_was_stopped_itself_stops_no_rank_for_as_long():
    schedule = Schedule(Faults((), ((1, 20.0),), 0), RANKS)
    live = dict.fromkeys(range(RANKS), 0)
    schedule.turn(0.0, live)
    assert schedule.turn(60.0, live).stopped == {1}
    assert schedule.wait_s() == LONGEST_PAUSE_S


def test_a_slow_rank_that_has_finished_goes_on():
    schedule = Schedule(Faults((), ((1, 2.0),), 0), RANKS)
    schedule.turn(0.0, {0: 0, 1: 0})
    assert schedule.turn(1.1 * SLICE_S, {0: 0, 1: 0}).stopped == {1}
    assert schedule.turn(1.1 * SLICE_S, {0: 0}).stopped == frozenset()


def said(job, status=0):
    return account(job.schedule, status).removeprefix("malt run: ")


def test_what_is_said_at_the_end():
    first = "struck: rank 0 killed after 6.2 s"
    assert said(Job("kill:10s,seed:7").run(9), 3) == (
        f"{first}; the job ended with status 3 (--inject kill:10s,seed:7)\n"
    )
    assert said(Job("kill:10s,seed:7").run(300)) == (
        f"{first}, rank 1 killed after 24.2 s, rank 3 killed after 28.3 s, 28 times nobody, as fewer than two ranks "
        "ran; the job survived all 3 (--inject kill:10s,seed:7)\n"
    )
    assert said(Job("stop:10s,slow:1x2.5,seed:7").run(10)) == (
        "struck: rank 1 slowed 2.5 times, rank 2 stopped for 1.8 s after 6.1 s, rank 1 stopped until it was ended "
        "after 6.9 s; the job survived all 3 (--inject stop:10s,slow:1x2.5,seed:7)\n"
    )
    many = said(Job("kill:1s,seed:7", back_after_s=0.1).run(100))
    assert many.count(" killed ") == 20 and ", and 91 more; the job survived all 111 " in many


def test_where_nobody_was_struck_it_is_said_why():
    absent, slow = Job("kill:1s"), Job("kill:0.1s,slow:1x4", ranks=2)
    absent.live = {}
    del slow.live[1]
    for job, why in (
        (Job("kill:1000s,seed:7"), "the session lasted 3.0 s, and the first was due after 617.6 s"),
        (Job("kill:0.1s", ranks=1), "fewer than two ranks ran, and the last one is left alone"),
        (absent, "no rank on this host has begun a session"),
        (slow, "fewer than two ranks ran, and the last one is left alone"),
    ):
        assert said(job.run(3)) == f"--inject {job.schedule.faults} struck no rank: {why}\n"
    slow = Job("kill:1s,slow:1x4,seed:7")
    del slow.live[1]
    assert ", rank 1 never, as it had no session on this host; the job survived it (" in said(slow.run(1.5))
