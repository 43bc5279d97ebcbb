"""malt.MEAN and v.clear() on simulated ranks: increments, dense and sparse, end with the same bits on all ranks."""

import numpy as np
import pytest

import malt

FEATURES, EXAMPLES = 12, 60


def listing(ranks, kind="sparse", clears=False, dtype=np.float64, **options):
    """w of each rank by the loop of the talk: the gradient of one example, scatter, gather, w = w + g.

    Features are 0 and 1: gradients of the steps and of the ranks are often the same. Products with -1 make -0.0.
    """
    rng = np.random.default_rng(0)
    X = (rng.random((EXAMPLES, FEATURES)) < 0.2) * 1.0
    y = np.sign(X @ rng.standard_normal(FEATURES) + 0.1)

    def train(rank):
        g, w = malt.vector(np.zeros(FEATURES, dtype), kind=kind, sync="bsp", **options), np.zeros(FEATURES, dtype)
        for i in malt.shard(range(EXAMPLES)):
            if clears:
                g.clear()
            g.array[:] = 0.1 * y[i] * X[i] if y[i] * (X[i] @ w) < 1 else 0
            g.scatter()
            g.gather(malt.MEAN)
            w = w + g.array
        return w, g.statistics()

    return malt.simulate(train, ranks)


@pytest.mark.parametrize(
    "options", [{}, {"clears": True}, {"dtype": np.float16}, {"wire": "float16"}, {"wire": "int8"}], ids=str
)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_listing_of_the_talk_keeps_ranks_together(ranks, options):
    ends = listing(ranks, **options)
    assert len({w.tobytes() for w, _ in ends}) == 1
    dense = listing(ranks, "dense", **{key: value for key, value in options.items() if key == "dtype"})
    assert len({w.tobytes() for w, _ in dense}) == 1 and np.ptp(dense[0][0]) > 0.1
    close = 0.02 if "wire" in options or "dtype" in options else 1e-12
    np.testing.assert_allclose(ends[0][0], dense[0][0], atol=close)
    if "wire" not in options and "dtype" not in options:
        sent = ends[0][1]
        assert sent.bytes_sent / sent.sent < 0.35 * 8 * FEATURES  # rows of zeros are not sent, whatever their signs


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("graph", ["all", "ring", "one-peer"])
def test_it_is_the_mean_over_this_rank_and_its_in_neighbours(kind, graph):
    """Rank 2 has no increment: its scatters have no row, or zeros."""
    rows = [np.array([[0.1, -0.0], [3, 0], [0, 0]]), np.array([[0.7, -0.0], [0, 0], [np.inf, -5]]), np.zeros((3, 2))]

    def live(rank):
        g, mesh, ends = malt.vector(np.zeros((3, 2)), kind=kind, graph=graph, sync="bsp"), malt.graph(graph, 3), []
        for step in range(1, 4):
            g.clear()
            g.array[:] = rows[rank] * step
            g.scatter()
            found = g.gather(malt.MEAN)
            terms = sorted([rank, *mesh.into(rank, step)])
            expected = sum((rows[one] * step for one in terms), start=np.zeros((3, 2))) / len(terms)
            np.testing.assert_array_equal(g.array, expected)
            senders = [one for one in mesh.into(rank, step) if kind == "dense" or one < 2]
            assert found.senders == tuple(senders)
            assert not g.gather(malt.MEAN) and (g.array == expected).all()
            ends.append(g.array.tobytes())
        return ends

    ends = malt.simulate(live, 3)
    assert graph != "all" or ends[0] == ends[1] == ends[2]


ASYNCHRONOUS = ["asp", "ssp:9", "notify-ack"]


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("sync", ASYNCHRONOUS)
def test_increments_of_one_sender_add_up_and_count_once(kind, sync):
    """Of four ranks 1 scatters twice (under notify-ack once a gather), 2 without a row, and 3 not at all."""

    def live(rank):
        g, found = malt.vector(np.zeros(2), kind=kind, sync=sync, depth=4), []
        for turn in range(3):
            malt.barrier()
            for _ in range({1: 1 if sync == "notify-ack" else 2, 2: turn != 1}.get(rank, 0)):
                g.clear()
                g.array[0] = 1.0 * (rank == 1)
                g.scatter(to=[0] if kind == "dense" and rank == 1 else [] if kind == "dense" else None)
            malt.barrier()
            if rank == 0:
                g.clear()
                g.array[:] = 6
                merged = g.gather(malt.MEAN)
                found.append((merged.senders, g.array.tolist()))
                assert not g.gather(malt.MEAN) and g.array.tolist() == found[-1][1], "counted already"
            else:
                g.gather(malt.MEAN)
        malt.barrier()
        g.close()
        return found

    twice = 1 if sync == "notify-ack" else 2
    both, alone = ((1,) * twice, [(6 + twice) / 3, 2.0]), ((1,) * twice, [(6 + twice) / 2, 3.0])
    assert malt.simulate(live, 4)[0] == [both, alone, both]


@pytest.mark.parametrize("sync", ["asp", "bsp"])
def test_a_rank_that_has_closed_counts_until_its_last_scatter(sync):
    def live(rank):
        g, found = malt.vector(3, kind="sparse", sync=sync), []
        for step in range(1, 5):
            if rank == 1 and step == 3:  # its last scatter had no row
                g.close()
            malt.barrier()
            if not g.closed:
                g.clear()
                g.array[0] = 6.0 * (rank == 0 or step == 1)
                g.scatter()
            malt.barrier()
            if not g.closed:
                g.gather(malt.MEAN)
                found.append(float(g.array[0]))
        return found

    assert malt.simulate(live, 3)[0] == [6.0, 2.0, 3.0, 3.0]


def test_along_a_graph_of_steps_those_count_that_scatter_to_this_rank():
    """Under asp each step has another out-neighbour, which may get no row."""

    def live(rank):
        g, mesh, left = malt.vector(1, kind="sparse", graph="one-peer", sync="asp"), malt.graph("one-peer", 8), []
        for step in range(1, 7):
            g.clear()
            g.array[0] = 1.0 * (rank == 0)
            g.scatter()
            malt.barrier()
            g.gather(malt.MEAN)
            left.append(float(g.array[0]))
            assert left[-1] == (0 in (rank, *mesh.into(rank, step))) / (1 + len(mesh.into(rank, step)))
            malt.barrier()
        return left

    assert sum(map(sum, malt.simulate(live, 8))) == 6.0


def test_a_message_that_is_on_its_way_counts_when_it_is_merged():
    """The scatter behind it, which has no row, does not say that all has come."""

    def live(rank):
        g = malt.vector(np.zeros(2), kind="sparse")
        if rank == 1:
            g.array[0] = 2.0
            g.scatter()
            g.clear()
            g.scatter()
        malt.barrier()
        if rank == 0:
            header = g._queues.window.memory[g._queues.inbox.edges[1].slots[0] :][:64]
            whole = header.copy()
            header[8] ^= 1
            g.array[:] = 6.0
            assert not g.gather(malt.MEAN) and g.array.tolist() == [6, 6]
            header[:] = whole
            assert g.gather(malt.MEAN) and g.array.tolist() == [4, 3]
            assert not g.gather(malt.MEAN) and g.array.tolist() == [4, 3]

    malt.simulate(live, 2)


@pytest.mark.parametrize("wire", [None, "int8"])
def test_with_top_k_what_is_not_sent_is_merged_later_on_all_ranks(wire):
    def live(rank):
        g, w, given = malt.vector((9, 2), kind="sparse", sync="bsp", top_k=2, wire=wire), np.zeros((9, 2)), 0
        for step in range(12):
            g.array[:] = np.random.default_rng(10 * step + rank).standard_normal((9, 2)) * (step < 4)
            given = given + g.array.astype(np.float64)
            g.scatter()
            g.clear()  # what is left for later scatters stays
            g.array[0] = 99  # what was sent counts, not what the array holds
            g.gather(malt.MEAN)
            w = w + g.array
        return w, given, sum(one.values for one in g._residuals.values())

    ends = malt.simulate(live, 3)
    assert len({w.tobytes() for w, _, _ in ends}) == 1
    owed = sum(given - left for _, given, left in ends) / 3
    np.testing.assert_allclose(ends[0][0], owed, atol=1e-6)


def test_integers_have_no_mean():
    with pytest.raises(TypeError, match=r"malt\.MEAN needs a floating-point vector"):
        malt.simulate(lambda rank: malt.vector(np.zeros(2, int)).gather(malt.MEAN), 1)


class TestClear:
    def test_no_row_is_dirty_by_it_and_those_are_that_are_not_zero(self):
        def live(rank):
            v = malt.vector(np.ones(1000), kind="sparse", sync="bsp")
            v.array[5] = 7
            v.clear()
            sent = [v.scatter()]
            v.gather(malt.SUM)
            for _ in range(2):  # the same increments in two steps
                v.clear()
                v.array[3:23:2] = 1 + rank
                sent.append(v.scatter())
                v.gather(malt.SUM)
                assert v.array[3:23:2].tolist() == [3.0] * 10 and v.array.sum() == 30
            v.clear()
            v.array[9] = -0.0
            return [*sent, v.scatter(), v.scatter()]

        assert malt.simulate(live, 2) == [[0, 120, 120, 0, 0]] * 2

    def test_rows_that_are_pending_for_a_peer_are_so_no_more(self):
        def live(rank):
            v = malt.vector(8, kind="sparse", depth=8)
            if rank == 0:
                v.array[:3] = 1
                v.scatter(to=1)
                v.clear()
                assert v.scatter() == 0, "rank 2 has not got the rows, and they are zeros"
                v.array[3] = 5
                assert v.scatter() == 2 * 8
            malt.barrier()
            v.gather(malt.REPLACE)
            return v.array[:4].tolist()

        assert malt.simulate(live, 3) == [[0, 0, 0, 5], [1, 1, 1, 5], [0, 0, 0, 5]]
