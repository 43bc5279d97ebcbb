"""Measures apps.logistic on rcv1-ccat against scikit-learn: seconds to 1e-3 and to 1e-2 above the minimum."""

from __future__ import annotations

from functools import partial

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
    words = ("apps.logistic", datasets.RCV1, "--optimizer", "sgd")
    near, far = (
        Task("rcv1-ccat", data, (1 + excess) * MINIMUM, words, 6000, 12, PROBLEM) for excess in (1e-3, 1e-2)
    )  # fmt: skip
    solvers = {f"scikit-learn, {name}": peers.logistic_regression(near, name) for name in ("lbfgs", "liblinear")}
    sgd = {"scikit-learn SGDClassifier": peers.scikit_learn(far)}
    made = []
    for one, others in ((near, solvers), (far, sgd)):
        what = f"logistic regression on {one.name} to {one.target:.4f}, sgd, {RANKS} ranks"
        made += peers.compared({what: partial(one.seconds, RANKS)}, others, 2 if quick else 5)
    return made
