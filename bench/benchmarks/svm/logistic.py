"""Measures apps.logistic on rcv1-ccat against scikit-learn: seconds to 1e-3 and to 1e-2 above the minimum."""

from __future__ import annotations

from functools import partial
from typing import Any

import malt
from bench.benchmarks.rows import Row
from bench.benchmarks.svm import peers, task
from bench.benchmarks.svm.task import Task
from bench.harness import datasets
from malt.models import linear

MINIMUM = 0.299223
"""That of the mean logistic loss with l2 1e-4: scipy's L-BFGS-B has found it."""
RANKS = 2
PROBLEM = linear.Problem("logistic", task.L2, False)


def rows(quick: bool) -> list[Row]:
    """All rows of this module."""
    data = malt.open_svmlight(datasets.RCV1)

    def posed(excess: float, *options: object, every: int = 6000, epochs: int = 12, **more: Any) -> Task:
        words = ("apps.logistic", datasets.RCV1, *options)
        return Task("rcv1-ccat", data, (1 + excess) * MINIMUM, words, every, epochs, PROBLEM, **more)

    near, far = posed(1e-3, "--optimizer", "sgd"), posed(1e-2, "--optimizer", "sgd")
    adam = posed(1e-2, "--optimizer", "adam", every=500, epochs=20, searches_step=False)
    rounds = 2 if quick else 5
    solvers = {f"scikit-learn, {name}": peers.logistic_regression(near, name) for name in ("lbfgs", "liblinear")}
    sgd = {"scikit-learn SGDClassifier": peers.scikit_learn(far)}
    return [
        *_compared({"sgd": near, "lbfgs after 1 epoch of sgd": posed(1e-3, "--warm-start", 1)}, solvers, rounds),
        *_compared({"sgd": far, "adam": adam}, sgd, rounds),
    ]


def _compared(ours: dict[str, Task], theirs: dict[str, peers.Peer | None], rounds: int) -> list[Row]:
    """The rows of programs and peers that take turns."""
    contenders = {
        f"logistic regression on {one.name} to {one.target:.4f}, {name}, {RANKS} ranks": partial(one.seconds, RANKS)
        for name, one in ours.items()
    }
    return peers.compared(contenders, theirs, rounds)
