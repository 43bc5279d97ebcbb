"""Other programs for the same task, each with its best setting. Those that are not installed are None."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix

from bench.benchmarks.rows import Row, missing, timed
from bench.benchmarks.svm.task import L2, Task
from bench.harness.timing import turns

_TOLERANCES = (10.0, 3.0, 2.0, 1.5, 1.2, 1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01)
_SCHEDULES: tuple[dict[str, Any], ...] = (
    {"learning_rate": "optimal"},
    {"learning_rate": "constant", "eta0": 0.3},
    {"learning_rate": "constant", "eta0": 1.0},
    {"learning_rate": "invscaling", "eta0": 10.0},
    {"learning_rate": "invscaling", "eta0": 100.0},
)
"""The step sizes that scikit-learn is tried with, each with plain and with averaged weights."""


class Peer(NamedTuple):
    """A program at its best setting."""

    seconds: Callable[[int], float]
    """Trains once, from a seed if it has one; returns the seconds until the target, infinity if it is not reached."""
    setting: str = ""


def compared(ours: Mapping[str, Callable[[int], float]], others: Mapping[str, Peer | None], rounds: int) -> list[Row]:
    """The rows of the seconds of programs and peers that take turns, each of ours against each peer."""
    taken = turns({**ours, **{name: peer.seconds for name, peer in others.items() if peer}}, rounds)
    made = []
    for mine in ours:
        for name, peer in others.items():
            if peer is None:
                made.append(missing(mine, name, "it is not installed"))
            else:
                note = f"best setting: {peer.setting}" if peer.setting else ""
                made.append(timed(mine, name, taken[mine], taken[name], note))
    return made


def scikit_learn(task: Task) -> Peer | None:
    """SGDClassifier.partial_fit, epoch by epoch. Best: the schedule and the weights that take the least time."""
    try:
        from sklearn.linear_model import SGDClassifier
    except ImportError:
        return None
    X = csr_matrix(task.data.X)

    def seconds(**setting: Any) -> float:
        loss = {"hinge": "hinge", "logistic": "log_loss"}[task.problem.loss]
        model = SGDClassifier(loss=loss, alpha=L2, fit_intercept=False, random_state=0, **setting)
        taken = 0.0
        for _ in range(task.epochs):
            start = time.perf_counter()
            model.partial_fit(X, task.data.y, classes=[-1, 1])
            taken += time.perf_counter() - start
            if task.objective(model.coef_[0]) <= task.target:
                return taken
        return float("inf")

    tried = [{**schedule, "average": average} for schedule in _SCHEDULES for average in (False, True)]
    best = min(tried, key=lambda setting: seconds(**setting))
    return Peer(lambda _: seconds(**best), ", ".join(f"{name} {value}" for name, value in best.items()))


def logistic_regression(task: Task, solver: str) -> Peer | None:
    """LogisticRegression. Best: the fewest iterations that reach the target, or the loosest tolerance.

    Of three trainings the fastest counts: the first one after a job takes up to four times as long.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression
    except ImportError:
        return None
    X, y = csr_matrix(task.data.X).astype(np.float64), task.data.y.astype(np.float64)

    def seconds(**setting: Any) -> float:
        model = LogisticRegression(C=1 / (L2 * len(y)), fit_intercept=False, solver=solver, **setting)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            start = time.perf_counter()
            model.fit(X, y)
            taken = time.perf_counter() - start
        return taken if task.objective(model.coef_[0]) <= task.target else float("inf")

    ways: list[list[dict[str, Any]]] = [[{"max_iter": count, "tol": 0} for count in range(2, 50)]]
    if solver == "liblinear":
        ways = [[{"dual": dual, "tol": tolerance} for tolerance in _TOLERANCES] for dual in (False, True)]
    found = [next(setting for setting in way if seconds(**setting) < float("inf")) for way in ways]

    def fastest(setting: dict[str, Any]) -> float:
        return min(seconds(**setting) for _ in range(3))

    best = min(found, key=fastest)
    return Peer(lambda _: fastest(best), ", ".join(f"{name} {value}" for name, value in best.items()))


def liblinear(task: Task, threads: int) -> Peer | None:
    """The multi-core build's solver for this dual. Best: the loosest tolerance that reaches the target."""
    try:
        from liblinear.liblinearutil import parameter, problem, train
    except ImportError:
        return None
    y = task.data.y.astype(np.float64)
    posed = problem(y, csr_matrix(task.data.X).astype(np.float64))

    def trained(tolerance: float) -> tuple[float, bool]:
        options = parameter(f"-s 3 -c {1 / (L2 * len(y))} -e {tolerance} -m {threads} -q")
        start = time.perf_counter()
        model = train(posed, options)
        taken = time.perf_counter() - start
        weights = np.array(model.w[: model.nr_feature]) * (1 if model.label[0] == 1 else -1)
        return taken, task.objective(weights) <= task.target

    best = next((tolerance for tolerance in _TOLERANCES if trained(tolerance)[1]), _TOLERANCES[-1])

    def seconds(_: int) -> float:
        taken, reached = trained(best)
        return taken if reached else float("inf")

    return Peer(seconds, f"tolerance {best:g}")
