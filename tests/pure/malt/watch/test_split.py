"""The seconds of a rank: start, training, waiting. Where each begins, and that they add up."""

import os
import subprocess

import numpy as np
import pytest
from traces import traced

import malt
from apps.harness.marks import Clock, Mark, over_ranks
from dstorm.membership.processes import process, stat_fields
from dstorm.waits.wait import Wait
from malt.runner import reporting
from malt.session import session
from malt.session.world.counters import counters
from malt.watch import jobs
from malt.watch.split import Split, split
from malt.watch.trace import summary
from malt.watch.trace.page import page, runs_of
from malt.watch.trace.reading import read


def test_the_seconds_add_up():
    assert split(3.0, None, 0.5) == Split(3.0, 0.0, 0.0)
    assert split(10.0, 8.0, 1.5) == Split(2.0, 6.5, 1.5)
    assert split(10.0, 8.0, 9.0) == Split(2.0, 0.0, 8.0)  # a wait that began before


WORK = {
    "a scatter": lambda: malt.vector(3, sync="asp").scatter(),
    "a step": lambda: malt.Replica(np.zeros(3), every=100).step(),
    "a sum": lambda: malt.allreduce(np.zeros(3)),
    "a map": lambda: malt.map_reduce(lambda theta, chunk: [np.zeros(1)], np.zeros(1), np.zeros(3)),
    "a pull": lambda: malt.sharded(3).pull(),
    "an epoch": lambda: Clock().start(),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_rank_trains_from_its_first_step_or_exchange_on(work, ranks):
    def live(rank):
        transport = malt.init().transport
        malt.barrier()
        malt.Replica(np.zeros(3))
        malt.allgather(3)
        before = transport.trains_since
        work()
        return before, transport.trains_since is not None

    assert malt.simulate(live, ranks) == [(None, True)] * ranks


def straggling(meet):
    """A function of a rank: 3 s of start, one of them in a wait on rank 1; then rank 0 computes for 4 s, rank 1 for 1
    s, and they meet."""

    def live(rank):
        malt.compute(3.0 - rank)
        malt.barrier()
        replica = malt.Replica(np.zeros(3), every=1000, sync="bsp")
        replica.step()
        malt.compute(4.0 - 3 * rank)
        meet(replica)
        return counters(session.world(), range(2))

    return live


@pytest.mark.parametrize("meet", [lambda _: malt.barrier(), lambda replica: replica.step(999), malt.Replica.agree])
def test_waits_are_those_since_the_training_began(meet):
    found = malt.simulate(straggling(meet), 2, network=malt.Network(1e-9, 1e12))
    seconds = [(one.start_s, one.training_s, one.waiting_s) for one in found]
    assert np.array(seconds) == pytest.approx(np.array([(3.0, 4.0, 0.0), (3.0, 1.0, 3.0)]), abs=1e-6)
    assert [one.every for one in found] == [1000, 1000]


def test_the_interval_is_that_of_what_says_when_the_rank_exchanges():
    def live(rank):
        found, world = [], malt.init()
        found.append(world.every)
        first, second = (malt.Replica(np.zeros(3), every=every, sync="bsp") for every in (7, 9))
        found.append(world.every)
        first.finish()
        found.append(world.every)
        malt.Exchanges(11)
        found.append(world.every)
        second.finish()
        return found

    assert malt.simulate(live, 2) == [[0, 7, 9, 11]] * 2


def test_a_wait_counts_while_it_lasts():
    def live(rank):
        transport = malt.init().transport
        malt.compute(1.0)
        malt.init().begin_training()
        malt.compute(1.0)
        transport.waiting = Wait(rank, 2, "a test", transport.clock(), 300.0)
        malt.compute(2.5)
        found = counters(session.world(), range(2))
        transport.waiting = None
        return found.start_s, found.training_s, found.waiting_s

    assert malt.simulate(live, 2, network=malt.Network(1.0, 1.0)) == [(1.0, 1.0, 2.5)] * 2


def test_the_marks_of_programs_are_means_over_ranks():
    def live(rank):
        return over_ranks([Mark(examples=10, seconds=1.0 + rank, start_s=1.0, training_s=4.0 - 3 * rank,
                                waiting_s=3.0 * rank, every=100 + 201 * rank)])  # fmt: skip

    (found,), _ = malt.simulate(live, 2)
    assert found == Mark(examples=20, seconds=2.0, start_s=1.0, training_s=2.5, waiting_s=1.5, every=200)


def test_a_launcher_is_older_than_its_ranks(tmp_path, monkeypatch):
    """The folder of a job says which process its launcher is: here another one, which is younger than this."""
    alone_s = jobs.launched_s()
    with subprocess.Popen(["sleep", "100"]) as launcher:
        try:
            started = int(stat_fields(launcher.pid)[19])
            monkeypatch.setattr(jobs, "this_process", lambda: process(launcher.pid, started))
            jobs.publish(tmp_path, 2, ["x.py"])
            monkeypatch.undo()
            monkeypatch.setattr(reporting, "folder", lambda: str(tmp_path))
            of_the_job_s = jobs.launched_s()
        finally:
            launcher.kill()
    mine = int(stat_fields(os.getpid())[19])
    assert alone_s - of_the_job_s == pytest.approx((started - mine) / os.sysconf("SC_CLK_TCK"), abs=5.0)
    assert 0 <= of_the_job_s < alone_s
    monkeypatch.setattr(reporting, "folder", lambda: str(tmp_path / "absent"))
    assert jobs.launched_s() >= alone_s


def test_a_trace_says_the_same_as_the_counters(tmp_path):
    exchanging = straggling(lambda replica: replica.step(999))
    found = traced(tmp_path / "run", exchanging, 2, network=malt.Network(1e-9, 1e12))
    trace = read(tmp_path / "run")
    for one, mine in zip(found, summary.summarize(trace).split, strict=True):
        assert mine == pytest.approx((one.start_s, one.training_s, one.waiting_s), abs=1e-3)
    assert "rank 1: waiting 3 s" in page(runs_of([trace]))


def test_a_trace_that_has_lost_its_oldest_events_knows_the_start(tmp_path):
    def live(rank):
        malt.compute(2.0)
        vector = malt.vector(3, sync="asp")
        for _ in range(200):
            vector.scatter()
            malt.compute(0.01)

    traced(tmp_path / "run", live, 2, capacity=32, network=malt.Network(1e-9, 1e12))
    trace = read(tmp_path / "run")
    for one, mine in zip(trace.ranks, summary.summarize(trace).split, strict=True):
        assert one.dropped and mine.start_s == pytest.approx(2.0, abs=1e-3)
        assert mine.training_s == pytest.approx(one.until - one.since)
