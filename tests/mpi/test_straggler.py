"""The waits of each consistency mode with one slow rank, over MPI; and loops of very different lengths."""

import time

import numpy as np
import pytest

import malt

pytestmark = pytest.mark.parallel


def train(sync, steps, nap_s=0.02):
    """Train while rank 0 sleeps in every step.

    Return how many steps a gather returned ahead of rank 0 at most, and the vector.
    """
    v, ahead = malt.vector(np.full(100, float(malt.rank())), sync=sync), 0
    malt.barrier()
    for step in range(1, steps + 1):
        if malt.rank() == 0:
            time.sleep(nap_s)
        v.scatter()
        v.gather()
        ahead = max(ahead, step - v._queues.inbox.edges[0].step) if malt.rank() else 0
    return ahead, v


@pytest.fixture
def steps(request):
    return request.config.getoption("--straggler-steps")


def test_asp_does_not_wait(steps):
    """Rank 0 makes its second step once all others have made all of theirs."""
    with malt.vector(100, sync="asp") as v:
        for step in range(steps):
            v.scatter()
            v.gather(timeout_s=60)
            if malt.rank() == step == 0:
                break
        malt.barrier()
        assert v.statistics().waited_s == 0


def test_ssp_waits_within_its_bound(steps):
    ahead, v = train("ssp:3", steps)
    assert ahead <= 3
    assert malt.allreduce(v.statistics().waited_s, "max") > 0
    v.close()


def test_bsp_is_the_serial_reduction(steps):
    _, v = train("bsp", steps)
    mean = np.zeros(1)
    for rank in range(malt.size()):
        mean += rank
    assert v.array.tobytes() == np.full(100, mean[0] / malt.size()).tobytes()
    v.close()


def test_notify_ack_overwrites_nothing(steps):
    _, v = train("notify-ack", steps)
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
