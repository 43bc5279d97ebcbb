"""Ranks that fail at any moment: the others agree on who has failed, and their collectives give the same results."""

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
from ranks import evicting
from ranks import run_surviving as run

import malt
from apps.harness.checkpoints import Checkpoints
from apps.harness.marks import Clock
from dstorm import DeadlinePassed, PeerLost, header
from dstorm.membership.processes import ProcessMonitor, this_process
from dstorm.queues.consistency import parse
from malt.data import load_ratings, load_svmlight, open_ratings, open_svmlight
from malt.files import checkpoint
from malt.files.checkpoint import Content
from malt.session import session
from malt.session.resilience import start as survival
from malt.session.world.endings import PlainEnding, TolerantEnding
from malt.session.world.world import World
from vol import DenseVector, SparseVector, as_graph

ARENA = 1 << 23


def doomed(size, seed):
    """Up to size - 1 ranks that fail, each after so many of its turns: early, late, or never."""
    choose = random.Random(seed)
    ranks = choose.sample(range(size), choose.randrange(1, size))
    return {rank: int(2 ** choose.uniform(3, 9)) for rank in ranks}


def living(size, seed, live):
    """The results of live(transport) on the ranks that live while others fail, by rank."""
    found, failed = run(size, seed, doomed(size, seed), live)
    return {rank: found[rank] for rank in range(size) if rank not in failed}


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
def test_a_rank_that_entered_the_last_barrier_has_not_failed(seed):
    """Its process may end before the others leave the barrier."""
    reports = {}

    def live(transport):
        seen = reports.setdefault(transport.rank, set())
        transport.view.subscribe(lambda change: seen.update(one.rank for one in change.failed))
        transport.barrier("malt.finalize", final=True)
        transport._place._group.failed.add(transport.rank)  # its process ends

    size = 2 + seed % 4
    early = {size - 1: 1} if seed % 2 else {}
    run(size, seed, early, live)
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

    assert all(living(size, seed, live).values())


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

    ends = living(size, seed, live)
    assert all(epoch == 7 and first == last for epoch, first, last in ends.values())
    assert [first for _, first, _ in ends.values()] in ([*ends], [-1] * len(ends))
    content = checkpoint.read(str(path))
    assert content.ranks == size and set(content.parts) >= set(ends)
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

    for turn in range(20, 230, 60):
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

    ends = np.array([*living(size, seed, live).values()])
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
        [lost] = malt.lost_ranks()
        known = malt.init().failures
        assert (lost.at, lost.at_s) == known.lost[1] and lost.reason == known.reasons[1] != ""
        assert lost.at_s <= malt.clock()
        return vector.step, raised, reports, lost.rank

    lists, failed = run(3, seed, {1: 80 + 10 * seed}, live)
    assert failed == {1} and lists[0] == lists[2] == (60, ["first"], [("first", 1), ("second", 1)], 1)


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

    ends = [*living(size, seed, live).values()]
    assert all(other == ends[0] for other in ends)
    assert len(set(ends[0])) < len(ends[0])


@pytest.mark.parametrize("seed", range(4))
def test_links_to_failed_ranks_are_cut_before_memory_is_used_again(seed):
    """A subscriber of the view cuts links to failed ranks; until then what they sent may arrive."""

    def live(transport):
        first = transport.window(5000)
        memory = first.memory
        transport.view.subscribe(lambda change: memory.fill(7))
        for _ in range(2):  # the second time it is free already
            first.free()
        if transport.rank == 2:
            transport._place._group._fail(2)
        again = transport.window(5000 - 900 * transport.rank)
        assert again._start == first._start and again.memory.nbytes == 5000 and not again.memory.any()
        return transport.view.failed

    assert [found for found in run(4, seed, {}, live)[0] if found] == [frozenset({2})] * 3


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


@pytest.mark.parametrize("sync", ["bsp", "ssp:1", "notify-ack"])
def test_a_rank_that_waits_or_has_heartbeats_is_not_evicted(sync):
    """Rank 0 waits for rank 1, which waits for rank 2, which works for three deadlines."""

    def live(transport):
        v = DenseVector(np.zeros(3), transport, as_graph({0: [1, 2], 1: [0], 2: [1]}, 3), parse(sync), deadline_s=5.0)
        while transport.rank == 2 and transport.clock() < 16:
            compute(transport, transport.clock() + 4)
            transport.heartbeat()
        for _ in range(4):
            v.scatter()
            v.gather()
        v.close()
        return transport.clock()

    times = []
    assert evicting(3, lambda transport: times.append(live(transport))) == set()
    assert min(times) > 15


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

    ends = living(size, seed, live)
    if function is largest:
        (values,) = set(map(tuple, ends.values()))
        assert all(min(values[rank::size]) > rank for rank in ends)


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
