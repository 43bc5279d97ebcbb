"""The four lines: replicas that start alike, meet on the way, and end alike."""

from __future__ import annotations

import numpy as np
import pytest

import malt
from dstorm import shared_memory


def shared(data: bytes) -> set[bytes]:
    return set(malt.init().transport.allgather(data))


@pytest.mark.parametrize("sync", ["asp", "bsp", "ssp:2", "notify-ack"])
@pytest.mark.parametrize("average", ["model", "delta"])
@pytest.mark.parametrize(
    "wrap", [lambda a, b: a, lambda a, b: [a, b], lambda a, b: {"w": a, "b": b}], ids=["array", "list", "dict"]
)
def test_all_end_with_one_model(sync, average, wrap):
    a, b = np.full((3, 4), 1.0 + malt.rank(), np.float32), np.full(2, 5.0 + malt.rank())
    params = wrap(a, b)
    arrays = (
        [params] if isinstance(params, np.ndarray) else list(params.values() if isinstance(params, dict) else params)
    )
    with malt.Replica(params, every=3, average=average, sync=sync) as replica:
        assert a[0, 0] == 1.0, "all start from rank 0's"
        exchanged = 0
        for _ in range(10 + malt.rank()):
            for array in arrays:
                array += 0.5 + malt.rank()
            exchanged += replica.step()
        assert exchanged == (10 + malt.rank()) // 3
    for array in arrays:
        assert len(shared(array.tobytes())) == 1
    assert 1.0 < a[0, 0] < 1.0 + 13 * (0.5 + malt.size())


def test_delta_averages_changes_exactly_under_bsp():
    w = np.zeros(2)
    replica = malt.Replica(w, average="delta", graph="all", sync="bsp")
    for step in range(1, 4):
        w += 1 + malt.rank()
        replica.step()
        np.testing.assert_allclose(w, step * (malt.size() + 1) / 2)
    replica.finish()


def test_step_counts_examples():
    w = np.zeros(2)
    replica = malt.Replica(w, every=10)
    assert [replica.step(4) for _ in range(5)] == [False, False, True, False, True]
    assert replica.vectors[0].step == 2
    replica.finish()
    replica.finish()


def test_an_exception_in_the_loop_is_not_swallowed_and_closes():
    replica = malt.Replica(np.zeros(2))
    with pytest.raises(KeyError), replica:
        raise KeyError("mine")
    assert replica.vectors[0].closed
    malt.barrier()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (dict(params=[1.0, 2.0]), r"params\[0\] must be a NumPy array"),
        (dict(params={"w": np.zeros(3, int)}), r"params\['w'\] must be a NumPy array of floating-point"),
        (dict(params=[]), "no arrays"),
        (dict(params=np.zeros((4, 4)).T[:2]), "C-contiguous.*: np.ascontiguousarray makes a copy, which the loop must"),
        (dict(params=[np.frombuffer(bytes(24))]), r"params\[0\] must be writable.*: its method copy makes a copy"),
        (dict(params={"w": np.ma.zeros(3)}), r"params\['w'\] is a MaskedArray"),
        (dict(params=np.zeros(3, np.longdouble)), "params must be of float16, 32 or 64"),
        (dict(params=np.zeros(3, ">f8")), "native byte order"),
        (dict(params=np.zeros(3), every=0), "every must be a whole number from 1 up, got 0"),
        (dict(params=np.zeros(3), every=1.5), "every must be a whole number from 1 up, got 1.5"),
        (dict(params=np.zeros(3), every=True), "every must be a whole number from 1 up, got True"),
        (dict(params=np.zeros(3), average="median"), "'median' is not valid"),
        (dict(params=np.zeros(3), graph="halo"), "no graph is called 'halo'"),
        (dict(params=np.zeros(3), sync="bps"), "sync 'bps' is not valid"),
        (dict(params=np.zeros(3), sync=None), "sync must be a string"),
    ],
)
def test_bad_arguments(bad, message):
    mine = bad if malt.rank() == malt.size() - 1 else dict(params=np.zeros(3))
    with pytest.raises(ValueError, match="malt.Replica: .*" + message):
        malt.Replica(**mine)


@pytest.mark.parametrize("bad", [dict(graph="halo"), dict(sync="bps"), dict(graph={0: [99]})])
def test_nothing_is_changed_where_an_argument_is_bad(bad):
    w = np.full(3, 1.0 + malt.rank())
    with pytest.raises(ValueError, match="malt.Replica"):
        malt.Replica(w, **(bad if malt.rank() == 0 else {}))
    assert (w == 1.0 + malt.rank()).all()


@pytest.mark.parallel
def test_nothing_is_changed_where_memory_is_short(monkeypatch):
    a, b = np.full(3, 1.0 + malt.rank()), np.full(1_000_000, 1.0 + malt.rank(), np.float32)
    monkeypatch.setattr(shared_memory, "free_nbytes", lambda: 1_000_000)
    with pytest.raises(MemoryError):
        malt.Replica([a, b])
    assert (a == 1.0 + malt.rank()).all() and (b == 1.0 + malt.rank()).all()
    monkeypatch.undo()
    made = malt.vector(1)
    assert malt.init().vectors == [made], "the vector that was made for a is freed"
    made.close()


@pytest.mark.parametrize(("n", "error"), [("x", TypeError), (1.5, TypeError), (True, TypeError), (-1, ValueError)])
def test_bad_numbers_of_examples(n, error):
    with malt.Replica(np.zeros(2), every=3) as replica:
        with pytest.raises(error, match="n must be a whole number from 0 up, got"):
            replica.step(n)
        assert [replica.step(np.int64(2)), replica.step(0), replica.step()] == [False, False, True]


def test_a_matrix():
    w = np.array([[1.0, 2.0]]).view(np.matrix) + malt.rank()
    with malt.Replica([w, np.zeros(3)], sync="bsp") as replica:
        replica.step()
    assert w.tolist() == [[1.0, 2.0]]


class TestAfterTheEnd:
    def test_step_after_finish(self):
        replica = malt.Replica(np.zeros(2), every=10)
        replica.finish()
        with pytest.raises(malt.ClosedError, match="Replica.step"):
            replica.step()

    @pytest.mark.parametrize("average", ["model", "delta"])
    def test_after_finalize(self, average):
        replica = malt.Replica(np.zeros(2), average=average)
        malt.finalize()
        for call in (replica.finish, replica.step, replica.finish):
            with pytest.raises(malt.ClosedError, match="malt.finalize"):
                call()
        replica.close()
        assert replica.vectors[0].statistics().sent == 0

    def test_finished_then_finalized(self):
        replica = malt.Replica(np.zeros(2))
        replica.finish()
        malt.finalize()
        replica.finish()

    def test_vectors_after_finalize(self):
        v = malt.vector(3, sync="bsp")
        v.scatter()
        v.gather()
        malt.finalize()
        for call in (v.scatter, v.gather, v.barrier):
            with pytest.raises(malt.ClosedError, match="is closed"):
                call()
        v.close()
        assert v.statistics().sent == v.statistics().gathered == malt.size() - 1
