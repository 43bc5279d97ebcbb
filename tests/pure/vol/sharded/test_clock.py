"""Sharded vectors under ssp: what a pull has waited for is in what it reads."""

import numpy as np
import pytest

import malt
from dstorm import DeadlinePassed
from vol.sharded.clock import Clock

pytestmark = pytest.mark.serial
RANKS, STEPS = 3, 6


def counted(kind, bound, steps=STEPS):
    """What each rank reads before each step, where a rank adds 1 to its own entry, and to one that all add to."""

    def live(rank):
        s = malt.sharded(RANKS + 1, kind=kind, sync=f"ssp:{bound}")
        read = []
        for _ in range(steps):
            read.append(s.pull(np.arange(RANKS + 1)).tolist())
            s.push([1.0, 1.0], [rank, RANKS])
        s.close()
        return read

    return live


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("bound", [0, 2])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_pull_reads_all_pushes_but_the_last_ones(kind, bound, seed):
    for read in malt.simulate(counted(kind, bound), RANKS, seed=seed):
        for step, values in enumerate(read):
            assert min(values[:RANKS]) >= step - bound and values[RANKS] >= RANKS * (step - bound)


def test_a_fast_rank_waits_and_no_longer_than_the_bound_demands():
    """Rank 0 takes no time, the others a second a step."""

    def live(rank):
        s, at = malt.sharded(4, sync="ssp:2"), []
        for _ in range(STEPS):
            s.pull()
            at.append(round(malt.clock()))
            malt.compute(0.0 if rank == 0 else 1.0)
            s.push([1.0], [rank])
        s.close()
        return at, s.statistics().waited_s

    (fast, waited_s), *_ = malt.simulate(live, 3, network=malt.Network(1e-6, 1e9))
    assert fast == [0, 0, 0, 1, 2, 3] and waited_s > 2.5


def test_nobody_waits_for_a_rank_that_has_closed_the_vector():
    def live(rank):
        s = malt.sharded(4, sync="ssp:0")
        for _ in range(1 + 3 * rank):
            s.push([1.0], [rank])
            s.pull()
        s.close()
        return s.statistics().sent

    assert len(malt.simulate(live, 2)) == 2


def test_a_rank_that_makes_no_step_is_named():
    def live(rank):
        s = malt.sharded(4, sync="ssp:1", name="w")
        if rank:
            malt.allgather(0)
            return ""
        s.push([], [])
        s.pull()
        s.push([], [])
        with pytest.raises(DeadlinePassed) as caught:
            s.pull()
        malt.allgather(0)
        return str(caught.value)

    def init(rank):
        malt.init(deadline_s=2)
        return live(rank)

    [text, _] = malt.simulate(init, 2)
    assert "w.pull" in text and "rank 1" in text


@pytest.mark.parametrize("sync", ["bsp", "notify-ack", "ssp"])
def test_other_modes_are_refused(sync):
    with pytest.raises(ValueError, match="sync"):
        malt.simulate(lambda rank: malt.sharded(3, sync=sync), 2)


def test_a_step_that_is_told_before_it_was_added_is_found_out(monkeypatch):
    """The mutant of the clock that does not look at acknowledgements."""
    monkeypatch.setattr(Clock, "_owing", lambda self, sent: [])
    with pytest.raises(AssertionError):
        for seed in range(12):
            test_a_pull_reads_all_pushes_but_the_last_ones("dense", 0, seed)
