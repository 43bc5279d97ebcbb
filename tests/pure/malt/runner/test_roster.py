"""Which ranks train in which epoch, where they come, go and fail: each row of each epoch is trained once."""

import os
import random
import signal
from collections import Counter

import pytest

from malt.data.shards import bounds
from malt.runner import roster
from malt.runner.roster import Roster

ROWS, EPOCHS = 60, 12


def parts(found, rank, at):
    """The rows of `rank` in the epoch `at`, as malt.shard deals them."""
    members, heirs = list(found.members(at)), found.heirs(at)

    def part(one):
        return range(*bounds(ROWS, members.index(one), len(members)))

    mine = [*part(rank)]
    for lost, sharers in heirs.items():
        if rank in sharers:
            whole = part(lost)
            mine += whole[slice(*bounds(len(whole), sharers.index(rank), len(sharers)))]
    return mine


class Job:
    """Ranks at a pace of their own. `epochs`: the next one of each that runs, by rank and incarnation."""

    def __init__(self, seed, first=2, most=5):
        self.random, self.found = random.Random(seed), Roster.of(first, 1, most)
        self.epochs = {(rank, 0): 0 for rank in range(first)}
        self.lives = Counter()
        self.trained = {epoch: Counter() for epoch in range(EPOCHS)}
        self.struck, self.lacking = None, range(0)
        """The epoch in which a rank has failed; those that all others had begun when that was noted."""

    def turn(self, kills):
        """Something that happens: a rank trains an epoch, one fails, comes or is told to go."""
        found, choice = self.found, self.random.random()
        running = [one for one in self.epochs if self.epochs[one] < EPOCHS]
        if choice < 0.1:
            found.scale(self.random.randrange(found.least, found.most + 1))
        elif choice < 0.2:
            here = {rank for rank, _ in self.epochs}
            for rank in [one for one in range(found.size) if one not in here][:1]:
                self.lives[rank] += 1
                self.note()
                loop, self.epochs[rank, self.lives[rank]] = found.come(rank, self.lives[rank])
                assert loop == 0
        elif choice < 0.25 and kills and self.struck is None and len(running) > 1:
            rank, life = self.random.choice(running)
            self.struck = max(self.epochs.pop((rank, life)) - 1, 0)
            self.lacking = range(self.struck, EPOCHS)  # until it is noted
        elif running:
            self.train(*self.random.choice(running))

    def note(self):
        """Nobody trains what the failed rank had left of the epochs that all others of them have begun."""
        if isinstance(self.lacking, range) and self.struck is not None:
            living = {
                epoch: [self.epochs[one] for one in self.found.members((0, epoch)).items() if one in self.epochs]
                for epoch in self.lacking
            }  # fmt: skip
            self.lacking = {epoch for epoch, next_ones in living.items() if all(one > epoch for one in next_ones)}

    def train(self, rank, life):
        """A rank trains its next epoch, or leaves, having noted who has ended."""
        epoch = self.epochs[rank, life]
        for member in self.found.members((0, epoch)).items():
            if member not in self.epochs:
                before = len(self.found.losses)
                self.found.lose(*member)
                if len(self.found.losses) > before:
                    self.note()
        begun = self.found.begin(rank, life, (0, epoch), dict(self.epochs.keys()))
        if begun is None:
            del self.epochs[rank, life]
            return
        epoch = begun[1]
        self.epochs[rank, life] = epoch
        if epoch >= EPOCHS:
            return
        self.trained[epoch].update(parts(self.found, rank, (0, epoch)))
        self.epochs[rank, life] += 1

    def end(self):
        """Let all that run train to the end."""
        while running := [one for one in self.epochs if self.epochs[one] < EPOCHS]:
            self.train(*self.random.choice(running))


@pytest.mark.parametrize("kills", [False, True])
def test_each_row_of_each_epoch_is_trained_once_while_ranks_come_and_go(kills):
    """In the epoch in which one fails at least once, but for epochs that all others had begun before that was noted."""
    grown = shrunk = 0
    for seed in range(400):
        job = Job(seed)
        for _ in range(80):
            before = set(job.found.retired.items())
            job.turn(kills)
            shrunk += set(job.found.retired.items()) != before
        grown += len(job.lives)
        job.end()
        for epoch, times in job.trained.items():
            assert epoch in job.lacking or set(times) == set(range(ROWS)), (seed, epoch)
            assert set(times.values()) <= ({1, 2} if epoch == job.struck else {1}), (seed, epoch)
    assert grown > 100 and shrunk > 100


def test_one_that_was_to_go_stays_where_the_job_grows_again_before_its_last_epoch():
    found = Roster.of(2, 1, 4)
    both = {0: 0, 1: 0}
    assert found.begin(0, 0, (0, 0), both) and found.begin(1, 0, (0, 0), both)
    found.scale(1)
    found.scale(2)
    assert found.begin(1, 0, (0, 1), both) and found.members((0, 5)) == {0: 0, 1: 0}
    found.scale(1)
    assert found.begin(1, 0, (0, 2), both) is None and found.has_retired(1, 0)
    found.scale(2)
    assert found.members((0, 2)) == {0: 0}, "it has left: its next incarnation comes"
    assert found.come(1, 1) == (0, 2) and found.members((0, 2)) == {0: 0, 1: 1}


def test_the_last_one_that_runs_stays_whatever_was_asked_of_it_before():
    """It was to leave and another one to go on, which has failed since; and the job has grown again."""
    found, alone, both = Roster.of(2, 1, 4), {1: 0}, {0: 1, 1: 0}
    assert found.begin(0, 0, (0, 0), {0: 0, 1: 0}) and found.begin(1, 0, (0, 0), {0: 0, 1: 0})
    found.lose(0, 0)
    found.scale(1)
    assert found.begin(1, 0, (0, 1), alone) == (0, 1)
    assert found.begin(0, 1, found.come(0, 1), both) == (0, 2)
    assert found.begin(1, 0, (0, 2), both) == (0, 2) and found.begin(0, 1, (0, 3), both) == (0, 3)
    found.lose(0, 1)
    found.scale(4)
    assert found.begin(1, 0, (0, 3), alone) == (0, 4) and found.members((0, 4))[1] == 0


@pytest.mark.parametrize("scaled", [False, True])
def test_rows_of_one_that_is_back_before_its_failure_was_noted_are_trained_by_those_that_are_behind(scaled):
    """Also where it was to leave: its spell had ended."""
    found, all_three = Roster.of(3, 1, 4), {0: 0, 1: 0, 2: 0}
    for rank, epoch in ((0, 0), (1, 0), (2, 0), (2, 1)):
        assert found.begin(rank, 0, (0, epoch), all_three) == (0, epoch)
    if scaled:
        found.scale(2)
    assert found.begin(0, 0, (0, 1), all_three) and found.begin(0, 0, (0, 2), all_three)
    found.scale(3)
    assert found.begin(2, 1, found.come(2, 1), {0: 0, 1: 0, 2: 1}) == (0, 3)
    found.lose(2, 0)
    assert found.heirs((0, 1)) == {2: (1,)} and found.heirs((0, 2)) == ({} if scaled else {2: (1,)})


def test_the_bounds_hold():
    found = Roster.of(2, 2, 4)
    for size in (1, 5):
        with pytest.raises(ValueError, match=f"from 2 to 4, not {size}"):
            found.scale(size)
    assert found == Roster.of(2, 2, 4)


def test_what_is_written_is_read(tmp_path):
    assert roster.read(tmp_path) is None and not roster.written(tmp_path)
    with pytest.raises(LookupError, match="change: start it with malt run --elastic"), roster.changing(tmp_path):
        pass
    job = Job(3)
    for _ in range(60):
        job.turn(kills=True)
    job.found.lose(0, 0)
    roster.write(tmp_path, job.found)
    assert roster.read(tmp_path) == job.found
    with roster.changing(tmp_path) as found:
        found.scale(4)
    assert roster.read(tmp_path).size == 4
    with pytest.raises(ValueError, match="to 5, not 9"), roster.changing(tmp_path) as found:
        found.scale(9)
    assert roster.read(tmp_path).size == 4


def test_a_process_that_is_forked_during_a_change_does_not_keep_others_from_the_next(tmp_path):
    """As by another thread of a rank: it has the file that is locked."""
    roster.write(tmp_path, Roster.of(2, 1, 4))
    with roster.changing(tmp_path):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        with roster.changing(tmp_path, lambda polls: pytest.fail("the child has the lock")) as found:
            found.scale(3)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert roster.read(tmp_path).size == 3


def test_a_rank_that_is_told_to_leave_goes_although_it_is_not_the_last():
    found, all_three = Roster.of(3, 2, 4), {0: 0, 1: 0, 2: 0}
    for rank in range(3):
        found.begin(rank, 0, (0, 0), all_three)
    assert found.depart(1, 0, all_three) and found.members((0, 1)) == {0: 0, 2: 0}
    assert not found.depart(2, 0, all_three), "one alone would be left"
    assert found.begin(1, 0, (0, 1), all_three) is None and found.has_retired(1, 0)
    assert found.begin(2, 0, (0, 1), all_three) and found.goes(1, 0) and not found.goes(1, 1)
    found.scale(3)
    assert not found.goes(1, 0), "its next incarnation may be started"
    assert found.members((0, 1)) == {0: 0, 2: 0} and found.come(1, 1) == (0, 2)
