"""Compares apps.gbdt on one rank and on two with scikit-learn's and XGBoost's histogram trees on two threads, in turns.

python -m bench.pages.boosting [--rows 1000000]       the census data a9a, or so many rows made of a seed

Trees, depth and bins are the same. Seconds are those of the trees after the first: bins are found before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import malt
from apps.linear.reading import EMBEDDED
from bench import jobs

TREES, DEPTH, BINS, RATE, THREADS, ROUNDS, FEATURES = 100, 6, 255, 0.1, 2, 3, 28


def planted(rows: int, path: Path) -> Path:
    """Write rows of two classes, which a sum of products, squares and steps of features tells apart."""
    draw = np.random.default_rng(0)
    with open(path, "w") as file:
        for first in range(0, rows, 10_000):
            X = np.rint(1000 * draw.standard_normal((min(10_000, rows - first), FEATURES))).astype(int)
            Z = X / 1000
            score = Z[:, 0] * Z[:, 1] + np.sin(2 * Z[:, 2]) + Z[:, 3] ** 2 / 2 + (Z[:, 4] > 0.5) * Z[:, 5] - 0.5
            y = np.where(draw.random(len(Z)) < 1 / (1 + np.exp(-1.5 * score - Z[:, 6:14].sum(axis=1) / 4)), 1, -1)
            for label, row in zip(y.tolist(), X.tolist(), strict=True):
                file.write(f"{label} " + " ".join(f"{j}:{x}" for j, x in enumerate(row, 1)) + "\n")
    return path


def ours(path: Path, ranks: int, trees: int) -> float:
    """Seconds of apps.gbdt."""
    words = [path, "--trees", trees, "--depth", DEPTH, "--bins", BINS, "--learning-rate", RATE]
    epochs = jobs.report(ranks, "apps.gbdt", *words)["epochs"]
    return float(epochs[-1]["seconds"] - epochs[0]["seconds"])


def scikit_learn(X: Any, y: Any) -> Callable[[int], object]:
    """fit(trees) of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    options = {"max_depth": DEPTH, "max_leaf_nodes": None, "max_bins": BINS, "learning_rate": RATE}
    return lambda trees: HistGradientBoostingClassifier(max_iter=trees, early_stopping=False, **options).fit(X, y)


def xgboost(X: Any, y: Any) -> Callable[[int], object]:
    """fit(trees) of XGBoost."""
    import xgboost

    data = xgboost.QuantileDMatrix(X, label=y > 0, max_bin=BINS)
    options = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": DEPTH, "eta": RATE, "max_bin": BINS}
    options |= {"nthread": THREADS, "lambda": 0}
    return lambda trees: xgboost.train(options, data, trees)


def seconds(fit: Callable[[int], object], trees: int) -> float:
    """The seconds of the trees after the first."""
    times = []
    for count in (1, trees):
        start = time.perf_counter()
        fit(count)
        times.append(time.perf_counter() - start)
    return times[1] - times[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rows", type=int, help="rows made of a seed (a9a)")
    parser.add_argument("--trees", type=int, default=TREES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = planted(options.rows, Path(folder, "rows.svm")) if options.rows else EMBEDDED / "train.svm.xz"
        data = malt.open_svmlight(path)
        X, y, trees = data.X.toarray(), data.y, options.trees
        contenders: dict[str, Callable[[], float]] = {
            "apps.gbdt, 1 rank": partial(ours, path, 1, trees),
            "apps.gbdt, 2 ranks": partial(ours, path, 2, trees),
            "HistGradientBoostingClassifier": partial(seconds, scikit_learn(X, y), trees),
            "XGBoost hist": partial(seconds, xgboost(X, y), trees),
        }
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, train in contenders.items():
                taken[name].append(train())
    for name, found in taken.items():
        print(f"{name:32} {statistics.median(found):8.3f} s    {min(found):.3f} to {max(found):.3f}")


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    main()
