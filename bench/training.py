"""Measures apps.svm against scikit-learn and LIBLINEAR, on rcv1-ccat."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps.svm import linear
from bench.rows import Row, timed
from bench.timing import copy_rate

DATA = Path(__file__).parents[2] / "shared" / "data" / "rcv1-ccat" / "train.svm.xz"
TARGET, L2 = 0.1905, 1e-4
"""The target objective, one percent above the optimum for hinge loss and no intercept, and the l2 of all runs."""
NO_DATA = "needs the data set rcv1-ccat in ../shared/data"
_TRAINING = ["--l2", str(L2), "--no-intercept"]


def rows(quick: bool) -> list[Row]:
    """All rows of this module. Those that lack their data or their peer are not measured, with a note."""
    if not DATA.exists():
        return [Row("SVM on rcv1-ccat", "all peers", None, 1, note=NO_DATA)]
    rounds = 2 if quick else 7
    data = malt.open_svmlight(DATA)
    peers: dict[str, Callable[[], float | None]] = {
        "scikit-learn SGDClassifier, 1 core": lambda: _sklearn(data),
        "LIBLINEAR, dual, hinge": lambda: _liblinear(data),
    }
    ours: dict[str, list[float]] = {"1 rank": [], "2 ranks": []}
    theirs: dict[str, list[float]] = {name: [] for name in peers}
    for seed in range(rounds):
        for name, ranks in (("1 rank", 1), ("2 ranks", 2)):
            ours[name].append(_time_to_target(ranks, seed))
        for name, run in peers.items():
            taken = run()
            if taken is not None:
                theirs[name].append(taken)
    made = []
    for name, goal in zip(peers, (2.5, 2.0), strict=True):
        for mine, times in ours.items():
            what = f"SVM to objective {TARGET}, {mine}"
            if theirs[name]:
                made.append(timed(what, name, goal, times, theirs[name]))
            else:
                made.append(Row(what, name, None, goal, note="not installed"))
    return [*made, *_rates(data, quick)]


def _report(ranks: int, *options: object) -> dict[str, Any]:
    """The JSON report of apps.svm on rcv1-ccat."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "report.json")
        words = ["-m", "apps.svm", str(DATA), *_TRAINING, "--json", str(file), *map(str, options)]
        command = [sys.executable, "-m", "malt", "run", "-n", str(ranks), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        report: dict[str, Any] = json.loads(file.read_text())
        return report


def _time_to_target(ranks: int, seed: int) -> float:
    """Seconds of training until rank 0's model reaches the target, with those of the choice of the first step."""
    report = _report(ranks, "--epochs", 14, "--seed", seed)
    reached = [epoch["seconds"] for epoch in report["epochs"] if epoch["objective"] <= TARGET]
    return (reached[0] if reached else float("inf")) + _step_search(ranks)


def _step_search(ranks: int) -> float:
    """Seconds that the choice of the first step takes on each rank, as the ranks divide the work."""
    data = malt.open_svmlight(DATA)
    problem = linear.Problem("hinge", L2, False)
    linear.compile_kernels()
    sample = linear.examples(data.X, data.y, np.arange(ranks * linear.STEP_SAMPLE))
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        linear.first_step(problem, sample, data.X.shape[1], ranks)
        taken.append(time.perf_counter() - start)
    return min(taken) / ranks


def _objective(data: malt.Dataset, weights: np.ndarray[Any, Any]) -> float:
    problem = linear.Problem("hinge", L2, False)
    params = np.append(weights, 0).astype(np.float32)
    return linear.objective(problem, linear.examples(data.X, data.y), params)


def _sklearn(data: malt.Dataset) -> float | None:
    """Seconds of partial_fit until the target, with plain or averaged weights, whichever is faster.

    It returns None if scikit-learn is not installed, and infinity if the target is not reached.
    """
    try:
        from scipy.sparse import csr_matrix
        from sklearn.linear_model import SGDClassifier
    except ImportError:
        return None
    X, best = csr_matrix(data.X), float("inf")
    for average in (False, True):
        model = SGDClassifier(alpha=L2, fit_intercept=False, average=average, random_state=0)
        taken = 0.0
        for _ in range(30):
            start = time.perf_counter()
            model.partial_fit(X, data.y, classes=[-1, 1])
            taken += time.perf_counter() - start
            if _objective(data, model.coef_[0]) <= TARGET:
                best = min(best, taken)
                break
    return best


def _liblinear(data: malt.Dataset) -> float | None:
    """Seconds of the run with the loosest tolerance that reaches the target; None if LIBLINEAR is not installed."""
    try:
        from liblinear.liblinearutil import parameter, problem, train
    except ImportError:
        return None
    from scipy.sparse import csr_matrix

    posed = problem(data.y.astype(np.float64), csr_matrix(data.X).astype(np.float64))
    for tolerance in (10.0, 3.0, 2.0, 1.5, 1.2, 1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01):
        options = parameter(f"-s 3 -c {1 / (L2 * len(data.y))} -e {tolerance} -q")
        start = time.perf_counter()
        model = train(posed, options)
        taken = time.perf_counter() - start
        weights = np.array(model.w[: model.nr_feature]) * (1 if model.label[0] == 1 else -1)
        padded = np.zeros(data.X.shape[1])
        padded[: weights.size] = weights
        if _objective(data, padded) <= TARGET:
            return taken
    return float("inf")


def _rates(data: malt.Dataset, quick: bool) -> list[Row]:
    """Rows of examples per second: two ranks against one, one core against the copy rate and scikit-learn."""
    one, two = [], []
    for _ in range(2 if quick else 5):
        for ranks, rates in ((1, one), (2, two)):
            options = ("--epochs", 100 if quick else 300, "--exchange-every", 5000)
            rates.append(_report(ranks, *options)["final"]["examples_per_s"])
    scaling = statistics.median(mine / alone for mine, alone in zip(two, one, strict=True))
    alone = statistics.median(one)
    nbytes = data.X.data.nbytes + data.X.indices.nbytes + data.X.indptr.nbytes + data.y.nbytes
    streamed = copy_rate(64_000_000) / nbytes * len(data.y)
    sklearn_rate = _sklearn_rate(data)
    made = [
        Row("SVM examples/s, 2 ranks", "1 rank", scaling, 1.85, statistics.median(two), alone, "1/s"),
        Row("SVM examples/s, 1 core", "data streamed at the copy rate", alone / streamed, 0, alone, streamed, "1/s"),
    ]
    if sklearn_rate:
        what = ("SVM examples/s, 1 core", "scikit-learn")
        made.append(Row(*what, alone / sklearn_rate, 1.5, alone, sklearn_rate, "1/s"))
    return made


def _sklearn_rate(data: malt.Dataset) -> float | None:
    try:
        from scipy.sparse import csr_matrix
        from sklearn.linear_model import SGDClassifier
    except ImportError:
        return None
    X, epochs = csr_matrix(data.X), 10
    model = SGDClassifier(alpha=L2, fit_intercept=False, max_iter=epochs, tol=None, random_state=0)
    start = time.perf_counter()
    model.fit(X, data.y)
    return epochs * len(data.y) / (time.perf_counter() - start)
