"""Every Window and Transport without MPI keeps the promises of dstorm/transport.py."""

from __future__ import annotations

import threading
import time
import uuid
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from carried import LateWindow, run_carried
from contracts import check_edge, check_transport, check_window
from ranks import at_once
from schedules import complete, send

from dstorm import Group, Network, Queues, SimulatedTransport, SoloTransport, TimedGroup, parse
from dstorm.membership.resilient import SurvivingTransport
from dstorm.membership.votes import first
from dstorm.transports.links.arbiter import Arbiter
from dstorm.transports.links.endpoints import Exchange
from dstorm.transports.links.links import Links
from dstorm.transports.links.server import shut
from dstorm.transports.shm import SharedMemory
from dstorm.transports.solo import LoneTransport
from dstorm.transports.tcp import LinkedTransport

SIZE = 3
NBYTES = 1 << 23


def simulated(_folder, seed=0):
    def run(body):
        group = Group(SIZE, seed)
        return group.run(lambda rank: body(SimulatedTransport(group, rank)))

    return run


def surviving_simulated(_folder):
    """As the tests of failures have it."""

    def run(body):
        group = Group(SIZE, 1)

        def live(rank):
            inner = SimulatedTransport(group, rank)
            return body(SurvivingTransport(inner, inner.window(NBYTES), list, 5.0))

        return group.run(live)

    return run


def solo(_folder):
    return lambda body: [body(SoloTransport())]


def test_a_rank_that_works_without_the_others_is_the_one_that_is_left():
    transport, part = LoneTransport(2, ["a", "b", "b"]), np.ones(3, np.uint8)
    assert transport.allgather(b"x") == [b"", b"", b"x"]
    assert {rank: one.tolist() for rank, one in transport.alltoall({0: part, 2: part}).items()} == {2: [1, 1, 1]}
    transport.allreduce(part, "mean", {2: 1.0})
    assert part.tolist() == [1, 1, 1]


def pause(polls):
    """As `yield_core`, which would keep Python's lock: here the other ranks are threads."""
    time.sleep(1e-6)


def in_threads(make, body):
    """body(make(rank)) on each rank, as threads; raises what one of them raised."""
    results, errors = [None] * SIZE, []

    def live(rank):
        try:
            transport = make(rank)
            results[rank] = body(transport)
            transport.close()
        except BaseException as error:
            errors.append(error)

    at_once(live, range(SIZE))
    if errors:
        raise errors[0]
    return results


@pytest.mark.parametrize("duties", [[], [int]])
def test_a_collective_call_that_others_never_make_is_named(duties):
    """Whether the ranks in it do nothing meanwhile, or attend to their duties."""

    def live(rank):
        if rank < 2:
            transport = SimulatedTransport(group, rank)
            transport.duties += duties
            transport.barrier()

    group = Group(SIZE)
    with pytest.raises(RuntimeError, match=r"ranks \[0, 1\] wait in a collective call that the others, now finished"):
        group.run(live)


def one_host(folder):
    """Ranks that share memory."""

    def run(body):
        path = folder / uuid.uuid4().hex

        def make(rank):
            arena = SharedMemory(path, rank, range(SIZE), NBYTES, lambda: None)
            place = LoneTransport(rank, ["a"] * SIZE)
            place.pause = pause
            return SurvivingTransport(place, arena, list, 30.0, discard=arena.discard)

        return in_threads(make, body)

    return run


def several_hosts(folder, end=lambda ranks: None, leave=pytest.fail):
    """Ranks 0 and 1 share memory; rank 2 is at the end of TCP connections."""
    hosts = ["a", "a", "b"]

    def run(body):
        name = uuid.uuid4().hex
        exchanges = [Exchange(rank, "0f" * 32, name) for rank in range(SIZE)]
        endpoints = {rank: one.endpoint for rank, one in enumerate(exchanges)}
        connections = []

        def make(rank):
            place = LoneTransport(rank, hosts)
            place.pause = pause
            far = {other: endpoint for other, endpoint in endpoints.items() if other not in place.local_ranks}
            out, into = exchanges[rank].connect(far, 30.0)
            connections.extend([*out.values(), *into.values()])
            local_ranks = place.local_ranks
            memory = SharedMemory(folder / f"{name}-{local_ranks[0]}", rank, local_ranks, NBYTES, lambda: None)
            arbiter = Arbiter(rank, SIZE)
            links = Links(memory.memory, out, into, arbiter, leave, None)
            return LinkedTransport(
                place, memory, links, arbiter, list, end, 30.0, pytest.fail, lambda rank: False
            )  # fmt: skip

        try:
            return in_threads(make, body)
        finally:  # that of a rank lasts until its process ends
            for connection in connections:
                shut(connection)
                connection.close()

    return run


def test_a_rank_of_several_hosts_that_comes_back_is_no_member_before_the_agreement_says_so(tmp_path):
    """Others may have admitted it before: their words come over other connections."""
    memory = SharedMemory(tmp_path / "arena", 1, [1], NBYTES, lambda: None)
    arbiter = Arbiter(1, 2, incarnation=1)
    links = Links(memory.memory, {}, {}, arbiter, pytest.fail, unreached=[0])
    made = LinkedTransport(
        LoneTransport(1, ["a", "b"]), memory, links, arbiter, list, pytest.fail, 5.0, pytest.fail, None, pytest.fail
    )  # fmt: skip
    assert not made.returns.is_member()
    arbiter.note(0, first(2)._replace(incarnations=(0, 1), epoch=1).to_bytes())
    assert made.returns.is_member()
    made.close()


def timed(hosts, latency_s, jitter_s=0.0):
    """On a network. With jitter messages may overtake each other; then each waits for its flush."""

    def run(body):
        network = Network(latency_s, 1e9, list(hosts), jitter_s)
        network.buffers = not jitter_s
        group = TimedGroup(len(hosts), 0, network)
        return group.run(lambda rank: body(SimulatedTransport(group, rank)))

    return run


MAKERS = {
    "simulated": simulated, "simulated anew": partial(simulated, seed=7), "surviving": surviving_simulated,
    "solo": solo, "one host": one_host, "several hosts": several_hosts,
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("check", [check_window, check_transport, check_edge])
def test_a_transport_keeps_its_promises(check, name, tmp_path: Path):
    options = {}
    if check is check_transport:
        # In a simulation nobody is late: a barrier of ranks that do not all come is an error of the schedule.
        options = {"has_deadlines": name in ("surviving", "one host", "several hosts")}
    elif check is check_edge:
        options = {"has_threads": name in ("one host", "several hosts")}
    check(MAKERS[name](tmp_path), **options)


# Where Puts arrive in pieces, in any order; with `LateWindow` when they are flushed and no sooner.
ACROSS = {
    "no latency": timed("aab", 0.0),
    "latency": timed("aab", 0.04),
    "jitter": timed("abc", 0.01, jitter_s=0.02),
    "pieces": partial(run_carried, hosts="aab", seed=1),
    "nobody carries": partial(run_carried, hosts="ab", seed=2, carried=False),
    "late": partial(run_carried, hosts="aab", seed=3, kind=LateWindow),
}


@pytest.mark.parametrize("name", ACROSS)
def test_an_edge_between_hosts_keeps_its_promises(name):
    check_edge(ACROSS[name], renews=name in ("jitter", "nobody carries"))  # no rank comes back where there are buffers


def test_a_rank_that_the_others_go_on_without_has_failed(monkeypatch, tmp_path: Path):
    """It is on another host: nobody here has seen it end. It learns of that, and leaves, if it lives so long."""
    monkeypatch.setattr(Arbiter, "failed", lambda arbiter: [] if arbiter.rank == 2 else [2])

    def live(transport):
        if transport.rank != 2:
            transport.barrier()
        return set(transport.view.failed)

    assert several_hosts(tmp_path, leave=lambda why: None)(live) == [{2}, {2}, set()]


@pytest.mark.parametrize("collective", ["barrier", "allgather"])
def test_a_scatter_over_links_takes_no_flush_and_a_collective_call_waits_for_it(collective, tmp_path: Path):
    """The transfer thread is held up for as long as the scatters take, and a moment longer."""

    def live(transport):
        queues = Queues(transport, complete(SIZE), parse("asp"), 30.0)
        transport.barrier()
        if transport.rank == 2:
            calling = transport.carrier.calling
            calling.acquire()
            for step in (1, 2, 3):
                send(queues, [0, 1], step, np.full(16, step, np.uint8))
            assert (queues.statistics().superseded, queues.outbox.sent(0)[:2]) == (4, (0, 0))
            threading.Timer(0.2, calling.release).start()
        getattr(transport, collective)(*([b""] if collective == "allgather" else []))
        if transport.rank != 2:
            (message,) = queues.receive(lambda: [2], newest=False)
            assert message.step == 3 and set(message.payload.tolist()) == {3}
        transport.barrier()
        queues.close()
        transport.barrier()
        queues.free()

    several_hosts(tmp_path)(live)


def test_the_heartbeat_of_a_step_leaves_by_the_transfer_thread(tmp_path: Path):
    """A step is counted in each scatter, which waits for no link."""

    def live(transport):
        errands, later = [], transport.carrier.later
        transport.carrier.later = lambda errand, peers: errands.append(peers)
        transport._barrier._published_at = float("-inf")
        transport.count_step()
        transport.count_step()
        transport.carrier.later = later
        transport.barrier()
        return len(errands)

    assert several_hosts(tmp_path)(live) == [1, 1, 1]


def test_a_process_is_not_ended_for_the_failure_of_the_former_one(tmp_path: Path):
    ended = []

    def live(transport):
        view = transport.view
        if transport.rank == 0:
            view.change(failed=[1])
            view.change(joined=[1])
            view.report()
            assert ended == []
            view.change(failed=[1])
            view.report()
            assert ended == [1]

    several_hosts(tmp_path, ended.extend)(live)
