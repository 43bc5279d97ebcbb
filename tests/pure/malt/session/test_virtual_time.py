"""The clock of simulated ranks on a network: malt.compute, messages and waits, exactly."""

import time
from functools import partial

import numpy as np
import pytest
from documents import EXAMPLES

import malt

N = 32
"""Numbers of a vector: 128 bytes, which take 2 s. A header takes 1 s."""


def links(**options):
    return malt.Network(1.0, 64.0, **options)


def timed(work, ranks, network, sync="bsp", seed=0):
    """By rank, what work(rank, vector) returns and when, in seconds after a barrier."""

    def live(rank):
        v = malt.vector(N, graph="all", sync=sync)
        malt.barrier()
        start = malt.clock()
        return work(rank, v), malt.clock() - start

    return malt.simulate(live, ranks, seed, network)


def test_bsp_waits_for_the_slowest():
    network, computed = links(), (0.0, 10.0)

    def work(rank, v):
        malt.compute(computed[rank])
        v.array[:] = rank
        v.scatter()
        at = malt.clock()
        v.gather()
        return malt.clock() - at, v.array[0]

    (first, end), (second, other_end) = timed(work, 2, network)
    # A message: its header, which may hold an acknowledgement, too, and the payload in one Put, 3 s, with the latency
    # there. It is merged where it is: its flush, and its acknowledgement, wait for the next scatter.
    assert first == (10 + 4, 0.5) and end == 10 + 4
    assert second == (0.0, 0.5) and other_end == 10
    begun_s = network.totals.time_s - end
    assert network.totals.waited_s == (begun_s + end, begun_s + other_end - 10)


def test_asp_waits_for_nobody():
    def work(rank, v):
        malt.compute(10.0 * rank)
        v.scatter()
        return v.gather().count

    assert timed(work, 2, links(), "asp") == [(0, 0.0), (1, 10.0)]
    network = links()
    network.buffers = False
    assert timed(work, 2, network, "asp") == [(0, 10.0), (1, 20.0)]  # 1 + 2 + 1 s, 6 latencies


def test_what_has_not_begun_to_leave_is_superseded_and_leaves_while_its_rank_computes():
    def work(rank, v):
        if rank == 0:
            for number in range(1, 6):
                v.array[:] = number
                v.scatter()
                v.gather(malt.REPLACE)
                malt.compute(1.0)
            sent = v.statistics()
            v.barrier()
            return sent.sent, sent.superseded, v.statistics().superseded, malt.clock()
        seen = []
        while not seen or seen[-1][1] < 5:
            if v.gather(malt.REPLACE):
                seen.append((malt.clock(), v.array[0]))
        v.barrier()
        return seen

    (sent, superseded, at_last, end), seen = (found for found, _ in timed(work, 2, links(), "asp"))
    start = end - 10 - 2  # the barrier follows the drain, which learns of the last arrival a latency later
    # A payload takes 2 s, its header 1 s, and both a latency; then the newest of four leaves.
    assert (sent, superseded, at_last) == (5, 3, 3)
    assert [(round(at - start, 3), number) for at, number in seen] == [(4.0, 1.0), (9.0, 5.0)]


def test_ssp_waits_for_the_step():
    def work(rank, v):
        for _ in range(3):
            malt.compute(100.0 * rank)
            v.scatter()
            v.gather()
        return v.statistics().waited_s

    (waited, end), _ = timed(work, 2, links(), "ssp:1")
    assert end == 100 + 100 + 4  # at step 3 it waits for the message of the other's step 2, not for the way back
    assert waited == pytest.approx(end)  # its own messages leave meanwhile


def test_deadlines_pass_in_virtual_time():
    def work(rank, v):
        if rank:
            return malt.compute(1000)
        v.scatter()
        start = malt.clock()
        with pytest.raises(malt.DeadlinePassed, match="waiting for rank 1"):
            v.gather(timeout_s=40)
        return malt.clock() - start

    assert timed(work, 2, links())[0][0] == pytest.approx(40, abs=1e-5)


def test_totals_are_those_of_the_last_run():
    network = links()
    malt.simulate(lambda rank: malt.compute(2 + rank), 3, network=network)
    assert network.totals == (4.0, 0, (0.0, 0.0, 0.0))
    malt.simulate(lambda rank: malt.compute(3), 1, network=network)
    assert network.totals == (3.0, 0, (0.0,))
    before = []

    def live(rank, messages):
        v = malt.vector(N)
        malt.barrier()
        for _ in range(messages):
            v.scatter(to=[1] if rank == 0 else [])
        malt.barrier()

    for messages in (0, 1):
        malt.simulate(partial(live, messages=messages), 2, network=network)
        before.append(network.totals.bytes)
    assert before[1] - before[0] == 128 + 64 + 64  # a payload and its header; the step that goes with none


def test_a_session_without_a_network():
    def work(rank):
        malt.compute(5.0)
        return malt.clock()

    assert all(5 <= end < 5.1 for end in malt.simulate(work, 3))
    began, start = time.monotonic(), malt.clock()
    malt.compute(100.0)
    assert 0 <= malt.clock() - start <= time.monotonic() - began < 50


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), "1", True])
def test_what_is_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match=r"malt\.compute takes a finite number of seconds of at least 0"):
        malt.simulate(lambda rank: malt.compute(seconds), 2, network=links())


def test_what_is_no_network_is_refused():
    with pytest.raises(TypeError, match=r"network must be a malt\.Network, got 3"):
        malt.simulate(len, 2, network=3)


def test_sharded_vectors_and_reductions_on_a_network():
    def live(rank):
        s = malt.sharded(N)
        s.push(np.ones(N, np.float32))
        malt.barrier()
        array = np.full(3, float(rank))
        malt.allreduce(array, "sum", algorithm="tree")
        return s.pull().sum(), array[0], malt.clock() > 10

    assert malt.simulate(live, 3, network=links()) == [(3.0 * N, 3.0, True)] * 3


def test_the_program_of_the_page(capsys):
    exec(EXAMPLES["planning"], {})
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert printed.err == "", "its model changes"
    assert [line.split(":")[0] for line in lines] == ["2 ranks", "8 ranks", "32 ranks"]
    # An exchange with log2(ranks) peers: payloads of 1 MB in sequence, headers, four latencies; then contention.
    for line, peers in zip(lines, (1, 3, 5), strict=True):
        least_s = 10 * (0.02 + peers * (1e6 + 192) / 1.25e9 + 4 * 50e-6)
        assert least_s - 0.001 < float(line.split()[2]) < (1 if peers == 1 else 1.3) * least_s + 0.001
