"""Which rank runs next: as by the plain search through all ranks that wait."""

import gc
from random import Random

import pytest

from dstorm.transports.simulated import garbage
from dstorm.transports.simulated.schedule import Schedule


class PlainSchedule:
    """The same choices, by a look at every rank at every turn."""

    def __init__(self, size, random):
        self.now = 0.0
        self._random = random
        self._wake_at = dict.fromkeys(range(size), 0.0)

    def add(self, rank, pause_s=0.0):
        self._wake_at[rank] = self.now + pause_s

    def next(self):
        if not self._wake_at:
            return None
        self.now = max(self.now, min(self._wake_at.values()))
        ready = sorted(rank for rank, wake_at in self._wake_at.items() if wake_at <= self.now)
        chosen = self._random.choice(ready)
        del self._wake_at[chosen]
        return chosen


def play(kind, size, seed):
    """The ranks that ran, and when."""
    random = Random(seed)
    schedule, pauses, seen = kind(size, random), Random(seed + 1), []
    for turn in range(300):
        rank = schedule.next()
        seen.append((rank, schedule.now))
        if rank is None:
            break
        schedule.now += 1e-6
        if turn < 200 or pauses.random() < 0.9:
            schedule.add(rank, pauses.choice([0.0, 0.0, 1e-6, 3e-6, 1e-3]))
    return seen


@pytest.mark.parametrize("seed", range(18))
def test_it_chooses_as_a_look_at_all_ranks_would(seed):
    size = 1 + seed % 9
    assert play(Schedule, size, seed) == play(PlainSchedule, size, seed)


def test_nobody_is_left():
    schedule = Schedule(2, Random(0))
    assert {schedule.next(), schedule.next()} == {0, 1}
    assert schedule.next() is None and schedule.now == 0.0


def test_groups_that_end_in_any_order_leave_pythons_garbage_collector_as_it_was():
    """Each of two threads may run a group. Once both had ended, garbage stayed: one test held 13 GB."""
    usual = gc.get_threshold()
    first, second = garbage.fewer_collections(), garbage.fewer_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > usual[0]
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual
