"""Measures asp against a blocking Allreduce, on four ranks of which one is three times as slow.

    malt run -n 4 -m bench.benchmarks.svm.straggler SEED --json FILE

A rank takes 3 ms for 1000 examples, about as many as it trains on between two exchanges, and the slow rank 9 ms. It
sleeps for what training leaves of this time, so that four ranks on fewer cores are as fast as on cores of their own.
While a blocking exchange waits for the slow rank asp trains on 2.5 times as many examples: that is the most that it can
gain.

With asp changes are averaged, and rows are dealt by speed. The speed of each rank is found while the clock runs: in a
first round, of one exchange, and in the first epoch. Step sizes follow the epochs of a rank, not its examples: all
ranks then have the same.
Each seed has a job of its own, whose ranks know nothing of each other's speed when it begins.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np
from mpi4py import MPI

import malt
from bench.benchmarks.rows import Row, timed
from bench.benchmarks.svm import task
from bench.harness import datasets, jobs
from bench.hosts import ways
from bench.papers.malt.struck import Paced
from malt.models import linear

EVERY, PACE_S, SLOW = 1000, 0.003, 3
BLOCKING, ASP = ways.Way(blocking=True), ways.Way(average="delta")
DEALT = 2
"""Epochs whose rows are dealt anew, by the speed of ranks until then: a first round of one exchange tells little."""
EPOCHS, KEPT = 25, 200
"""More epochs, and more exchanges of which the model is kept, than any training needs to reach the target."""


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
    examples = linear.examples(data.X, data.y, np.random.default_rng(seed).permutation(count))
    eta0 = linear.first_step(problem, examples, width, comm.size)
    training = Paced(PACE_S * (SLOW if comm.rank == comm.size - 1 else 1) / EVERY)
    generator = np.random.default_rng([seed, comm.rank])
    learner = ways.learner(BLOCKING if blocking else ASP, examples, width, eta0)

    def parts() -> Iterator[tuple[linear.Order, float]]:
        """What is trained between two exchanges: rows, and how many steps an example counts as."""
        if not blocking:
            yield _dealt(EVERY * comm.size, by_speed=True), 1.0
        for epoch in range(EPOCHS):
            if blocking or epoch < DEALT:
                rows = _dealt(count, by_speed=not blocking)
            order = rows[linear.visiting_order(len(rows), generator)]
            for part in np.array_split(order, max(1, round(len(rows) / EVERY))):
                yield part, count / comm.size / len(rows)

    times: list[float] = []
    models = np.empty((KEPT if comm.rank == 0 else 0, width + 1), np.float32)
    models.fill(0)  # its pages are there before the clock starts
    malt.barrier()
    start = time.perf_counter()
    for number, (part, steps) in enumerate(parts()):
        training.begin()
        learner.learn(part)
        learner.trained += (steps - 1) * len(part)
        training.end(len(part))
        learner.exchange(len(part))
        if number < len(models):
            times.append(time.perf_counter() - start)
            models[number] = learner.model
    learner.finish()
    return ((at, linear.objective(problem, examples, model)) for at, model in zip(times, models, strict=False))


def _dealt(count: int, by_speed: bool) -> linear.Order:
    """This rank's rows, of the first `count`. Collective."""
    rows: linear.Order = np.arange(count, dtype=np.int32)[malt.shard(count, by_speed=by_speed)]
    return rows


def rows(quick: bool) -> list[Row]:
    """The row of this comparison, over as many seeds."""
    what = ("SVM to objective 0.1905, 4 ranks, one three times as slow, asp", "a blocking Allreduce at every exchange")
    found = [jobs.report(4, "bench.benchmarks.svm.straggler", seed) for seed in range(2 if quick else 5)]
    ours, theirs = zip(*found, strict=True)
    return [timed(*what, ours, theirs)]


def main() -> None:
    malt.init()
    data = malt.open_svmlight(datasets.RCV1)
    linear.compile_kernels()
    jobs.give([time_to_target(data, blocking, int(sys.argv[1])) for blocking in (False, True)])


if __name__ == "__main__":
    main()
