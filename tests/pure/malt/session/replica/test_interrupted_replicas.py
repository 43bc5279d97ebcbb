"""A signal at each line of an exchange of a Replica, which the program catches, and goes on.

Each rank adds 1 to each weight in each step, so each weight is the number of steps once all has come, whatever ranks
exchange: unless a change is lost, or counts twice.
"""

import numpy as np
import pytest
from interrupts import LONG, lines, rest_of

import malt

CASES = {
    "model bsp": {"sync": "bsp"},
    "model asp": {"sync": "asp"},
    "changes bsp": {"sync": "bsp", "average": "delta"},
    "changes notify-ack": {"sync": "notify-ack", "average": "delta"},
    "sums of changes": {"sync": "asp", "average": "delta"},
    "sums of changes ssp": {"sync": "ssp:1", "average": "delta"},
    "outer": {"sync": "bsp", "average": "delta", "outer": malt.optim.momentum(1.0, 0.0)},
    "fragments": {"sync": "bsp", "average": "delta", "every": 2, "fragments": 2},
    "fragments of models": {"sync": "bsp", "every": 2, "fragments": 2},
}
SHORT = ("model asp", "changes bsp", "sums of changes ssp", "fragments")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES if LONG else SHORT)
def test_each_change_counts_once(case, seed):
    def train(rank):
        w = {"a": np.zeros(5), "b": np.zeros((2, 3))}
        replica = malt.Replica(w, graph="all", **{"every": 1, **CASES[case]})

        def go_on():
            if sum(vector.step for vector in replica.vectors) < step:
                replica.step()

        for step, at in enumerate(lines(), 1):
            for array in w.values():
                array += 1
            came = rest_of(go_on, at if rank == 0 else None)
            assert all((array == array.flat[0]).all() and 0 < array.flat[0] <= step for array in w.values())
            if not malt.allgather(came)[0]:
                break
        for _ in range(4):
            replica.step()
            malt.barrier()
        if case != "model asp":
            assert [array.flat[0] for array in w.values()] == pytest.approx([step] * 2)  # thirds are added
        return step

    assert min(malt.simulate(train, 3, seed)) > 5
