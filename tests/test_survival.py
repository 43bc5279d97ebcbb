"""Ranks that die, at any moment: the others agree on who is dead, and their collective calls come to the same."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

import malt
from dstorm import DeadlinePassed, Group, PeerLost, SimulatedTransport, stamp
from dstorm.consistency import parse
from dstorm.survival import SurvivingTransport
from malt import checkpointfile, session
from malt.checkpointfile import Content
from malt.data import load_ratings, load_svmlight, open_ratings, open_svmlight
from vol import DenseVector

pytestmark = pytest.mark.serial

ARENA = 1 << 23


def run(size, seed, deaths, live):
    """live(transport) on each rank; the results by rank, None of those who died, and who did."""
    group = Group(size, seed, deaths)

    def start(rank):
        inner = SimulatedTransport(group, rank)
        return live(SurvivingTransport(inner, inner.window(ARENA), inner.gone, 5.0))

    return group.run(start), group.dead


def doomed(size, seed):
    """Up to size - 1 ranks that die, each after so many of its turns: early, late, or never."""
    choose = random.Random(seed)
    ranks = choose.sample(range(size), choose.randrange(1, size))
    return {rank: int(2 ** choose.uniform(3, 9)) for rank in ranks}


@pytest.mark.parametrize("seed", range(60))
def test_a_meeting_ends_with_the_same_list_of_the_dead(seed):
    size = 2 + seed % 4

    def live(transport):
        return [transport._roster.meet("a test") for _ in range(8)]

    lists, dead = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in dead]
    assert ends and all(other == ends[0] for other in ends)
    assert ends[0] == sorted(ends[0], key=len)


@pytest.mark.parametrize("seed", range(12))
def test_whoever_decides_may_die_at_any_moment(seed):
    """Rank 0 decides; where it dies rank 1 does, who may die a little later: at every turn of both."""

    def live(transport):
        return [transport._roster.meet("a test") for _ in range(3)]

    for turn in range(4, 60):
        for deaths in ({0: turn}, {0: turn, 1: turn + seed % 6}):
            lists, dead = run(4, seed, deaths, live)
            ends = [lists[rank] for rank in range(4) if rank not in dead]
            assert all(other == ends[0] for other in ends), deaths


@pytest.mark.parametrize("seed", range(60))
def test_allgather_gives_all_the_same(seed):
    size = 2 + seed % 4

    def live(transport):
        return [transport.allgather(bytes([transport.rank, turn]) * (1 + turn)) for turn in range(6)]

    lists, dead = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in dead]
    assert all(other == ends[0] for other in ends)
    for turn, found in enumerate(ends[0]):
        for rank, data in enumerate(found):
            assert data == bytes([rank, turn]) * (1 + turn) or (data == b"" and rank in dead)


@pytest.mark.parametrize("seed", range(40))
def test_mean_and_broadcast_are_those_of_the_living(seed, monkeypatch):
    monkeypatch.setattr("dstorm.assembly.PIECE_NBYTES", 64)  # many rounds
    size = 2 + seed % 4

    def live(transport):
        made = []
        for _ in range(3):
            array = np.full(50, 2.0**transport.rank, np.float32)
            transport.mean(array)
            made.append(array.copy())
            array[:] = transport.rank
            transport.broadcast(array)
            made.append(array.copy())
        return made

    lists, dead = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in dead]
    for mine in ends:
        for one, other in zip(mine, ends[0], strict=True):
            assert one.tobytes() == other.tobytes()
            assert len(set(one.tolist())) == 1  # one and the same group for all elements
    assert ends[0][-1][0] <= min(set(range(size)) - dead)


@pytest.mark.parametrize("seed", range(30))
def test_a_mean_is_that_of_those_who_are_to_count(seed, monkeypatch):
    """Where none of them is left, of all who live."""
    monkeypatch.setattr("dstorm.assembly.PIECE_NBYTES", 64)
    size = 3 + seed % 3
    among = {0, seed % size}

    def live(transport):
        array = np.full(50, 2.0**transport.rank if transport.rank in among else np.inf, np.float32)
        transport.mean(array, among)
        return array

    lists, dead = run(size, seed, doomed(size, seed), live)
    ends = [lists[rank] for rank in range(size) if rank not in dead]
    assert all(other.tobytes() == ends[0].tobytes() for other in ends)
    assert np.isfinite(ends[0]).all() == bool(np.isfinite(ends[0]).any())
    if among - dead:
        groups = [group for group in ({0}, among, {seed % size}) if group & among]
        assert ends[0][0] in [sum(2.0**rank for rank in group) / len(group) for group in groups]


@pytest.mark.parametrize("seed", range(40))
def test_who_has_come_to_the_last_meeting_is_not_lost(seed):
    """Though it has ended by the time that others leave it."""
    told = {}

    def live(transport):
        transport.on_death(lambda ranks: told.setdefault(transport.rank, set()).update(ranks))
        transport.barrier("malt.finalize")
        return True

    size = 2 + seed % 4
    early = {size - 1: 1} if seed % 2 else {}
    group = Group(size, seed, early)

    def start(rank):
        inner = SimulatedTransport(group, rank)
        ended = live(SurvivingTransport(inner, inner.window(ARENA), inner.gone, 5.0))
        group.dead.add(rank)  # its process ends
        return ended

    group.run(start)
    for rank, ranks in told.items():
        assert ranks <= set(early), (rank, ranks)


@pytest.mark.parametrize("seed", range(60))
def test_a_checkpoint_is_loaded_by_all_who_live(tmp_path, seed):
    """Whole, whoever dies while it is read and sent on, and whether the others know it yet or not."""
    size = 2 + seed % 4
    path = tmp_path / "state.ckpt"
    checkpointfile.write(str(path), Content("", {}, {"w": np.arange(3000.0), "epoch": np.array(7)}))

    def live(transport):
        session.enter_simulation(session.World(transport))
        state = malt.Checkpoint(path).load()
        return state is not None and int(state["epoch"]) == 7 and (state["w"] == np.arange(3000.0)).all()

    lists, dead = run(size, seed, doomed(size, seed), live)
    assert all(lists[rank] for rank in range(size) if rank not in dead)


def make_vector(transport, sync, size=3):
    return DenseVector(
        np.zeros(4, np.float32), transport, malt.graph("all", size), parse(sync),
        depth=2, deadline_s=5, check_finite=False, name="v",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(10))
def test_half_a_stamp_of_one_that_died_is_no_message(seed):
    """Under bsp, where the receiver would wait for the rest of it."""

    def live(transport):
        vector = make_vector(transport, "bsp")
        for step in range(1, 9):
            if transport.rank == 1 and step == 4:
                edge = vector._segment._out.edges[0]
                stamp.write(edge.cell, 0, stamp.Stamp(4, 4, stamp.WRITING))
                edge_window = vector._segment._window
                edge_window.put(np.frombuffer(edge.cell, np.uint8)[:40], 0, edge.slots[3 % 2])
                edge_window.flush([0])
                while True:  # until it is dead
                    transport.pause(10)
            vector.array[:] = transport.rank
            vector.scatter()
            vector.gather()
        return vector.step

    lists, dead = run(3, seed, {1: 3000}, live)
    assert dead == {1} and lists[0] == lists[2] == 8


@pytest.mark.parametrize("seed", range(10))
def test_what_is_called_for_a_death_may_raise_before_anything_is_sent(seed):
    def live(transport):
        class Told(Exception):
            pass

        told = []

        def tell(ranks):
            told.append(ranks)
            raise Told

        transport.on_death(tell)
        vector = make_vector(transport, "asp")
        for step in range(60):
            try:
                vector.scatter()
            except Told:
                assert vector.step == step
                vector.scatter()
            transport.pause(14)
        return vector.step, told

    lists, dead = run(3, seed, {1: 80 + 10 * seed}, live)
    assert dead == {1} and lists[0] == lists[2] == (60, [dead])


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("seed", range(30))
def test_one_that_dies_while_a_scatter_waits_for_it(seed, named):
    """Is told to whom named it; to all, the message goes to those who live."""

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


@pytest.mark.parametrize("seed", range(20))
def test_windows_are_dealt_out_of_the_arena(seed):
    size = 2 + seed % 4

    def live(transport):
        for turn in range(4):
            window = transport.window(100 * (1 + transport.rank))
            others = [rank for rank in range(size) if rank != transport.rank and rank not in transport.dead]
            for peer in others:
                window.put(np.full(8, 10 * turn + transport.rank, np.uint8), peer, 8 * transport.rank)
            window.flush(others)
            transport.barrier()
            for peer in set(others) - transport.dead:
                assert set(window.memory[8 * peer :][:8].tolist()) == {10 * turn + peer}
        return transport.dead

    found, dead = run(size, seed, doomed(size, seed), live)
    assert all(found[rank] <= dead for rank in range(size) if rank not in dead)


def test_an_arena_that_is_full_says_so():
    def live(transport):
        with pytest.raises(MemoryError, match="left of what was set aside"):
            transport.window(ARENA)

    run(2, 0, {}, live)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("kind", ["svmlight", "ratings"])
def test_those_who_live_load_the_whole_file_whoever_dies_meanwhile(tmp_path, kind, seed):
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
    deaths = doomed(4, seed)
    loaded, dead = run(4, seed, deaths, load)
    assert [loaded[rank] for rank in range(4) if rank not in dead] == [whole] * (4 - len(dead))
    assert any(rank not in dead for rank in range(4))


def test_the_parts_of_those_who_live_when_they_load_are_all_rows(tmp_path):
    path = tmp_path / "rows"
    path.write_text("".join(f"{1 if row % 3 else -1} 1:{row}\n" for row in range(50)))

    def live(transport):
        for _ in range(200):
            transport.barrier()
        return load_svmlight(path, transport=transport), load_ratings(ratings, transport=transport)

    ratings = tmp_path / "ratings"
    ratings.write_text("".join(f"{row // 3} {row % 11} {row}\n" for row in range(50)))
    loaded, dead = run(4, 1, {2: 40}, live)
    assert dead == {2}
    parts = [loaded[rank] for rank in (0, 1, 3)]
    assert [part.rows for part, _ in parts] == [slice(0, 16), slice(16, 33), slice(33, 50)]
    assert sorted(value for _, part in parts for value in part.ratings) == list(range(50))
