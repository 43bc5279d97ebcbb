"""The waits of each consistency mode with one slow rank, over MPI; and loops of very different lengths."""

from __future__ import annotations

import time

import numpy as np
import pytest

import malt

pytestmark = pytest.mark.parallel


def train(sync, steps, nap_s=0.02):
    """Train while rank 0 sleeps in every step.

    Return the seconds of each rank, how many steps a gather returned ahead of rank 0 at most, and the vector.
    """
    v = malt.vector(np.full(100, float(malt.rank())), sync=sync)
    malt.barrier()
    start, ahead = time.monotonic(), 0
    for step in range(1, steps + 1):
        if malt.rank() == 0:
            time.sleep(nap_s)
        v.scatter()
        v.gather()
        ahead = max(ahead, step - v._queues.inbox.edges[0].step) if malt.rank() else 0
    mine = time.monotonic() - start
    everyone = [float(text) for text in malt.init().transport.allgather(repr(mine).encode())]
    return everyone, ahead, v


@pytest.fixture
def steps(request):
    return request.config.getoption("--straggler-steps")


def test_asp_does_not_wait(steps):
    seconds, _, v = train("asp", steps)
    assert v.statistics().waited_s == 0
    assert max(seconds[1:]) < seconds[0] * 2 / 3  # who waits takes as long as rank 0
    v.close()


def test_ssp_waits_within_its_bound(steps):
    _, ahead, v = train("ssp:3", steps)
    assert ahead <= 3
    assert v.statistics().waited_s > 0 or malt.rank() == 0
    v.close()


def test_bsp_is_the_serial_reduction(steps):
    _, _, v = train("bsp", steps)
    mean = np.zeros(1)
    for rank in range(malt.size()):
        mean += rank
    assert v.array.tobytes() == np.full(100, mean[0] / malt.size()).tobytes()
    v.close()


def test_notify_ack_overwrites_nothing(steps):
    _, _, v = train("notify-ack", steps)
    assert all(edge.overwritten == 0 for edge in v.statistics().peers.values())
    v.close()


@pytest.mark.parametrize("sync", ["asp", "ssp:0", "ssp:3", "bsp", "notify-ack"])
def test_uneven_loops_end_within_seconds(sync):
    start = time.monotonic()
    with malt.vector(50, sync=sync) as v:
        for _ in range((5, 50, 500, 1000)[malt.rank() % 4]):
            v.scatter()
            v.gather()
    malt.barrier()
    assert time.monotonic() - start < 60


def test_a_missing_rank_is_named():
    with malt.vector(5, sync="bsp") as v:
        if malt.rank() == 0:
            malt.barrier()
            return
        v.scatter()
        with pytest.raises(malt.DeadlinePassed, match=r"rank 0 \(last step 0, heard of") as raised:
            v.gather(timeout_s=0.2)
        assert 0 in raised.value.missing
        malt.barrier()
