"""Measures apps.svm against its peers, on rcv1-ccat and on 300,000 rows generated from a seed."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from bench.benchmarks.rows import Row
from bench.benchmarks.svm import peers, task
from bench.benchmarks.svm.task import Task

RANKS = {"1 rank": 1, "2 ranks": 2}


def rows(quick: bool) -> list[Row]:
    """All rows of this module. Those that lack their peer are not measured, with a note.

    A quick run leaves the 300,000 rows out.
    """
    if quick:
        return _compared(task.rcv1(), 2)
    with tempfile.TemporaryDirectory() as folder:
        return [row for one in (task.rcv1(), task.large(Path(folder))) for row in _compared(one, 7)]


def _compared(one: Task, rounds: int) -> list[Row]:
    """Seconds to the target, of 1 and 2 ranks against each peer at its best setting."""
    others = {
        "scikit-learn SGDClassifier, 1 core": peers.scikit_learn(one),
        "LIBLINEAR, dual, hinge, 1 thread": peers.liblinear(one, 1),
        "LIBLINEAR, dual, hinge, 2 threads": peers.liblinear(one, 2),
    }
    what = f"SVM on {one.name} to objective {one.target:.4f}"
    ours = {f"{what}, {name}": partial(one.seconds, ranks) for name, ranks in RANKS.items()}
    return peers.compared(ours, others, rounds)
