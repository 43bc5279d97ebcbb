"""Seconds of an iteration of SendGradient by its phases, for models of several sizes, on real ranks.

malt run -n 2 -m bench.papers.mllib.sizes FEATURES ... --json FILE
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

import malt
from bench.harness import jobs
from bench.papers.mllib import task
from malt.models import linear
from malt.models.linear import Params

ROWS, ITERATIONS, WARM_UP = 5000, 7, 2
RANKS = 2
ALGORITHMS = ("reduce-scatter", "tree", "star")
PHASES = ("distribute", "compute", "aggregate", "update")
_STEP = np.float32(0.1)
Seconds = Mapping[str, float]


def iteration(n_features: int) -> Callable[[], Seconds]:
    """A function that does an iteration, and says what each phase has taken on this rank. Collective.

    Each rank has a part of the weights. It gives all the part, finds the gradient of its rows, adds up its part of all
    gradients, and steps along it. Beside that, the gradients of all are added up by each algorithm of malt.allreduce.
    """
    problem = linear.Problem("hinge", task.L2, False)
    data = task.rows(ROWS, n_features, task.TEXT, seed=malt.rank())
    order = np.arange(ROWS, dtype=np.int32)
    gradient: Params = np.zeros(n_features + 1, np.float32)
    own = malt.reduce_rows(gradient)

    def once() -> Seconds:
        nonlocal own
        marks = [_together()]
        weights = np.concatenate(malt.allgather(own))
        marks.append(time.perf_counter())
        linear.subgradient(problem, data, order, weights, gradient)
        marks.append(time.perf_counter())
        malt.barrier()  # what one rank computes longer is none of the exchange
        begun = time.perf_counter()
        mean = malt.reduce_rows(gradient)
        marks.append(time.perf_counter())
        own -= _STEP * mean
        ends = time.perf_counter()
        taken = {"distribute": marks[1] - marks[0], "compute": marks[2] - marks[1], "aggregate": marks[3] - begun,
                 "update": ends - marks[3]}  # fmt: skip
        for algorithm in ALGORITHMS:
            start = _together()
            malt.allreduce(gradient, algorithm=algorithm)
            taken[algorithm] = time.perf_counter() - start
        return taken

    return once


def _together() -> float:
    """The time at which all ranks go on. Collective."""
    malt.barrier()
    return time.perf_counter()


def measure(sizes: Sequence[int]) -> list[Seconds]:
    """The seconds of the iterations, by size: medians of the slowest ranks of all. Collective."""
    linear.compile_kernels()
    found = []
    for n_features in sizes:
        once = iteration(n_features)
        taken = [once() for _ in range(WARM_UP + ITERATIONS)][WARM_UP:]
        slowest = {name: np.array([one[name] for one in taken]) for name in (*PHASES, *ALGORITHMS)}
        for seconds in slowest.values():
            malt.allreduce(seconds, op="max")
        found.append({name: float(statistics.median(seconds)) for name, seconds in slowest.items()})
        if malt.lowest():
            print(f"... {n_features:,} features", file=sys.stderr, flush=True)
    return found


def rows(sizes: Sequence[int]) -> list[dict[str, float]]:
    """The rows of the table, from a job of its own."""
    found = jobs.report(RANKS, "bench.papers.mllib.sizes", *sizes)
    return [{"features": size, **seconds} for size, seconds in zip(sizes, found, strict=True)]


if __name__ == "__main__":
    jobs.give(measure([int(size) for size in sys.argv[1:-2]]))
