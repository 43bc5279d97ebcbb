"""Dense vectors as users call them: over MPI on any number of ranks, and simulated."""

import numpy as np
import pytest
from graphnames import GRAPHS
from ranks import on_all_ranks

import malt
from dstorm.queues.ring import ReceiveRing
from vol import GatherFunction
from vol.merging import merge

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int32, np.uint64]


@pytest.mark.parametrize("graph", GRAPHS)
@on_all_ranks
def test_bsp_average_follows_the_graph(rank, graph):
    with malt.vector((3, 5), graph=graph, sync="bsp") as v:
        mesh = malt.graph(graph, malt.size())
        model = np.arange(malt.size(), dtype=np.float64)
        v.array[:] = rank
        for step in range(1, 6):
            sent = v.scatter()
            merged = v.gather()
            assert sent == v.array.nbytes * len(mesh.out(rank, step))
            assert merged.senders == tuple(mesh.into(rank, step))
            assert set(merged.steps) <= {step} and merged.lag == 0
            assert not v.gather(), "a second gather in a step returns empty"
            model = np.array([model[[r, *mesh.into(r, step)]].mean() for r in range(malt.size())])
            np.testing.assert_allclose(v.array, model[rank], rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
@on_all_ranks
def test_every_dtype_arrives(rank, dtype):
    mine = np.arange(7, dtype=dtype) + dtype(rank)
    with malt.vector(mine, sync="bsp") as v:
        assert v.array is mine
        v.scatter()
        v.gather(malt.SUM)
        total = sum(np.arange(7) + peer for peer in range(malt.size()))
        assert mine.tolist() == total.tolist()
        if dtype().dtype.kind != "f":
            with pytest.raises(TypeError, match=r"malt\.AVG needs a floating-point vector"):
                v.gather()


@pytest.mark.parametrize("function", [malt.AVG, malt.SUM, malt.WEIGHTED], ids=repr)
@on_all_ranks
def test_bsp_ends_with_the_same_bits_everywhere(rank, function):
    rng = np.random.default_rng(rank)
    with malt.vector(rng.standard_normal(40_000).astype(np.float32), sync="bsp") as v:
        for _ in range(3):
            v.scatter(weight=1.0 + rank)
            v.gather(function)
        copies = malt.init().transport.allgather(v.array.tobytes())
    assert len(set(copies)) == 1


IRREGULAR = {0: [1, 2, 3, 4], 1: [2], 2: [0], 3: [0, 4], 4: [1, 3]}


@pytest.mark.serial
@pytest.mark.parametrize("sync", ["bsp", "notify-ack", "asp"])
@pytest.mark.parametrize("graph", [IRREGULAR, "one-peer", "random"], ids=str)
def test_push_sum_finds_the_mean_on_any_graph(sync, graph):
    """AVG on a directed, irregular graph ends at a mean that is biased towards ranks with many out-neighbours."""

    def live(function):
        def on_rank(rank):
            with malt.vector(np.array([10.0**rank]), graph=graph, sync=sync, depth=60) as v:
                for _ in range(60):
                    v.scatter()
                    v.gather(function)
                return v.array[0]

        return malt.simulate(on_rank, 5, seed=3)

    np.testing.assert_allclose(live(malt.PUSH_SUM), 11111 / 5, rtol=0.02)
    if graph is IRREGULAR and sync == "bsp":
        assert abs(live(malt.AVG)[0] - 11111 / 5) > 200


def test_user_function_sees_private_copies(everywhere):
    kept = []

    def live(rank):
        def function(own, updates):
            assert [update.sender for update in updates] == sorted(update.sender for update in updates)
            assert all(update.rows is None and update.values.flags.writeable for update in updates)
            if rank == 0:
                kept.extend(updates)
            return own + sum(update.values * update.weight for update in updates)

        with malt.vector(np.ones((2, 2)), sync="bsp") as v:
            for _ in range(2):
                v.scatter(weight=0.5)
                v.gather(function)
            others = malt.size() - 1
            expected = (1 + others * 0.5) ** 2
            np.testing.assert_allclose(v.array, expected)
        if rank == 0 and others:
            np.testing.assert_allclose(kept[0].values, 1.0)
            assert {update.step for update in kept} == {1, 2}

    everywhere(live)


@on_all_ranks
def test_the_array_is_written_in_place(rank):
    with malt.vector(3) as v:
        mine = v.array
        v.array += 2
        v.array[1] = 7
        assert v.array is mine and mine.tolist() == [2, 7, 2]
        with pytest.raises(AttributeError, match=r"v.array\[:\] = values"):
            v.array = np.zeros(3)


@on_all_ranks
def test_a_user_function_is_not_called_without_updates(rank):
    with malt.vector(3) as v:
        assert not v.gather(lambda own, updates: pytest.fail("called"))


@on_all_ranks
def test_a_function_that_raises_leaves_the_array_unchanged_and_takes_the_updates(rank):
    def bad(own, updates):
        own[:] = 77
        raise KeyError("mine")

    with malt.vector(np.ones(3), sync="bsp") as v:
        v.scatter()
        if malt.size() > 1:
            with pytest.raises(KeyError):
                v.gather(bad)
        assert v.array.tolist() == [1, 1, 1]
        assert v.statistics().gathered == malt.size() - 1
        assert not v.gather()


@on_all_ranks
def test_scatter_to_some_ranks_alone(rank):
    last = malt.size() - 1
    with malt.vector(np.full(2, float(rank)), sync="bsp") as v:
        v.scatter(to=[] if rank == last else last)
        merged = v.gather(malt.SUM)
        assert merged.senders == (tuple(range(last)) if rank == last else ())
        assert v.array[0] == (sum(range(last + 1)) if rank == last else rank)
        v.scatter()
        assert v.gather().count == last


@on_all_ranks
def test_arguments_are_checked_before_anything_is_sent(rank):
    with malt.vector(4) as v:
        stranger = malt.size()
        for bad in (dict(to=stranger), dict(to=[rank]), dict(weight=-1), dict(weight=float("nan")), dict(rows=[0])):
            with pytest.raises(ValueError):
                v.scatter(**bad)
        for bad in (dict(to="x"), dict(to=1.5), dict(weight="heavy")):
            with pytest.raises(TypeError):
                v.scatter(**bad)
        with pytest.raises(TypeError, match=r"malt\.AVG, malt\.SUM"):
            v.gather("avg")
        for bad in (-1, float("nan")):
            with pytest.raises(ValueError, match="timeout_s"):
                v.gather(timeout_s=bad)
        assert v.step == 0 and v.statistics().sent == 0


@on_all_ranks
def test_calls_after_close_are_refused(rank):
    v = malt.vector(4, name="weights")
    v.scatter()
    before = v.statistics().sent
    v.close()
    v.close()
    for use in (v.scatter, v.gather, v.clear):
        with pytest.raises(malt.ClosedError, match="weights is closed"):
            use()
    assert v.statistics().sent == before
    assert v.array.shape == (4,)


@on_all_ranks
def test_what_a_closed_rank_sent_can_still_be_gathered(rank):
    v = malt.vector(np.full(3, float(rank)), sync="bsp")
    v.scatter()
    if rank == 0:
        v.close()
        return
    assert 0 in v.gather().senders
    v.scatter()
    assert 0 not in v.gather().senders
    v.close()


@pytest.mark.parametrize("sync", ["bsp", "asp"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@on_all_ranks
def test_values_that_are_not_finite_are_refused_on_request(sync, value, rank):
    """This holds too under asp, where a mean is computed straight out of the window."""
    with malt.vector(np.ones(3), sync=sync, check_finite=True) as v:
        for _ in range(2):  # a finite one first
            v.scatter()
            malt.barrier()
            v.gather()
            malt.barrier()
        if rank == 0:
            v.array[1] = value
        v.scatter()
        malt.barrier()
        merged = v.gather()
        assert merged.senders == tuple(peer for peer in range(malt.size()) if peer not in (0, rank))
        if rank:
            assert v.statistics().refused == v.statistics().peers[0].refused == 1
            assert np.isfinite(v.array).all()


@on_all_ranks
def test_statistics_add_up_on_every_edge(rank):
    v = malt.vector(50)
    for step in range(20):
        v.scatter()
        if step % (rank + 2) == 0:
            v.gather(malt.SUM if step % 2 else malt.AVG)
    malt.barrier()
    mine = v.statistics()
    sent = [
        int(text) for text in malt.init().transport.allgather(str(mine.sent // max(malt.size() - 1, 1)).encode())
    ]
    for peer, edge in mine.peers.items():
        assert sent[peer] == edge.gathered + edge.overwritten + edge.refused + edge.pending == 20
        assert edge.bytes_sent == 20 * 200
        assert edge.lag.count == edge.gathered
    assert mine.gathered == sum(edge.gathered for edge in mine.peers.values())
    assert mine.waited_s == 0
    v.close()


def test_built_in_functions_print_as_users_write_them():
    assert repr(malt.AVG) == "malt.AVG" and isinstance(malt.AVG, GatherFunction)


class Mixed(AssertionError):
    """The elements of an average come from different messages."""


def average_while_others_write(sync, seed):
    """All elements of a message are equal, so all elements of an average are."""

    def on_rank(rank):
        v = malt.vector(12, sync=sync, depth=1 + seed % 2)
        for step in range(1, 30):
            v.array[:] = 1000 * rank + step
            v.scatter()
            if v.gather() and len(set(v.array.tolist())) > 1:
                raise Mixed(v.array.tolist())
        v.barrier()
        return v.statistics()

    ends = malt.simulate(on_rank, 3, seed)
    for rank, end in enumerate(ends):
        for peer, edge in end.peers.items():
            sent = ends[peer].peers[rank].sent
            assert sent == edge.gathered + edge.overwritten + edge.refused + edge.pending
    return sum(end.torn_retries for end in ends)


@pytest.fixture
def slow_blocks(monkeypatch):
    """Let other ranks run between two blocks of an average."""
    add = merge.Blend._add

    def slowly(self, block, into):
        malt.init().transport.pause(2)
        add(self, block, into)

    monkeypatch.setattr(merge, "_BLOCK", 3)
    monkeypatch.setattr(merge.Blend, "_add", slowly)


@pytest.mark.serial
@pytest.mark.parametrize("sync", ["asp", "ssp:1"])
def test_an_average_in_place_is_never_mixed(slow_blocks, sync):
    assert sum(average_while_others_write(sync, seed) for seed in range(20)) > 10


@pytest.mark.serial
def test_an_average_in_place_without_a_second_check_is_mixed(slow_blocks, monkeypatch):
    monkeypatch.setattr(ReceiveRing, "look_again", lambda self, first, second: True)
    with pytest.raises(Mixed):
        for seed in range(20):
            average_while_others_write("asp", seed)
