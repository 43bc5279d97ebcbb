"""malt.Replica with average="delta" under asp: each change counts once, also if its message is overwritten."""

import types

import numpy as np
import pytest

import malt
from malt.session.replica.modes import change_sums
from malt.session.replica.modes.change_sums import ChangeSums
from malt.session.replica.modes.exchange_mode import ModeOptions
from vol.merging.merge import Term
from vol.update import Gathered


@pytest.mark.parametrize("sync", ["asp", "ssp:9"])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_no_change_is_lost_with_an_overwritten_message(sync, dtype):
    def train(rank):
        w = np.zeros(3, dtype)
        replica = malt.Replica(w, average="delta", graph="all", sync=sync)
        for _ in range(5 if rank else 0):  # more than a queue holds
            w += 4 * (1 + rank)
            replica.step()
        malt.barrier()
        if rank == 0:
            w += 4
            replica.step()
        return w.tolist(), replica.vectors[0].statistics().overwritten

    everyone = malt.simulate(train, 4)
    assert everyone[0][1] >= 3 * 3
    assert everyone[0][0] == [(4 + 5 * (8 + 12 + 16)) / 4] * 3


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_do_not_drift_apart(size, dtype):
    """Changes of all sizes are rounded in every exchange. Once all messages have arrived, ranks have the same bits."""

    def train(rank):
        draw = np.random.default_rng(rank)
        w = [np.full(3, 0.1, dtype), np.full((2, 2), 1e3, dtype)]
        replica = malt.Replica(w, average="delta", graph="all", sync="asp")
        for _ in range(40 + 10 * rank):
            for array in w:
                array += (10.0 ** draw.uniform(-6, 0) * draw.normal(size=array.shape)).astype(dtype)
            replica.step()
        for _ in range(2):
            malt.barrier()
            replica.step()
        return [array.tobytes() for array in w]

    everyone = malt.simulate(train, size, seed=1)
    assert all(one == everyone[0] for one in everyone)


def test_a_sum_that_is_overwritten_while_it_is_copied_does_not_count(monkeypatch):
    """All elements of a sum are the same, unless parts of two messages are taken for one."""

    def slowly(target, source):
        for place in range(len(target)):
            target[place] = source[place]
            if malt.rank() == 0:
                for _ in range(20):
                    malt.init().transport.pause(2)

    monkeypatch.setattr(change_sums, "np", types.SimpleNamespace(**{**vars(np), "copyto": slowly}))

    def train(rank):
        w = np.zeros(4)
        replica = malt.Replica(w, average="delta", graph="all", sync="asp")
        for _ in range(100 if rank else 10):
            w += 1.0
            replica.step()
            assert (w == w[0]).all()
        return replica.vectors[0].statistics().torn_retries

    assert sum(sum(malt.simulate(train, 3, seed)) for seed in range(5)) > 5


def test_an_exchange_that_fails_counts_its_change_once():
    def train(rank):
        w = np.zeros(1)
        replica = malt.Replica(w, average="delta", graph="all", sync="asp")
        w += 4.0
        if rank == 0:
            gather, replica.vectors[0].gather = replica.vectors[0].gather, lambda function: 1 / 0
            with pytest.raises(ZeroDivisionError):
                replica.step()
            replica.vectors[0].gather = gather
        replica.step()
        malt.barrier()
        replica.step()
        return float(w[0])

    assert malt.simulate(train, 2) == [4.0, 4.0]


class OneNeighbour:
    """A vector whose graph is mended: rank 2 takes the place of rank 1."""

    def __init__(self):
        self.array, self.sources = np.zeros(1), (1,)

    def scatter(self):
        pass

    def gather(self, function):
        function.merge(None, [Term(*self.message[:1], 1, 1.0, 0.0, np.array(self.message[1:]))])
        return Gathered((self.message[0],))


def test_a_rank_that_becomes_a_neighbour_begins_with_its_first_sum():
    vector, parameters = OneNeighbour(), np.zeros(1)
    sums = ChangeSums(vector, [parameters], ModeOptions(rank=0))
    sums.start()
    for message, value in [((1, 3.0), 1.5), ((2, 50.0), 1.5), ((2, 52.0), 2.5), ((1, 5.0), 3.5)]:
        vector.message, vector.sources = message, message[:1]
        sums.send(0.0)
        sums.merge()
        assert parameters == value
