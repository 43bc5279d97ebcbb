"""malt.Replica with average="delta" under asp: each change counts once, also if its message is overwritten."""

from __future__ import annotations

import numpy as np
import pytest

import malt
from malt.replica.changesums import ChangeSums
from vol.merge import Term

pytestmark = pytest.mark.serial


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


def test_a_change_counts_once_though_it_arrives_late():
    def train(rank):
        w = np.zeros(1)
        replica = malt.Replica(w, average="delta", graph="all", sync="asp")
        for turn in range(6):
            malt.barrier()
            w += 2.0 if turn < 3 else 0.0
            replica.step()
        malt.barrier()
        return float(w[0])

    assert malt.simulate(train, 2) == [6.0, 6.0]


def test_a_rank_that_becomes_a_neighbour_begins_with_its_first_sum():
    sums = ChangeSums()
    sums.start(np.zeros(1), sources=[1])
    for values in ([3.0, 50.0], [4.0, 52.0]):
        sums._take(None, [Term(rank, 1, 1.0, 0.0, np.array([one])) for rank, one in zip((1, 2), values, strict=True)])
    assert sums._new == 4 + (52 - 50)
