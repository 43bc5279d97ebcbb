"""Sparse vectors as users call them, compared with dense vectors."""

import json

import numpy as np
import pytest
from drawn import given, settings, st
from graphnames import GRAPHS
from ranks import on_all_ranks
from schedules import send

import malt


def others(rank):
    return tuple(peer for peer in range(malt.size()) if peer != rank)


@pytest.mark.serial
@settings(max_examples=80)
@given(
    seed=st.integers(0, 2**31), size=st.integers(2, 4), shape=st.sampled_from([(1,), (9,), (16,), (7, 3), (13, 2)]),
    dtype=st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.uint8]),
    function=st.sampled_from([malt.AVG, malt.SUM, malt.REPLACE, malt.WEIGHTED]),
    named=st.booleans(), density=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
)  # fmt: skip
def test_rows_merge_as_they_do_in_a_dense_vector(seed, size, shape, dtype, function, named, density):
    """Each row is compared with a dense vector of that row, sent by the ranks that send the row."""
    if function.floating and np.dtype(dtype).kind != "f":
        return
    rng = np.random.default_rng(seed)
    arrays = [(rng.standard_normal(shape) * 20).astype(dtype) for _ in range(size)]
    weights = [float(w) for w in rng.choice([0.0, 0.3, 1.0, 2.5], size)]
    chosen = [np.flatnonzero(rng.random(shape[0]) < density) for _ in range(size)]

    def sparse(rank):
        mine = arrays[rank].copy()
        if not named:  # the dirty rows are those that differ from the initial array
            mine[chosen[rank]] += 1
        with malt.vector(mine, kind="sparse", sync="bsp") as v:
            mine[:] = arrays[rank]
            v.scatter(rows=rng.permutation(chosen[rank]) if named else None, weight=weights[rank])
            merged = v.gather(function)
            assert merged.senders == tuple(p for p in range(size) if p != rank and len(chosen[p]))
            return mine

    def dense(rank):
        mine = arrays[rank].copy()
        for row in range(shape[0]):
            with malt.vector(mine[row : row + 1].copy(), sync="bsp") as v:
                v.scatter(to=None if row in chosen[rank] else [], weight=weights[rank])
                v.gather(function)
                mine[row] = v.array[0]
        return mine

    ends, twins = malt.simulate(sparse, size, seed % 1000), malt.simulate(dense, size, seed % 1000)
    assert [end.tobytes() for end in ends] == [twin.tobytes() for twin in twins]


@pytest.mark.parametrize("function", [malt.AVG, malt.MEAN, malt.SUM, malt.WEIGHTED, malt.REPLACE], ids=repr)
@pytest.mark.parametrize("graph", ["all", "ring", "one-peer", "star"])
@on_all_ranks
def test_with_all_rows_it_is_the_dense_vector_bit_by_bit(rank, function, graph):
    rng = np.random.default_rng(rank)
    start = rng.standard_normal((3000, 7)).astype(np.float32)
    with (
        malt.vector(start.copy(), kind="sparse", graph=graph, sync="bsp") as v,
        malt.vector(start.copy(), graph=graph, sync="bsp") as d,
    ):
        for step in range(4):
            v.scatter(rows=range(3000), weight=1.0 + rank + step)
            d.scatter(weight=1.0 + rank + step)
            assert v.gather(function) == d.gather(function)
            assert v.array.tobytes() == d.array.tobytes()


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("sync", ["bsp", "notify-ack"])
def test_every_row_reaches_everyone_on_any_graph(everywhere, graph, sync):
    def live(rank):
        size = malt.size()
        with malt.vector((3 * size, 2), kind="sparse", graph=graph, sync=sync) as v:
            v.array[3 * rank + 1] = rank + 1, -rank - 1
            for _ in range(6 * size):
                v.scatter()
                v.gather(malt.REPLACE)
            malt.barrier()
            while v.gather(malt.REPLACE):
                v.scatter()
                malt.barrier()
            expected = np.zeros((3 * size, 2))
            expected[1::3] = np.arange(1, size + 1)[:, None] * [1, -1]
            assert v.array.tolist() == expected.tolist()

    if sync == "bsp":
        everywhere(live)


@on_all_ranks
def test_changed_rows_are_sent_and_then_clean(rank):
    with malt.vector((100, 2), kind="sparse", sync="bsp") as v:
        peers = len(others(rank))
        assert v.scatter() == 0 and not v.gather(malt.SUM)
        v.array[[3, 50]] = 7
        assert v.scatter() == peers * 2 * (8 + 4)
        v.gather(lambda own, updates: None)
        assert v.scatter() == 0 and not v.gather()
        v.array[9] = np.nan
        v.array[10] = -0.0
        assert v.scatter() == peers * 2 * (8 + 4)
        v.gather(lambda own, updates: None)
        v.array[9] = np.nan
        assert v.scatter() == 0 and not v.gather()
        assert v.statistics().sent == 2 * peers


@on_all_ranks
def test_named_rows_are_sent_and_the_others_stay_dirty(rank):
    seen = []

    def note(own, updates):
        seen.append([(one.sender, one.rows.tolist(), one.values.tolist()) for one in updates])

    with malt.vector(6, kind="sparse", sync="bsp") as v:
        v.array[[1, 2, 4]] = 10 + rank
        v.scatter(rows=[4, 0])
        v.gather(note)
        v.scatter()
        v.gather(note)
        mask = np.zeros(6, bool)
        mask[5] = True
        v.scatter(rows=mask)
        v.gather(note)
    if malt.size() > 1:
        assert seen == [
            [(peer, [0, 4], [0, 10 + peer]) for peer in others(rank)],
            [(peer, [1, 2], [10 + peer] * 2) for peer in others(rank)],
            [(peer, [5], [0]) for peer in others(rank)],
        ]


@on_all_ranks
def test_a_scatter_without_rows_publishes_the_step(rank):
    with malt.vector(6, kind="sparse", sync="bsp") as v:
        v.array[2] = 5
        assert v.scatter(rows=[]) == 0 and v.step == 1
        assert not v.gather(), "it has waited for the step, and no message came"
        assert v.statistics().sent == 0
        assert v.scatter() == 8 * len(others(rank))
        v.gather()


BAD_ROWS = [
    ([6], ValueError, "rows must be from 0 to 5: got 6"),
    ([-1, 2], ValueError, "rows must be from 0 to 5: got -1"),
    ([1, 2, 1], ValueError, "rows must be named once: got 1"),
    ([0.5], ValueError, "rows must be integers: got 0.5"),
    ("all", TypeError, "rows must be integers or a mask, got 'all'"),
    ([None], TypeError, "rows must be integers or a mask"),
]


@pytest.mark.parametrize("top_k", [None, 2])
@on_all_ranks
def test_bad_rows_change_nothing(rank, top_k):
    with malt.vector(6, kind="sparse", sync="bsp", name="weights", top_k=top_k) as v:
        v.array[3] = 1
        for bad, error, message in BAD_ROWS:
            with pytest.raises(error, match=f"weights: {message}"):
                v.scatter(rows=bad)
        assert v.step == 0 and v.statistics().sent == 0
        assert v.scatter() == 8 * len(others(rank)), "the row is dirty still"
        v.gather(malt.SUM)


@on_all_ranks
def test_more_rows_than_the_capacity(rank):
    with malt.vector((50, 3), kind="sparse", sync="bsp", capacity=4) as v:
        v.array[10:15] = 1
        for rows in (None, range(20, 25)):
            with pytest.raises(ValueError, match="5 rows are to be sent, and capacity=4 is what a slot holds"):
                v.scatter(rows=rows)
        assert v.step == 0 and v.statistics().sent == 0
        v.scatter(rows=[10])
        v.gather(malt.REPLACE)
        assert v.scatter() == 4 * 16 * len(others(rank))
        v.gather(malt.REPLACE)
        assert v.scatter() == 0


@on_all_ranks
def test_memory_follows_the_capacity(rank):
    with malt.vector((1000, 4), kind="sparse", graph="ring", capacity=10, depth=3) as v:
        queue = 64 + 3 * (64 + 256) if malt.size() > 1 else 0
        assert v._queues.window.memory.nbytes <= max(queue + 64, 1)


@on_all_ranks
def test_the_encoding_does_not_change_the_result(rank):
    """More than about half of all rows, if a row is one float32, are sent as the whole array."""
    peers = len(others(rank))
    with malt.vector(800, kind="sparse", sync="bsp") as v, malt.vector(800, sync="bsp") as d:
        for step, count in enumerate((1, 400, 412, 413, 799, 800), start=1):
            v.array[:count] += rank + step
            d.array[:] = v.array
            sent = v.scatter()
            d.scatter()
            assert sent == peers * (3300 if count > 412 else 8 * count)
            v.gather(malt.REPLACE)
            d.gather(malt.REPLACE)
            assert (v.array == d.array).all()


@on_all_ranks
def test_rows_that_a_gather_changes_are_passed_on(rank):
    if malt.size() < 3:
        return
    with malt.vector(5, kind="sparse", graph="ring", sync="bsp") as v:
        if rank == 0:
            v.array[3] = 9
        for step in range(malt.size() - 1):
            assert (v.scatter() > 0) == (rank == step)
            v.gather(malt.REPLACE)
        assert v.array[3] == 9
        assert (v.scatter() > 0) == (rank == malt.size() - 1)
        v.gather(malt.REPLACE)
        assert v.scatter() == 0, "what came back changed nothing"


@pytest.mark.parametrize(
    "function",
    [malt.AVG, malt.SUM, malt.REPLACE, lambda own, updates: own + 1],
    ids=["AVG", "SUM", "REPLACE", "own + 1"],
)
@on_all_ranks
def test_under_all_no_row_is_passed_on(rank, function):
    with malt.vector(5, kind="sparse", sync="bsp") as v:
        v.array[rank % 5] = 9
        v.scatter()
        v.gather(function)
        assert v.scatter() == 0
        v.gather(function)
        v.array[2] = 11
        assert v.scatter() == 8 * len(others(rank))
        malt.barrier()


@on_all_ranks
def test_a_row_that_the_user_and_a_gather_changed_stays_dirty(rank):
    if malt.size() < 2:
        return
    for function in (malt.SUM, lambda own, updates: own + sum(one.values[0] for one in updates)):
        with malt.vector(5, kind="sparse") as v:
            if rank == 0:
                v.array[3] = 5
                v.scatter()
            malt.barrier()
            if rank == 1:
                v.array[3] = -5
                assert v.gather(function)
                assert v.array[3] == 0, "as it was at its last check"
                assert v.scatter() == 8 * len(others(rank))
            malt.barrier()


@on_all_ranks
def test_rows_are_pending_for_each_peer_that_has_not_got_them(rank):
    if malt.size() < 3:
        return
    with malt.vector(8, kind="sparse", depth=8) as v:
        if rank == 0:
            v.array[1] = 1
            assert v.scatter(to=1) == 8
            v.array[2] = 1
            assert v.scatter(to=[2]) == 16
            assert v.scatter(rows=[1, 7], to=1) == 16
            assert v.scatter(to=[1, 2]) == 8
            assert v.scatter(to=[1, 2]) == 0
            assert v.scatter() == 16 * (malt.size() - 3)
            assert v.scatter() == 0
        malt.barrier()
        v.gather(malt.SUM)
        assert v.array[:3].tolist() == ([0, 2, 1] if rank == 1 else [0, 1, 1])


@on_all_ranks
def test_a_time_varying_graph_sends_each_peer_the_rows_it_has_not_got(rank):
    with malt.vector(40, kind="sparse", graph="one-peer", sync="bsp") as v:
        mesh, got = malt.graph("one-peer", malt.size()), {}
        for step in range(1, 9):
            v.array[step] = 100 * rank + step
            v.scatter()

            def check(own, updates, step=step):
                for one in updates:
                    new = [s for s in range(1, step + 1) if s > got.get(one.sender, 0)]
                    assert one.rows.tolist() == new
                    assert one.values.tolist() == [100 * one.sender + s for s in new]
                    got[one.sender] = step

            v.gather(check)
        assert set(got) == set(mesh.sources(rank))


@on_all_ranks
def test_waiting_messages_of_one_sender_merge_row_by_row(rank):
    """Rank 0 sends three times before the first gather. The newest value of each row counts, and no row is missing."""
    if malt.size() < 2:
        return
    for function, expected in (
        (malt.AVG, [4.0, 10.0, 15.0, 6.0]),
        (malt.REPLACE, [4.0, 16.0, 26.0, 8.0]),
        (malt.WEIGHTED, [4.0, 10.0, 20.6, 6.8]),
        (malt.SUM, [4.0, 4 + 9 + 16, 4 + 25 + 26, 12.0]),
    ):
        with malt.vector(np.full(4, 4.0), kind="sparse", depth=3) as v:
            if rank == 0:
                v.array[1:] = 9, 25, 8
                v.scatter(rows=[1, 2], weight=1.0)
                v.array[1] = 16
                v.scatter(rows=[1, 3], weight=1.0)
                v.array[2] = 26
                v.scatter(rows=[2], weight=3.0)
            malt.barrier()
            if rank == 1:
                merged = v.gather(function)
                assert merged.senders == (0, 0, 0) and merged.steps == (1, 2, 3)
                if function is malt.WEIGHTED:
                    expected = [4.0, 10.0, (4 + 3 * 26) / 4, 6.0]
                assert v.array.tolist() == expected
                assert v.statistics().gathered == 3 and v.statistics().overwritten == 0
            malt.barrier()


def test_a_users_function_gets_rows_and_private_copies(everywhere):
    kept = []

    def live(rank):
        def function(own, updates):
            for one in updates:
                assert one.rows.tolist() == sorted({one.sender, 7}) and one.values.shape == (len(one.rows), 2)
                assert one.values.dtype == own.dtype and one.values.flags.writeable and one.rows.flags.writeable
                own[one.rows] += one.values * one.weight
            if rank == 0:
                kept.extend(updates)

        with malt.vector((9, 2), kind="sparse", sync="bsp") as v:
            for step in (1, 2, 3, 4):  # with two slots: the copies outlive the slots
                v.array[[rank, 7]] = step
                v.scatter(rows=[rank, 7], weight=0.5)
                v.gather(function)
            assert v.array[7].tolist() == [4 + 4 * 0.5 * len(others(rank))] * 2
            assert len(v._staging._buffers) <= 1, "memory for messages is used again"
        if rank == 0 and others(rank):
            assert {one.step for one in kept} == {1, 2, 3, 4} and all((one.values == one.step).all() for one in kept)

    everywhere(live)


@on_all_ranks
def test_push_sum_is_for_dense_vectors(rank):
    with malt.vector(4, kind="sparse") as v, pytest.raises(TypeError, match=r'PUSH_SUM needs kind="dense"'):
        v.gather(malt.PUSH_SUM)


def forged(n, numbers, encoding=None, tail=b""):
    """Return a payload of rows of one float32 each, and its encoding."""
    numbers = np.array(numbers, np.uint32)
    payload = np.concatenate([np.ones(len(numbers), np.float32).view(np.uint8), numbers.view(np.uint8)])
    return np.append(payload, np.frombuffer(tail, np.uint8)), len(numbers) << 8 | 1 if encoding is None else encoding


FORGED = {
    "beyond the last row": forged(9, [2, 9]),
    "twice": forged(9, [2, 2]),
    "descending": forged(9, [3, 2]),
    "too long": forged(9, [2, 3], tail=b"\0\0"),
    "a row more than announced": forged(9, [2, 3, 4], encoding=2 << 8 | 1),
    "no rows": forged(9, []),
    "an encoding that there is not": forged(9, [2, 3], encoding=2 << 8 | 7),
    "a dense message": (np.zeros(36, np.uint8), 0),
}


@pytest.mark.parametrize("sync", ["asp", "bsp"])
@pytest.mark.parametrize("forgery", FORGED)
@on_all_ranks
def test_malformed_messages_are_refused_and_counted(rank, forgery, sync):
    if malt.size() < 2:
        return
    with malt.vector(9, kind="sparse", sync=sync) as v:
        v.scatter(rows=[])
        if rank == 0:
            v._step = 2
            send(v._queues, [1], 2, *FORGED[forgery])
        else:
            v.scatter(rows=[])
        malt.barrier()
        assert not v.gather(malt.SUM)
        assert v.array.tolist() == [0] * 9
        assert v.statistics().refused == v.statistics().peers[0 if rank else 1].refused == (rank == 1)
        malt.barrier()
        v.array[4] = 1
        v.scatter()
        malt.barrier()
        assert v.gather(malt.SUM).senders == others(rank), "sound messages still come"
        malt.barrier()


@on_all_ranks
def test_rows_that_are_not_finite_are_refused_on_request(rank):
    for rows in ([1, 3], range(9)):
        with malt.vector(9, kind="sparse", sync="bsp", check_finite=True) as v:
            v.array[8 if len(rows) == 2 else 0] = np.inf  # row 8 is not sent, row 0 is
            v.scatter(rows=rows)
            assert v.gather(malt.REPLACE).senders == (others(rank) if len(rows) == 2 else ())
            assert v.statistics().refused == (0 if len(rows) == 2 else len(others(rank)))


@on_all_ranks
def test_an_empty_vector(rank):
    with malt.vector(0, kind="sparse", sync="bsp") as v:
        assert v.scatter() == v.scatter(rows=[]) == 0
        assert not v.gather()


@on_all_ranks
def test_statistics_add_up_on_every_edge(rank):
    v = malt.vector((30, 2), kind="sparse")
    rng = np.random.default_rng(rank)
    for step in range(30):
        v.array[rng.integers(0, 30, 4)] = rng.standard_normal((4, 2))  # += would be rounded off in a large sum
        v.scatter()
        if step % (rank + 2) == 0:
            v.gather(malt.SUM if step % 2 else malt.AVG)
    malt.barrier()
    mine = v.statistics()
    sent = [json.loads(text) for text in malt.init().transport.allgather(
        json.dumps({peer: edge.sent for peer, edge in mine.peers.items()}).encode()
    )]  # fmt: skip
    for peer, edge in mine.peers.items():
        assert sent[peer][str(rank)] == edge.gathered + edge.overwritten + edge.refused + edge.pending == 30
    assert mine.waited_s == 0
    v.close()


class TestFloat16OnTheWire:
    @on_all_ranks
    def test_values_are_rounded(self, rank):
        rng = np.random.default_rng(0)
        table = rng.standard_normal((60, 3))
        for rows in ([4, 9], range(60)):
            with malt.vector(table.copy(), kind="sparse", sync="bsp", wire="float16") as v:
                sent = v.scatter(rows=rows)
                assert sent == len(others(rank)) * (min(len(rows) * 10, 60 * 6 + 8))
                if v.gather(malt.REPLACE):
                    assert (v.array[rows] == table[rows].astype(np.float16)).all()
                    assert v.array.dtype == np.float64

    @on_all_ranks
    def test_a_value_out_of_range_is_an_error(self, rank):
        if malt.size() < 2:
            return
        with malt.vector(9, kind="sparse", sync="bsp", wire="float16", name="w") as v:
            v.array[[2, 4]] = 1, 1e5
            with pytest.raises(ValueError, match="w: rows hold values beyond the largest of float16: got 4"):
                v.scatter()
            assert v.step == 0 and v.statistics().sent == 0
            v.array[4] = 3
            assert v.scatter() == 2 * 6 * len(others(rank)), "both are dirty still"
            v.gather()


class TestTopK:
    @pytest.mark.parametrize("wire", [None, "float16", "int8"])
    @pytest.mark.parametrize("graph", ["all", "ring", "one-peer"])
    @on_all_ranks
    def test_all_increments_arrive_in_the_end(self, rank, wire, graph):
        """They arrive exactly: the increments are on a grid, and float64 holds every sum of these."""
        rng = np.random.default_rng(rank)
        mesh = malt.graph(graph, malt.size())
        given_to = {peer: np.zeros((20, 2)) for peer in mesh.targets(rank)}
        got = {peer: np.zeros((20, 2)) for peer in mesh.sources(rank)}

        def add(own, updates):
            for one in updates:
                assert 0 < len(one.rows) <= 3
                got[one.sender][one.rows] += one.values

        with malt.vector(np.zeros((20, 2)), kind="sparse", graph=graph, sync="bsp", top_k=3, wire=wire) as v:
            for step in range(1, 121):
                v.array[:] = 0
                if step <= 10:
                    rows = rng.choice(20, 6, replace=False)
                    v.array[rows] = rng.integers(-(2**16), 2**16, (6, 2)) / 2.0**14
                    for peer in mesh.out(rank, step):
                        given_to[peer] += v.array
                v.scatter(rows=rows if step <= 10 and step % 2 else None)
                v.gather(add)
            assert v.scatter() == 0, "nothing is left"
            v.gather(add)
        sent = malt.init().transport.allgather(json.dumps({p: a.tolist() for p, a in given_to.items()}).encode())
        for peer, sum_of_it in got.items():
            assert json.loads(sent[peer])[str(rank)] == sum_of_it.tolist()

    @on_all_ranks
    def test_sum_merges_the_largest(self, rank):
        with malt.vector((6, 2), kind="sparse", sync="bsp", top_k=1) as v:
            v.array[[1, 4]] = [[1, 1], [3, -4]]
            v.scatter()
            v.gather(malt.SUM)
            n = malt.size()
            assert v.array[[1, 4]].tolist() == [[1, 1], [3 * n, -4 * n]]
            assert v.scatter(rows=[]) == 0, "an empty scatter gives and sends nothing"
            v.gather(malt.SUM)
            v.array[:] = 0
            assert v.scatter() == 12 * len(others(rank))
            v.gather(malt.SUM)
            assert v.array[1].tolist() == [n - 1] * 2

    @on_all_ranks
    def test_functions_that_merge_values_are_refused(self, rank):
        with malt.vector(6, kind="sparse", top_k=1) as v:
            for function in (malt.AVG, malt.REPLACE, malt.WEIGHTED, malt.PUSH_SUM):
                with pytest.raises(TypeError, match=r"top_k messages hold increments|needs kind"):
                    v.gather(function)

    @pytest.mark.serial
    def test_a_failed_scatter_takes_back_its_increments(self):
        def live(rank):
            with malt.vector(np.zeros(4), kind="sparse", sync="notify-ack", top_k=1) as v:
                if rank == 0:
                    v.array[:] = 1, 2, 4, 8
                    v.scatter()
                    v.array[:] = 16
                    with pytest.raises(malt.DeadlinePassed):
                        v.scatter()
                    v.array[:] = 0
                malt.barrier()
                for _ in range(4):
                    v.gather(malt.SUM)
                    malt.barrier()
                    if rank == 0:
                        v.scatter()
                    malt.barrier()
                assert rank == 0 or v.array.tolist() == [1, 2, 4, 8]

        malt.simulate(live, 2, seed=1)


@pytest.mark.serial
def test_a_failed_scatter_leaves_the_rows_dirty():
    def live(rank):
        with malt.vector(4, kind="sparse", sync="notify-ack") as v:
            if rank == 0:
                v.array[1] = 1
                v.scatter()
                v.array[2] = 2
                for rows in (None, [2]):
                    with pytest.raises(malt.DeadlinePassed):
                        v.scatter(rows=rows)
                assert v.step == 1
            malt.barrier()
            v.gather(malt.REPLACE)
            malt.barrier()
            if rank == 0:
                assert v.scatter() == 8
            malt.barrier()
            v.gather(malt.REPLACE)
            assert v.array.tolist() == [0, 1, 2, 0]

    malt.simulate(live, 2, seed=1)


@pytest.mark.serial
@pytest.mark.parametrize("sync", ["asp", "ssp:1", "bsp", "notify-ack"])
def test_changed_rows_arrive_in_every_mode(sync):
    """With slots for all messages none is overwritten, so every change reaches every peer."""

    def live(rank):
        rng = np.random.default_rng(rank)
        with malt.vector((20, 3), kind="sparse", sync=sync, depth=32) as v:
            mine = range(5 * rank, 5 * rank + 5)
            for _ in range(12):
                if sync == "notify-ack":
                    malt.barrier()
                v.array[rng.choice(mine, 2)] += rng.standard_normal(3).astype(np.float32)
                v.scatter(to=rng.permutation(others(rank))[: rng.integers(0, 4)].tolist())
                if sync == "notify-ack":
                    malt.barrier()  # all ranks have scattered: all messages can be gathered
                v.gather(malt.REPLACE)
            malt.barrier()
            v.gather(malt.REPLACE)
            malt.barrier()
            v.scatter()
            malt.barrier()
            v.gather(malt.REPLACE)
            return v.array.copy()

    for seed in range(8):
        ends = malt.simulate(live, 4, seed)
        assert all(end.tobytes() == ends[0].tobytes() for end in ends)


@pytest.mark.serial
def test_without_tracking_rows_must_be_named():
    def on_rank(rank):
        with malt.vector((6, 2), kind="sparse", sync="bsp", track=False) as v:
            v.array[:] = rank + 1
            with pytest.raises(ValueError, match="with track=False the rows to send are named"):
                v.scatter()
            assert v.step == 0
            v.scatter([rank, 4])
            v.gather()
            return v.array.tolist()

    first, second = malt.simulate(on_rank, 2)
    assert first == [[1, 1], [1.5, 1.5], [1, 1], [1, 1], [1.5, 1.5], [1, 1]]
    assert second == [[1.5, 1.5], [2, 2], [2, 2], [2, 2], [1.5, 1.5], [2, 2]]


@pytest.mark.serial
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_an_update_of_an_earlier_step_has_a_positive_lag(kind):
    def live(rank):
        v, lags = malt.vector(3, kind=kind), []
        for _ in range(1 + 2 * rank):
            v.array[:] += 1
            v.scatter()
        malt.barrier()
        v.gather(lambda own, updates: lags.extend(update.lag for update in updates))
        return lags

    found = malt.simulate(live, 2)
    assert found[1] == [2] and found[0][-1] == -2


@pytest.mark.serial
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("check", [False, True])
def test_values_that_are_not_finite_are_merged_by_default(kind, check):
    def live(rank):
        v = malt.vector(np.ones(3), kind=kind, sync="bsp", check_finite=check)
        v.array[:] = np.nan if rank else 2
        v.scatter()
        v.gather(malt.SUM)
        return v.statistics().refused, bool(np.isnan(v.array).any())

    assert malt.simulate(live, 2)[0] == (int(check), not check)
