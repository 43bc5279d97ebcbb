"""The four lines: replicas that start alike, meet on the way, and end alike."""

from __future__ import annotations

import numpy as np
import pytest

import malt


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
        (dict(params=np.zeros((4, 4)).T[:2]), "C-contiguous"),
        (dict(params=np.zeros(3), every=0), "every"),
        (dict(params=np.zeros(3), average="median"), "'median' is not valid"),
    ],
)
def test_bad_arguments(bad, message):
    mine = bad if malt.rank() == malt.size() - 1 else dict(params=np.zeros(3))
    with pytest.raises(ValueError, match=message):
        malt.Replica(**mine)
