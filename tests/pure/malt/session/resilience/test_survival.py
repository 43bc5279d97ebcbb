"""Ranks that fail at any moment: the others agree on who has failed, and their collectives give the same results."""

from __future__ import annotations

import math
import os
import random
import time
from argparse import Namespace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from covering import pairs

import malt
from apps.harness.checkpoints import Checkpoints
from apps.harness.marks import Clock
from dstorm import DeadlinePassed, Group, PeerLost, SimulatedTransport, header
from dstorm.membership.processes import ProcessMonitor, this_process
from dstorm.membership.resilient import SurvivingTransport
from dstorm.queues.consistency import parse
from malt.data import load_ratings, load_svmlight, open_ratings, open_svmlight
from malt.files import checkpoint
from malt.files.checkpoint import Content
from malt.session import session
from malt.session.resilience import start as survival
from malt.session.world.endings import PlainEnding, TolerantEnding
from malt.session.world.world import World
from vol import DenseVector, SparseVector, as_graph

pytestmark = pytest.mark.serial

ARENA = 1 << 23


def run(size, seed, failures, live):
    """Run live(transport) on each rank: the results by rank, None for failed ranks, and the failed ranks."""
    group = Group(size, seed, failures)

    def start(rank):
        inner = SimulatedTransport(group, rank)
        return live(SurvivingTransport(inner, inner.window(ARENA), inner.find_failed, 5.0))

    return group.run(start), group.failed


def doomed(size, seed):
    """Up to size - 1 ranks that fail, each after so many of its turns: early, late, or never."""
    choose = random.Random(seed)
    ranks = choose.sample(range(size), choose.randrange(1, size))
    return {rank: int(2 ** choose.uniform(3, 9)) for rank in ranks}


@pytest.mark.parametrize("seed", range(20))
def test_all_leave_a_barrier_with_the_same_failed_ranks(seed):
    size = 2 + seed % 4

    def live(transport):
        return [transport._barrier.enter("a test") for _ in range(8)]

    lists, failed = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in failed]
    assert ends and all(other == ends[0] for other in ends)
    assert ends[0] == sorted(ends[0], key=len)


@pytest.mark.parametrize("seed", range(6))
def test_the_rank_that_decides_may_fail_at_any_moment(seed):
    """Rank 0 decides. If it fails rank 1 decides, which may fail a little later: at every second turn."""

    def live(transport):
        return [transport._barrier.enter("a test") for _ in range(3)]

    for turn in range(4 + seed % 2, 60, 2):
        for failures in ({0: turn}, {0: turn, 1: turn + seed}):
            lists, failed = run(4, seed, failures, live)
            ends = [lists[rank] for rank in range(4) if rank not in failed]
            assert all(other == ends[0] for other in ends), failures


def test_who_copies_for_long_gives_heartbeats(monkeypatch):
    monkeypatch.setattr("dstorm.membership.collectives.rounds._COPIED_NBYTES", 16)

    def live(transport):
        given = [transport._barrier._heartbeats]
        for call in (transport.broadcast, transport.allreduce):
            call(np.ones(100))
            given.append(transport._barrier._heartbeats)
        return np.diff(given).tolist()

    for copied in run(2, 0, {}, live)[0]:
        assert min(copied) >= 800 / 16


@pytest.mark.parametrize("seed", range(16))
def test_mean_and_broadcast_are_those_of_the_live_ranks(seed, monkeypatch):
    monkeypatch.setattr("dstorm.membership.collectives.mailboxes.PIECE_NBYTES", 64)  # many rounds
    size = 2 + seed % 4

    def live(transport):
        made = []
        for _ in range(3):
            array = np.full(50, 2.0**transport.rank, np.float32)
            transport.allreduce(array)
            made.append(array.copy())
            array[:] = transport.rank
            transport.broadcast(array)
            made.append(array.copy())
        return made

    lists, failed = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in failed]
    for mine in ends:
        for one, other in zip(mine, ends[0], strict=True):
            assert one.tobytes() == other.tobytes()
            assert len(set(one.tolist())) == 1  # one and the same group for all elements
    assert ends[0][-1][0] <= min(set(range(size)) - failed)


@pytest.mark.parametrize("seed", range(12))
def test_a_mean_is_over_the_ranks_that_count(seed, monkeypatch):
    """If all of them have failed, it is over all live ranks."""
    monkeypatch.setattr("dstorm.membership.collectives.mailboxes.PIECE_NBYTES", 64)
    size = 3 + seed % 3
    among = {0, seed % size}

    def live(transport):
        array = np.full(50, 2.0**transport.rank if transport.rank in among else np.inf, np.float32)
        try:
            transport.allreduce(array, weights=dict.fromkeys(among, 1.0))
        except ValueError:  # on all ranks: all of them have failed
            transport.allreduce(array)
        return array

    lists, failed = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in failed]
    assert all(other.tobytes() == ends[0].tobytes() for other in ends)
    assert np.isfinite(ends[0]).all() == bool(np.isfinite(ends[0]).any())
    if among - failed:
        groups = [group for group in ({0}, among, {seed % size}) if group & among]
        assert ends[0][0] in [sum(2.0**rank for rank in group) / len(group) for group in groups]


@pytest.mark.parametrize("seed", range(16))
def test_a_rank_that_entered_the_last_barrier_has_not_failed(seed):
    """Its process may end before the others leave the barrier."""
    reports = {}

    def live(transport):
        note = lambda change: reports.setdefault(transport.rank, set()).update(one.rank for one in change.failed)  # noqa: E731
        transport.view.subscribe(note)
        transport.barrier("malt.finalize", final=True)
        return True

    size = 2 + seed % 4
    early = {size - 1: 1} if seed % 2 else {}
    group = Group(size, seed, early)

    def start(rank):
        inner = SimulatedTransport(group, rank)
        ended = live(SurvivingTransport(inner, inner.window(ARENA), inner.find_failed, 5.0))
        group.failed.add(rank)  # its process ends
        return ended

    group.run(start)
    for rank, ranks in reports.items():
        assert ranks <= set(early), (rank, ranks)


@pytest.mark.parametrize("seed", range(16))
def test_all_live_ranks_load_a_checkpoint(tmp_path, seed):
    """It is whole, whichever rank fails while it is read and sent, and whether the others know that or not."""
    size = 2 + seed % 4
    path = tmp_path / "state.ckpt"
    checkpoint.write(str(path), Content("", {}, {"w": np.arange(3000.0), "epoch": np.array(7)}))

    def live(transport):
        session.enter_simulation(World(transport))
        state = malt.Checkpoint(path).load()
        return state is not None and int(state["epoch"]) == 7 and (state["w"] == np.arange(3000.0)).all()

    lists, failed = run(size, seed, doomed(size, seed), live)
    assert all(lists[rank] for rank in range(size) if rank not in failed)


@pytest.mark.parametrize("seed", range(16))
def test_parts_by_rank_are_saved_and_put_back_while_ranks_fail(tmp_path, seed):
    """The file is complete whenever it is there, and the live ranks go on alike: each with its part, or all anew."""
    size = 2 + seed % 4
    path = tmp_path / "state.ckpt"

    def live(transport):
        session.enter_simulation(World(transport))
        one, own = malt.Checkpoint(path), np.full(500, float(transport.rank))
        one.save({"epoch": 7}, force=True, mine={"own": own})
        own[:] = -1
        while True:
            found = one.restore({}, mine={"own": own})
            if found is None:  # the writer has failed before: the next one writes
                one.save({"epoch": 7}, force=True, mine={"own": np.full(500, float(transport.rank))})
                continue
            return int(found["epoch"]), own[0], own[-1]

    found, failed = run(size, seed, doomed(size, seed), live)
    living = [rank for rank in range(size) if rank not in failed]
    assert all(found[rank][0] == 7 and found[rank][1] == found[rank][2] for rank in living)
    firsts = [found[rank][1] for rank in living]
    assert firsts in (living, [-1] * len(living))
    content = checkpoint.read(str(path))
    assert content.ranks == size and set(content.parts) >= set(living)
    assert all((part.arrays[0] == rank).all() for rank, part in content.parts.items())


@pytest.mark.parametrize("turns", range(1, 40, 3))
def test_the_last_checkpoint_is_written_though_the_lowest_rank_fails_before(tmp_path, turns):
    file = tmp_path / "state.ckpt"
    options = Namespace(checkpoint=str(file), checkpoint_every=60.0, resume=False, epochs=7)

    def live(transport):
        session.enter_simulation(World(transport))
        kept = Checkpoints(options, "a test", {}, 0.0)
        kept.conclude(7, 70, Clock(), {"w": np.arange(3)}, {"w": np.arange(4)})
        return int(checkpoint.read(str(file)).arrays["epoch"])

    found, failed = run(3, turns, {0: turns}, live)
    assert found == [None if rank in failed else 7 for rank in range(3)]


def make_vector(transport, sync, size=3, graph="all"):
    return DenseVector(
        np.zeros(4, np.float32), transport, malt.graph(graph, size), parse(sync),
        depth=2, deadline_s=5, check_finite=False, name="v",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sync", "graph", "seed"),
    pairs(["bsp", "ssp:1", "notify-ack", "asp"], ["all", "ring", "exponential"], range(12)),
)
def test_no_rank_waits_for_one_that_fails_at_any_moment(sync, graph, seed):
    def live(transport):
        vector = make_vector(transport, sync, graph=graph)
        for _ in range(15):
            vector.scatter()
            vector.gather()
        vector.close()  # what comes from now on is acknowledged by nobody
        return vector.step

    lists, failed = run(3, seed, {2: 44 + 6 * seed}, live)
    assert all(lists[rank] == 15 for rank in range(3) if rank not in failed)


@pytest.mark.parametrize(("graph", "depth", "doomed"), [("ring", 2, 1), ("ring", 1, 3), ("star", 1, 0)])
def test_a_mended_edge_delays_no_rank(graph, depth, doomed):
    """Under bsp a new in-neighbour may be many steps behind: what it sends fills the slots, and is of no use here.

    One rank is slow, so that those behind it wait for one another when another fails.
    """
    size, steps = 5, 8

    def live(transport):
        v = DenseVector(np.zeros(4), transport, as_graph(graph, size), parse("bsp"), depth=depth, deadline_s=5)
        sends = takes = 0
        seen = []
        for step in range(1, steps + 1):
            for _ in range(12 if transport.rank == (doomed == 0) else 0):
                transport.pause(14)
            v.scatter()
            sends = sends or (step if v._topology.seen.version else 0)
            gathered = v.gather()
            takes = takes or (step if transport.view.failed else 0)
            seen.append(set(zip(gathered.senders, gathered.steps, strict=True)))
        transport.barrier("the end")
        return sends, takes, seen, v.statistics().peers

    for turn in range(20, 230, 30):
        found, failed = run(size, turn, {doomed: turn}, live)
        assert failed == {doomed}
        ends = {rank: found[rank] for rank in range(size) if rank != doomed}
        left = as_graph(graph, size).without(failed)
        for rank, (_, takes, seen, peers) in ends.items():
            for step, merged in enumerate(seen, 1):
                assert {at for _, at in merged} <= {step}
                for peer in left.into(rank, step):  # once this rank knew of the failure, and the peer sent there
                    assert (peer, step) in merged or not (takes and takes <= step and 0 < ends[peer][0] <= step)
            for peer in ends.keys() & peers.keys():
                mine = peers[peer]
                assert ends[peer][3][rank].sent == mine.gathered + mine.overwritten + mine.refused + mine.pending


@pytest.mark.parametrize("seed", range(8))
def test_the_live_ranks_agree_along_what_is_left_of_a_base_graph(seed):
    """Its averages are not exact any more: what is left approaches a mean."""
    size = 5 + seed % 4

    def live(transport):
        v = DenseVector(np.full(2, float(transport.rank)), transport, as_graph("base", size), parse("bsp"))
        for _ in range(80):
            v.scatter()
            v.gather()
        return v.array

    found, failed = run(size, seed, doomed(size, seed), live)
    ends = np.array([found[rank] for rank in range(size) if rank not in failed])
    assert np.ptp(ends) < 1e-3 and 0 <= ends.min() <= ends.max() <= size - 1


def test_a_mended_edge_delays_no_rank_at_the_end():
    """A rank that has made all its steps waits for the others outside a gather."""
    reports = []

    def live(transport):
        v = DenseVector(np.zeros(4), transport, as_graph("ring", 6), parse("bsp"), depth=1, deadline_s=5)
        for step in (1, 2, 3):
            while transport.rank == 0 and step == 2 and not transport.view.failed:
                transport.pause(14)
            v.scatter()
            if transport.rank == 2 and step == 3:
                while 3 not in reports:
                    transport.pause(14)
                transport._place._group._turns_left[1] = 1
                transport._place._group._fail(2)
            v.gather()
        reports.append(transport.rank)
        transport.barrier("the end")
        return v.statistics().overwritten

    found, failed = run(6, 0, {}, live)
    assert failed == {1, 2} and found[0] == 0 and found[3] == 2


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("graph", ["all", "ring"])
def test_pending_rows_are_sent_after_a_failure(graph, seed):
    """With top_k all rows pending for a peer reach it, though other peers of the same rows have failed."""
    n = 50

    def live(transport):
        vector = SparseVector(
            np.zeros(n, np.float32), transport, as_graph(graph, 4), parse("notify-ack"), depth=2, deadline_s=5,
            check_finite=False, name="v", top_k=1,
        )  # fmt: skip
        got = np.zeros(n)
        for step in range(60):
            vector.array[:] = 0
            if transport.rank == 0 and step == 0:
                vector.array[:] = 1 + np.arange(n)
            vector.scatter()
            vector.array[:] = 0
            vector.gather(malt.SUM)
            got += vector.array
            transport.pause(14)
        return got

    lists, failed = run(4, seed, {2: 60 + 5 * seed}, live)
    assert failed == {2}
    for rank in (1, 3) if graph == "all" else (1,):
        assert (lists[rank] == 1 + np.arange(n)).all()


@pytest.mark.parametrize("seed", range(4))
def test_half_a_header_of_a_failed_rank_is_no_message(seed):
    """Under bsp the receiver would wait for the rest of it."""

    def live(transport):
        vector = make_vector(transport, "bsp")
        for step in range(1, 9):
            if transport.rank == 1 and step == 4:
                edge = vector._queues.outbox.edges[0]
                torn, window = np.zeros(header.NBYTES, np.uint8), vector._queues.window
                header.write(torn.data, 0, 4, 4, header.WRITING)
                window.put(torn[24:], 0, edge.slots[3 % 2] + 24)
                window.flush([0])
                while True:  # until it has failed
                    transport.pause(10)
            vector.array[:] = transport.rank
            vector.scatter()
            vector.gather()
        return vector.step

    lists, failed = run(3, seed, {1: 3000}, live)
    assert failed == {1} and lists[0] == lists[2] == 8


class Reported(Exception):
    pass


def with_callbacks(transport, monkeypatch):
    """A session on `transport` with two callbacks that raise, and the ranks that they are called with."""
    monkeypatch.setattr("malt.session.resilience.start._reason", lambda world, rank: "it was to die")
    world, reports = World(transport, 5.0, ending=TolerantEnding()), []
    session.enter_simulation(world)
    transport.view.subscribe(lambda one: survival.report(world, transport, one, ProcessMonitor({}, transport.clock)))

    def report(name, rank):
        reports.append((name, rank))
        raise Reported(name)

    malt.on_death(partial(report, "first"))
    malt.on_death(partial(report, "second"))
    return reports


@pytest.mark.parametrize("seed", range(4))
def test_callbacks_may_raise_before_anything_is_sent(seed, monkeypatch):
    """All are called; one scatter raises the first error."""

    def live(transport):
        reports, raised = with_callbacks(transport, monkeypatch), []
        vector = make_vector(transport, "asp")
        for step in range(60):
            try:
                vector.scatter()
            except Reported as error:
                raised.append(str(error))
                assert vector.step == step
                vector.scatter()
            transport.pause(14)
        return vector.step, raised, reports

    lists, failed = run(3, seed, {1: 80 + 10 * seed}, live)
    assert failed == {1} and lists[0] == lists[2] == (60, ["first"], [("first", 1), ("second", 1)])


def test_a_rank_meets_no_other_after_the_last_barrier_of_the_session():
    """Where they end together, as under torchrun: its process may end, which others would take for a failure."""

    def live(transport):
        world = World(transport, 5.0, ending=PlainEnding())
        session.enter_simulation(world)
        malt.vector(5).close()
        before = transport._barrier.next_number
        world.close()
        return transport._barrier.next_number - before, world.vectors, world.survive

    assert run(3, 0, {}, live)[0] == [(1, [], False)] * 3


def test_failed_ranks_are_reported_with_the_reason(monkeypatch):
    def live(transport):
        with_callbacks(transport, monkeypatch)
        assert malt.init().survive and malt.lost_ranks() == []
        while not malt.lost_ranks():
            transport.pause(1)
        [lost] = malt.lost_ranks()
        known = malt.init().failures
        assert (lost.at, lost.at_s) == known.lost[1] and lost.reason == known.reasons[1] != ""
        assert lost.at_s <= malt.clock()
        return lost.rank

    lists, failed = run(3, 0, {1: 60}, live)
    assert failed == {1} and lists[0] == lists[2] == 1


@pytest.mark.parametrize("seed", range(4))
def test_callbacks_are_called_in_no_collective_call(seed, monkeypatch):
    """If one raised while a vector is made, its memory would lie elsewhere than on the other ranks."""

    def live(transport):
        reports, places, raised = with_callbacks(transport, monkeypatch), [], 0
        for _ in range(6):
            v = malt.vector(100)
            places.append(v._queues.window._start)
            malt.barrier()
            transport.allreduce(v.array)
            session.is_lowest()
            assert not reports
        for call in (malt.alive, partial(malt.shard, 10), v.scatter, v.gather):
            try:
                call()
            except Reported:
                raised += 1
        return places, raised, reports

    found, failed = run(3, seed, {1: 40 + 10 * seed}, live)
    assert failed == {1} and found[0] == found[2] and found[0][1:] == (1, [("first", 1), ("second", 1)])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_rank_that_fails_while_a_scatter_waits_for_it(seed, named):
    """A scatter that names it raises PeerLost; one to all sends to the live ranks."""

    def live(transport):
        vector = make_vector(transport, "notify-ack")
        sent, step = [], 0
        try:
            while transport.rank == 0 and len(sent) < 20:
                sent.append(vector.scatter(to=1 if named else None))
                step += 1
        except PeerLost as error:
            sent.append(("lost", error.rank, vector.step - step))
        while True:
            vector.gather()
            try:
                transport.barrier("the end", 0.001)
                return sent
            except DeadlinePassed:
                continue

    turn = random.Random(seed).randrange(100, 600)
    lists, _ = run(3, seed, {1: turn}, live)
    whole, sent = 2 * 16, lists[0]
    if named:
        assert set(sent[:-1]) <= {16} and sent[-1] in (16, ("lost", 1, 0))
        assert len(sent) == 20 or sent[-1] != 16
    else:
        assert len(sent) == 20 and all(one in (whole, 16) for one in sent) and sent == sorted(sent, reverse=True)


@pytest.mark.parametrize("seed", range(8))
def test_the_memory_of_freed_windows_is_used_again(seed):
    """Each rank puts into all its windows; then all free one of them. Sizes vary."""
    size = 2 + seed % 4
    choose = random.Random(seed)
    plan = [(choose.randrange(3), choose.choice([1, 5000, 40_000])) for _ in range(12)]

    def live(transport):
        held, places = [], []
        for turn, (place, nbytes) in enumerate(plan):
            if len(held) == 3:
                held.pop(place)[0].free()
            window = transport.window(max(nbytes - 9000 * transport.rank, 1))
            assert not window.memory.any(), turn
            places.append(window._start)
            transport.barrier()
            held.append((window, np.full(window.memory.nbytes, 1 + turn, np.uint8)))
            others = [rank for rank in range(size) if rank != transport.rank and rank not in transport.view.failed]
            for one, filling in held:
                for peer in others:
                    one.put(filling, peer, 0)
                one.flush(others)
            transport.barrier()
            for one, filling in held:
                assert set(one.memory.tolist()) <= {0, filling[0]}
        return places

    places, failed = run(size, seed, doomed(size, seed), live)
    ends = [places[rank] for rank in range(size) if rank not in failed]
    assert all(other == ends[0] for other in ends)
    assert len(set(ends[0])) < len(plan)


@pytest.mark.parametrize("seed", range(9))
def test_the_memory_of_closed_vectors_is_used_again(seed):
    """Each rank closes its own at any time; some vectors do not fit; ranks fail meanwhile."""
    size = 2 + seed % 3

    def live(transport):
        session.enter_simulation(World(transport, 5.0))
        choose, own = random.Random(seed), random.Random(100 * seed + transport.rank)
        held, places = [], []
        for turn in range(16):
            length = choose.choice([10, 2_000, 20_000, ARENA])
            if length == ARENA:
                with pytest.raises(MemoryError, match="in one piece"):
                    malt.vector(length)
                continue
            v = malt.vector(length, graph="ring")
            places.append(v._queues.window._start)
            v.array[:] = turn
            held.append((turn, v))
            for value, one in held:
                one.scatter()
                one.gather()
                assert set(one.array.tolist()) == {value}
            for _, one in own.sample(held, own.randrange(len(held) + 1)):
                one.close()
            held = [one for one in held if not one[1].closed]
        return places

    places, failed = run(size, seed, doomed(size, seed), live)
    ends = [places[rank] for rank in range(size) if rank not in failed]
    assert all(other == ends[0] for other in ends)
    assert len(set(ends[0])) < len(ends[0])


def test_a_window_that_is_freed_twice_is_freed_once():
    def live(transport):
        first = transport.window(100)
        first.free()
        second = transport.window(100)
        first.free()
        assert first.memory.nbytes == 0
        return second._start == transport.window(100)._start

    assert run(2, 0, {}, live)[0] == [False, False]


@pytest.mark.parametrize("seed", range(4))
def test_links_to_failed_ranks_are_cut_before_memory_is_used_again(seed):
    """A subscriber of the view cuts links to failed ranks; until then what they sent may arrive."""

    def live(transport):
        first = transport.window(5000)
        memory = first.memory
        transport.view.subscribe(lambda change: memory.fill(7))
        first.free()
        if transport.rank == 2:
            transport._place._group._fail(2)
        again = transport.window(5000)
        assert again._start == first._start and not again.memory.any()
        return transport.view.failed

    assert [found for found in run(4, seed, {}, live)[0] if found] == [frozenset({2})] * 3


def evicting(size, live, deadline_s=5.0):
    """Run live(transport) on ranks that may be evicted: the evicted ranks. Their ends are found a second later."""
    group, killed_at = Group(size, 0), {}

    def start(rank):
        inner = SimulatedTransport(group, rank)

        def evict(other):
            group.failed.add(other)
            killed_at.setdefault(other, group.now)
            return True

        seen = lambda: [other for other in group.failed if group.now > killed_at[other] + 1]  # noqa: E731
        return live(SurvivingTransport(inner, inner.window(ARENA), seen, deadline_s, evict=evict))

    group.run(start)
    return group.failed


def compute(transport, until_s=math.inf):
    """Run without any call of malt."""
    while transport.clock() < until_s:
        transport._place.pause(30)


@pytest.mark.parametrize("sync", ["bsp", "ssp:1", "notify-ack", "asp"])
def test_a_rank_without_heartbeats_is_evicted(sync):
    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph("ring", 4), parse(sync), deadline_s=5.0)
        if transport.rank == 2:
            compute(transport)
        for _ in range(5):
            v.scatter()
            v.gather()
        v.close()
        transport.barrier("Replica.finish")
        assert transport.view.failed == {2} and transport.was_evicted(2) and not transport.was_evicted(1)
        assert 6 < transport.clock() < 9 and transport.clock() - transport.heard_at(2) > 5

    assert evicting(4, live) == {2}


def test_a_rank_that_waits_or_has_heartbeats_is_not_evicted():
    """Rank 0 waits for rank 1, which waits for rank 2, which works for three deadlines."""

    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph({0: [1, 2], 1: [0], 2: [1]}, 3), parse("bsp"), deadline_s=5.0)
        while transport.rank == 2 and transport.clock() < 16:
            compute(transport, transport.clock() + 4)
            transport.heartbeat()
        for _ in range(3):
            v.scatter()
            v.gather()

    assert evicting(3, live) == set()


def test_a_circle_of_waits_evicts_no_rank():
    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph("all", 2), parse("notify-ack"), deadline_s=5.0)
        v.scatter()
        with pytest.raises(DeadlinePassed):
            v.scatter()

    assert evicting(2, live) == set()


def test_the_last_barrier_evicts_no_rank():
    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph("all", 2), parse("asp"))
        if transport.rank == 1:
            compute(transport, 8)
            v.close()
        else:
            with pytest.raises(DeadlinePassed):
                transport.barrier("malt.finalize", final=True)
        transport.barrier("malt.finalize", final=True)

    assert evicting(2, live) == set()


@pytest.mark.parametrize("sync", ["bsp", "ssp:1", "notify-ack"])
def test_heartbeats_count_in_waits_of_vectors(sync):
    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph("all", 2), parse(sync), deadline_s=5.0)
        while transport.rank == 1 and transport.clock() < 16:
            compute(transport, transport.clock() + 4)
            transport.heartbeat()
        for _ in range(3):
            v.scatter()
            v.gather()
        return transport.clock()

    assert min(run(2, 0, {}, live)[0]) > 15


def test_a_full_arena_is_an_error():
    def live(transport):
        with pytest.raises(MemoryError, match="in one piece of what was reserved"):
            transport.window(ARENA)

    run(2, 0, {}, live)


def largest(own, updates):
    for update in updates:
        own[update.rows] = np.maximum(own[update.rows], update.values)


@pytest.mark.parametrize(
    ("graph", "function", "seed"), pairs(["ring", "one-peer", "star", "exponential"], [largest, malt.AVG], range(3))
)
def test_pending_rows_of_new_peers_are_sent_within_the_capacity(graph, function, seed):
    """All rows that changed before are pending for a rank that becomes a neighbour when another fails: many times the
    capacity. Nothing raises, and all live ranks get all rows. What the user changes must fit, as ever."""
    size, n = 3 + seed % 3, 60

    def live(transport):
        v = SparseVector(
            np.zeros((n, 1), np.float32), transport, as_graph(graph, size), parse("asp"), capacity=4, depth=200
        )
        own = np.arange(transport.rank, n, size)
        for step in range(40):
            v.array[own[step % len(own)]] += 1 + transport.rank
            v.scatter()
            v.gather(function)
        before, reports = [], [b"1"]
        while function is largest and (b"1" in reports or before != reports):
            mine, before = False, reports
            for _ in range(v._topology.now.graph.period):
                transport.barrier()
                mine |= v.scatter() > 0
                transport.barrier()
                v.gather(function)
            reports = transport.allgather(b"1" if mine else b"0")
        values = v.array.ravel().tolist()
        v.array[:5] += 1
        if len(v._topology.now.graph.remaining) > 1:
            with pytest.raises(ValueError, match="[5-9] rows are to be sent, and capacity=4"):
                v.scatter()
        return values

    found, failed = run(size, seed, doomed(size, seed), live)
    ends = [found[rank] for rank in range(size) if rank not in failed]
    if function is largest:
        assert all(values == ends[0] for values in ends)
        assert all(min(ends[0][rank::size]) > rank for rank in range(size) if rank not in failed)


def test_statistics_list_neighbours_and_former_neighbours():
    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph("ring", 5), parse("asp"))
        reports = [sorted(v.statistics().peers)]
        v.scatter()
        transport.barrier()
        if transport.rank == 2:
            transport._place._group._fail(2)
        while not transport.view.failed:
            transport.barrier()
        reports.append(sorted(v.statistics().peers))
        v.scatter()
        v.close()
        return [*reports, sorted(v.statistics().peers)]

    found, _ = run(5, 0, {}, live)
    assert found[0] == [[1, 4], [1, 4], [1, 4]]
    assert found[1] == [[0, 2], [0, 2, 3], [0, 2, 3]]
    assert found[3] == [[2, 4], [1, 2, 4], [1, 2, 4]]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("kind", ["svmlight", "ratings"])
def test_live_ranks_load_the_whole_file_whichever_rank_fails_meanwhile(tmp_path, kind, seed):
    path = tmp_path / "rows"
    if kind == "svmlight":
        path.write_text("".join(f"{1 if row % 3 else -1} {row % 7 + 1}:1 9:{row}\n" for row in range(50)))
        load = lambda transport: open_svmlight(path, transport=transport).X[:, [8]].toarray().ravel().tolist()  # noqa: E731
        whole = [float(row) for row in range(50)]
    else:
        path.write_text("".join(f"{row // 3} {row % 11} {row}\n" for row in range(50)))
        load = lambda transport: open_ratings(path, transport=transport).ratings.tolist()  # noqa: E731
        whole = [float(row) for row in range(50)]
    os.utime(path, (1, 1))  # one that was written to just now is waited for
    failures = doomed(4, seed)
    loaded, failed = run(4, seed, failures, load)
    assert [loaded[rank] for rank in range(4) if rank not in failed] == [whole] * (4 - len(failed))
    assert any(rank not in failed for rank in range(4))


def test_the_parts_of_the_live_ranks_are_all_rows(tmp_path):
    path = tmp_path / "rows"
    path.write_text("".join(f"{1 if row % 3 else -1} 1:{row}\n" for row in range(50)))

    def live(transport):
        for _ in range(200):
            transport.barrier()
        return load_svmlight(path, transport=transport), load_ratings(ratings, transport=transport)

    ratings = tmp_path / "ratings"
    ratings.write_text("".join(f"{row // 3} {row % 11} {row}\n" for row in range(50)))
    loaded, failed = run(4, 1, {2: 40}, live)
    assert failed == {2}
    parts = [loaded[rank] for rank in (0, 1, 3)]
    assert [part.rows for part, _ in parts] == [slice(0, 16), slice(16, 33), slice(33, 50)]
    assert sorted(value for _, part in parts for value in part.ratings) == list(range(50))


def test_one_that_comes_later_watches_the_latest_process_of_each_rank(monkeypatch):
    """It may ask long after its start: others may have been started again meanwhile."""
    ended = this_process()._replace(started=1)
    started, monitor = {0: this_process(), 1: ended}, ProcessMonitor({}, time.monotonic)
    monkeypatch.setattr(survival, "processes", lambda _: started)
    ranks, reports = SimpleNamespace(rank=0, size=2), SimpleNamespace(read=lambda: None)
    assert survival._ended(ranks, monitor, reports) == {1}
    started[1] = this_process()
    assert survival._ended(ranks, monitor, reports) == set()
