"""Messages of simulated ranks take the time that they take on the network: exactly, on links of 64 bytes a second."""

from random import Random

import numpy as np
import pytest

from dstorm import Network, SimulatedTransport, TimedGroup
from dstorm.errors import TransferFailed
from dstorm.transports.simulated.network import MEMORY_BANDWIDTH
from dstorm.transports.simulated.timeline import Timeline

LATENCY_S, NBYTES, MESSAGE_S = 1.0, 128, 2.0
COPY_S = NBYTES / MEMORY_BANDWIDTH


def network(**options):
    return Network(LATENCY_S, NBYTES / MESSAGE_S, **options)


def played(size, links, puts, seed=0):
    """By sender and receiver of `puts`, seconds until the message is there, and until the sender's flush returns."""
    group, seen = TimedGroup(size, seed, links), {}

    def live(rank):
        transport = SimulatedTransport(group, rank)
        window, start = transport.window(NBYTES * size), transport.clock()
        peers = [peer for origin, peer in puts if origin == rank]
        for peer in peers:
            window.put(np.full(NBYTES, 1, np.uint8), peer, NBYTES * rank)
        awaited = {origin for origin, peer in puts if peer == rank}
        if peers:
            window.flush(peers)
            flushed_s = transport.clock() - start
            seen.update({(rank, peer): flushed_s for peer in peers})
        arrived, polls = {}, 0
        while awaited:
            here = {origin for origin in awaited if window.memory[NBYTES * origin]}
            arrived |= {(origin, rank, "arrived"): transport.clock() - start for origin in here}
            awaited -= here
            if awaited:
                transport.pause(polls)
                polls += 1
        seen.update(arrived)

    group.run(live)
    return seen


CASES = {
    "a message takes the latency and its bytes": ("ab", [(0, 1)], [3.0], [4.0]),
    "messages for one host come in one after the other": ("abc", [(0, 2), (1, 2)], [3.0, 5.0], [4.0, 6.0]),
    "messages of one host leave in sequence": ("abc", [(0, 1), (0, 2)], [3.0, 5.0], [6.0, 6.0]),
    "ranks of hosts of their own do not": ("abcd", [(0, 2), (1, 3)], [3.0, 3.0], [4.0, 4.0]),
    "ranks of a host share its link": ("aacd", [(0, 2), (1, 3)], [3.0, 5.0], [4.0, 6.0]),
    "both directions of a link are free": ("ab", [(0, 1), (1, 0)], [], [4.0, 4.0]),
    "a message inside a host is a copy": ("aa", [(0, 1)], [], [COPY_S]),
}


@pytest.mark.parametrize("case", CASES)
def test_messages_take_time(case):
    """When they arrive, where the receiver has no flush of its own to wait for, and when their flushes return."""
    hosts, puts, arrived, flushed = CASES[case]
    seen = played(len(hosts), network(hosts=list(hosts)), puts)
    assert not arrived or sorted(seen[one, peer, "arrived"] for one, peer in puts) == arrived
    assert sorted(seen[put] for put in puts) == flushed


def test_a_small_array_stands_for_a_large_one():
    links = network()
    links.payload_scale = 3.0
    assert played(2, links, [(0, 1)])[0, 1] == 2 * LATENCY_S + 3 * MESSAGE_S


def test_jitter_is_the_seeds():
    first, again, other = (played(2, network(jitter_s=0.5), [(0, 1)], seed) for seed in (1, 1, 2))
    assert first == again != other
    assert all(3.0 < seen[0, 1, "arrived"] <= 3.5 for seen in (first, other))


def test_a_read_asks_and_is_answered():
    links = network()
    group = TimedGroup(2, 0, links)

    def live(rank):
        transport = SimulatedTransport(group, rank)
        window = transport.window(NBYTES)
        window.memory[:] = rank
        transport.barrier()
        start, found = transport.clock(), np.zeros(NBYTES, np.uint8)
        if rank == 0:
            window.get(found, 1, 0)
        taken_s = transport.clock() - start
        transport.barrier()
        return taken_s, int(found.min())

    assert group.run(live)[0] == (2 * LATENCY_S + MESSAGE_S, 1)


def fails():
    raise ValueError("MPI_ERR_RMA_SYNC")


def test_an_error_of_an_errand_comes_out_where_its_rank_waits():
    group = TimedGroup(2, 0, network())

    def live(rank):
        transport = SimulatedTransport(group, rank)
        if rank == 0:
            transport.carrier.later(fails, [1])
            with pytest.raises(TransferFailed):
                transport.barrier()
        transport.carrier = None
        transport.barrier()
        return transport.clock()

    assert group.run(live)[0] == 2 * LATENCY_S


def test_errands_are_made_while_their_rank_computes_and_a_barrier_waits_for_them():
    group = TimedGroup(2, 0, network())

    def live(rank):
        transport = SimulatedTransport(group, rank)
        window = transport.window(NBYTES)
        start = transport.clock()
        if rank == 0:

            def errand():
                window.put(np.ones(NBYTES, np.uint8), 1, 0)
                window.flush([1])

            transport.carrier.later(errand, [1])
            transport.compute(1.0)
        transport.barrier()
        return transport.clock() - start, int(window.memory.max())

    assert group.run(live)[1] == (MESSAGE_S + 2 * LATENCY_S + 2 * LATENCY_S, 1)


@pytest.mark.parametrize("hosts, buffers", [("aa", True), ("ab", False)])
def test_there_is_a_transfer_thread_where_there_are_buffers_and_other_hosts(hosts, buffers):
    links = network(hosts=list(hosts))
    links.buffers = buffers
    group = TimedGroup(2, 0, links)
    assert SimulatedTransport(group, 0).carrier is None
    links.buffers = True
    assert (SimulatedTransport(group, 0).carrier is None) == (hosts == "aa")


@pytest.mark.parametrize("call, seconds", [
    (lambda one: one.barrier(), 2.0), (lambda one: one.broadcast(np.ones(NBYTES, np.uint8)), 2.0 + 2 + 2),
    (lambda one: one.allgather(bytes(NBYTES)), 2.0 + 4 + 3 * 2), (lambda one: one.alltoall({}), 4.0),
    (lambda one: one.allreduce(np.ones(NBYTES, np.uint8), "max"), 2.0 + 3 + 3),
], ids=["barrier", "broadcast", "allgather", "alltoall", "allreduce"])  # fmt: skip
def test_collective_calls_end_after_the_last_rank_has_come(call, seconds):
    group = TimedGroup(4, 0, network())

    def live(rank):
        transport = SimulatedTransport(group, rank)
        transport.compute(float(rank))
        call(transport)
        return transport.clock()

    assert group.run(live) == [3.0 + seconds] * 4


def test_at_one_moment_messages_arrive_first_and_a_later_turn_replaces_an_earlier_one():
    timeline, seen = Timeline(1, Random(0)), []
    assert timeline.next() == 0
    timeline.add(0, 5.0)
    timeline.add(0, 2.0)
    timeline.at(2.0, lambda: seen.append(timeline.now))
    assert timeline.next() == 0 and seen == [2.0]
    assert timeline.next() is None and timeline.now == 2.0


@pytest.mark.parametrize("options, why", [
    ({"latency_s": -1.0}, "latency_s must be a finite number"), ({"bandwidth": 0.0}, "bandwidth must be above 0"),
    ({"bandwidth": float("inf")}, "bandwidth must be a finite"), ({"jitter_s": "1"}, "jitter_s must be"),
    ({"hosts": "ab"}, "hosts must be the names"), ({"hosts": [1, 2]}, "hosts must be the names"),
    ({"hosts": ["a"]}, "hosts has 1 name, for 2 ranks"),
])  # fmt: skip
def test_what_is_no_network_is_refused(options, why):
    with pytest.raises(ValueError, match=why):
        TimedGroup(2, 0, Network(**{"latency_s": 1.0, "bandwidth": 1.0, **options}))
