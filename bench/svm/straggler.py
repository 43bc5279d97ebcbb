"""Measures asp against a blocking Allreduce, on four ranks of which one is three times as slow.

    malt run -n 4 -m bench.svm.straggler OUT [--quick]

A rank takes 3 ms for the examples between two exchanges, and the slow rank 9 ms. It sleeps for what training leaves of
this time, so that four ranks on fewer cores are as fast as on cores of their own. In the 9 ms of a blocking exchange
asp trains on 2.5 times as many examples: that is the most that it can gain.

With asp changes are averaged, and rows are dealt by speed. The speed of each rank is found in a first round, of one
exchange, while the clock runs. Step sizes follow the epochs of a rank, not its examples: all ranks then have the same.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from mpi4py import MPI

import malt
from apps.svm import linear
from bench.rows import Row, timed, to_json
from bench.svm import task

EVERY, PACE_S, SLOW = 1000, 0.003, 3
EPOCHS = 25


def time_to_target(data: malt.Dataset, blocking: bool, seed: int) -> float:
    """Seconds until rank 0's model reaches the target, without those of its evaluation. Collective."""
    reached = (at for at, objective in curve(data, blocking, seed) if objective <= task.RCV1_TARGET)
    return float(MPI.COMM_WORLD.bcast(next(reached, float("inf"))))


def curve(data: malt.Dataset, blocking: bool, seed: int) -> Iterator[tuple[float, float]]:
    """The objective of rank 0's model after each exchange, with the seconds until then. Collective until the first.

    Other ranks have none.
    """
    comm = MPI.COMM_WORLD
    problem, width, count = task.PROBLEM, data.X.shape[1], len(data.y)
    dealt = np.random.default_rng(seed).permutation(count)
    eta0 = linear.first_step(problem, linear.examples(data.X, data.y, dealt[: 4 * EVERY]), width, comm.size)
    pace = PACE_S * (SLOW if comm.rank == comm.size - 1 else 1)
    generator = np.random.default_rng([seed, comm.rank])
    params: linear.Params = np.zeros(width + 1, np.float32)
    model = np.zeros_like(params)
    replica = malt.Replica(params, average="delta", graph="all", sync="asp")
    everything = linear.examples(data.X, data.y)

    def mine(count: int) -> linear.Examples:
        """This rank's rows, of the first `count`. Collective."""
        return linear.examples(data.X, data.y, dealt[malt.shard(count, by_speed=not blocking)])

    def parts() -> Iterator[tuple[linear.Examples, linear.Order, float]]:
        """What is trained between two exchanges: rows, their order, and how many steps an example counts as."""
        if not blocking:
            yield first, np.arange(len(first.labels), dtype=np.int32), 1.0
        rows = mine(count)
        length = len(rows.labels)
        for _ in range(EPOCHS):
            for part in np.array_split(linear.visiting_order(length, generator), max(1, length // EVERY)):
                yield rows, part, count / comm.size / length

    trained, models = 0.0, []
    first = mine(EVERY * comm.size)
    malt.barrier()
    start = time.perf_counter()
    for number, (rows, part, steps) in enumerate(parts()):
        begun = time.perf_counter()
        linear.train(problem, rows, part, params, eta0, trained)
        trained += steps * len(part)
        time.sleep(max(0.0, pace - (time.perf_counter() - begun)))
        if blocking:
            comm.Allreduce(MPI.IN_PLACE, params)
            np.divide(params, comm.size, out=params)
        else:
            replica.step(len(part))
        linear.blend(model, params, number + 1)
        if comm.rank == 0:
            models.append((time.perf_counter() - start, model.copy()))
    replica.finish()
    return ((at, linear.objective(problem, everything, model)) for at, model in models)


def main() -> None:
    out, quick = Path(sys.argv[1]), "--quick" in sys.argv
    malt.init()
    what = ("SVM to objective 0.1905, 4 ranks, one 3 x slower, asp", "a blocking Allreduce every exchange")
    if task.RCV1.exists():
        data = malt.open_svmlight(task.RCV1)
        linear.compile_kernels()
        ours, theirs = [], []
        for seed in range(2 if quick else 5):
            ours.append(time_to_target(data, False, seed))
            theirs.append(time_to_target(data, True, seed))
        row = timed(*what, 2.0, ours, theirs)
    else:
        row = Row(*what, None, 2.0, note=task.NO_RCV1)
    if malt.rank() == 0:
        out.write_text(json.dumps(to_json([row])), encoding="utf-8")


if __name__ == "__main__":
    main()
