"""Measures asp against a blocking Allreduce, on four ranks of which one is three times as slow.

    malt run -n 4 -m bench.straggler OUT [--quick]

A rank takes 3 ms for the examples between two exchanges, and the slow rank 9 ms. It sleeps for what training leaves of
this time, so that four ranks on fewer cores are as fast as on cores of their own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import malt
from apps.svm import linear
from bench import training
from bench.rows import Row, timed, to_json

EVERY, PACE_S, SLOW = 1000, 0.003, 3
EPOCHS = 25


def time_to_target(data: malt.Dataset, blocking: bool, seed: int) -> float:
    """Seconds until rank 0's model reaches the target, without those of its evaluation. Collective."""
    comm = MPI.COMM_WORLD
    dealt = np.random.default_rng(seed).permutation(len(data.y))
    problem = linear.Problem("hinge", training.L2, False)
    width = data.X.shape[1]
    eta0 = linear.first_step(problem, linear.examples(data.X, data.y, dealt[:4000]), width, comm.size)
    mine = linear.examples(data.X, data.y, malt.shard(dealt))
    generator = np.random.default_rng([seed, comm.rank])
    rows = len(mine.labels)
    epochs = [np.array_split(linear.visiting_order(rows, generator), rows // EVERY) for _ in range(EPOCHS)]
    params: linear.Params = np.zeros(width + 1, np.float32)
    model = np.zeros_like(params)
    replica = malt.Replica(params, graph="all", sync="asp")
    pace = PACE_S * (SLOW if comm.rank == comm.size - 1 else 1)
    trained, models = 0.0, []

    def allreduce() -> None:
        comm.Allreduce(MPI.IN_PLACE, params)
        np.divide(params, comm.size, out=params)

    share = allreduce if blocking else replica.step
    malt.barrier()
    start = time.perf_counter()
    for number, part in enumerate(part for epoch in epochs for part in epoch):
        begun = time.perf_counter()
        trained = linear.train(problem, mine, part, params, eta0, trained)
        time.sleep(max(0.0, pace - (time.perf_counter() - begun)))
        share()
        linear.blend(model, params, number + 1)
        if comm.rank == 0:
            models.append((time.perf_counter() - start, model.copy()))
    replica.finish()
    everything = linear.examples(data.X, data.y)
    good = (at for at, model in models if linear.objective(problem, everything, model) <= training.TARGET)
    return float(comm.bcast(next(good, float("inf"))))


def main() -> None:
    out, quick = Path(sys.argv[1]), "--quick" in sys.argv
    malt.init()
    what = ("SVM to objective 0.1905, 4 ranks, one 3 x slower, asp", "a blocking Allreduce every exchange")
    if training.DATA.exists():
        data = malt.open_svmlight(training.DATA)
        linear.compile_kernels()
        ours, theirs = [], []
        for seed in range(2 if quick else 5):
            ours.append(time_to_target(data, False, seed))
            theirs.append(time_to_target(data, True, seed))
        row = timed(*what, 2.0, ours, theirs)
    else:
        row = Row(*what, None, 2.0, note=training.NO_DATA)
    if malt.rank() == 0:
        out.write_text(json.dumps(to_json([row])), encoding="utf-8")


if __name__ == "__main__":
    main()
