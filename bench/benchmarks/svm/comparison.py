"""Measures apps.svm against its peers, on rcv1-ccat and on 300,000 rows generated from a seed."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.benchmarks.rows import Row, rated
from bench.benchmarks.svm import peers, task
from bench.benchmarks.svm.peers import Peer
from bench.benchmarks.svm.task import Task
from bench.benchmarks.svm.threads import Threads
from bench.harness.timing import copy_rate, turns

RANKS = {"1 rank": 1, "2 ranks": 2}
RATE_EXAMPLES, RATE_EVERY = 7_000_000, 5000
"""Examples of a training whose rate is measured, at least, and those between two of its exchanges."""
ONE_MODEL, MODEL_EACH = "the same kernel on 2 threads, one model", "the same kernel on 2 threads, one model each"
THREADS_EPOCHS = 5


def rows(quick: bool) -> list[Row]:
    """All rows of this module. Those that lack their peer are not measured, with a note.

    A quick run leaves the 300,000 rows out.
    """
    made = _compared(task.rcv1(), quick)
    if not quick:
        with tempfile.TemporaryDirectory() as folder:
            made += _compared(task.large(Path(folder)), quick)
    return made


def _compared(one: Task, quick: bool) -> list[Row]:
    """The rows of one task: times to its target, and examples per second."""
    threads = Threads(one)
    return [*_times(one, threads, 2 if quick else 7), *_rates(one, threads, quick)]


def _times(one: Task, threads: Threads, rounds: int) -> list[Row]:
    """Seconds to the target, of 1 and 2 ranks against each peer at its best setting."""
    others = {
        "scikit-learn SGDClassifier, 1 core": peers.scikit_learn(one),
        "LIBLINEAR, dual, hinge, 1 thread": peers.liblinear(one, 1),
        "LIBLINEAR, dual, hinge, 2 threads": peers.liblinear(one, 2),
        ONE_MODEL: Peer(threads.seconds),
    }
    what = f"SVM on {one.name} to objective {one.target:.4f}"
    ours = {f"{what}, {name}": partial(one.seconds, ranks) for name, ranks in RANKS.items()}
    return peers.compared(ours, others, rounds)


def _rates(one: Task, threads: Threads, quick: bool) -> list[Row]:
    """Examples per second: of two ranks against one and against threads, of one core against the copy rate."""
    count = len(one.data.y)
    epochs = -(-RATE_EXAMPLES // count) // (3 if quick else 1)
    models, options = {ONE_MODEL: 1, MODEL_EACH: 2}, ("--epochs", epochs, "--exchange-every", RATE_EVERY)
    contenders: dict[str, Callable[[int], float]] = {
        **{name: lambda _, ranks=ranks: one.report(ranks, *options)["final"]["examples_per_s"]
           for name, ranks in RANKS.items()},
        **{name: lambda _, number=number: threads.rate(number, THREADS_EPOCHS) for name, number in models.items()},
    }  # fmt: skip
    taken = turns(contenders, 2 if quick else 5)
    alone = statistics.median(taken["1 rank"])
    X, y = one.data.X, one.data.y
    nbytes = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes + y.nbytes
    streamed = copy_rate(64_000_000) / nbytes * count
    what = f"SVM on {one.name}, examples/s"
    made = [
        rated(f"{what}, 2 ranks", "1 rank", taken["2 ranks"], taken["1 rank"]),
        *(rated(f"{what}, 2 ranks", name, taken["2 ranks"], taken[name]) for name in models),
        rated(f"{what}, 1 core", "data streamed at the copy rate", [alone], [streamed]),
    ]
    if theirs := peers.scikit_learn_rate(one):
        made.append(rated(f"{what}, 1 core", "scikit-learn", [alone], [theirs]))
    return made
