"""Compares apps.gbdt with scikit-learn's and XGBoost's histogram trees on two threads.

python -m bench.pages.boosting [--json docs/boosting.json]
"""

from __future__ import annotations

import os
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import malt
from apps.linear.reading import EMBEDDED
from bench.harness import document, jobs
from bench.harness.document import Measured, Table
from bench.harness.rest import Others
from bench.harness.timing import turns
from dstorm.words import count

DEPTH, BINS, RATE, THREADS, ROUNDS, FEATURES = 6, 255, 0.1, 2, 3, 28
ROWS, TESTED, TREES = 1_000_000, 100_000, 20
RANKS = (1, 2, 4)


class Set(NamedTuple):
    """Rows to train and to test on, as files, and how many trees are made of them."""

    title: str
    train: Path
    test: Path
    trees: int


def planted(rows: int, path: Path, seed: int) -> Path:
    """Write rows of two classes, which a sum of products, squares and steps of features tells apart."""
    draw = np.random.default_rng(seed)
    with open(path, "w") as file:
        for first in range(0, rows, 10_000):
            X = np.rint(1000 * draw.standard_normal((min(10_000, rows - first), FEATURES))).astype(int)
            Z = X / 1000
            score = Z[:, 0] * Z[:, 1] + np.sin(2 * Z[:, 2]) + Z[:, 3] ** 2 / 2 + (Z[:, 4] > 0.5) * Z[:, 5] - 0.5
            y = np.where(draw.random(len(Z)) < 1 / (1 + np.exp(-1.5 * score - Z[:, 6:14].sum(axis=1) / 4)), 1, -1)
            for label, row in zip(y.tolist(), X.tolist(), strict=True):
                file.write(f"{label} " + " ".join(f"{j}:{x}" for j, x in enumerate(row, 1)) + "\n")
    return path


def words(rows: Set) -> list[object]:
    """The arguments of apps.gbdt."""
    return [rows.train, "--trees", rows.trees, "--depth", DEPTH, "--bins", BINS, "--learning-rate", RATE]


def ours(rows: Set, ranks: int) -> float:
    """Seconds of apps.gbdt."""
    epochs = jobs.report(ranks, "apps.gbdt", *words(rows))["epochs"]
    return float(epochs[-1]["seconds"] - epochs[0]["seconds"])


def scikit_learn(X: Any, y: Any) -> Callable[[int], Any]:
    """fit(trees) of scikit-learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    options = {"max_depth": DEPTH, "max_leaf_nodes": None, "max_bins": BINS, "learning_rate": RATE}
    return lambda trees: HistGradientBoostingClassifier(max_iter=trees, early_stopping=False, **options).fit(X, y)


def xgboost(X: Any, y: Any) -> Callable[[int], Any]:
    """fit(trees) of XGBoost."""
    import xgboost

    data = xgboost.QuantileDMatrix(X, label=y > 0, max_bin=BINS)
    options = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": DEPTH, "eta": RATE, "max_bin": BINS}
    options |= {"nthread": THREADS, "lambda": 0}
    return lambda trees: xgboost.train(options, data, trees)


def seconds(fit: Callable[[int], Any], trees: int) -> float:
    """The seconds of the trees after the first."""
    times = []
    for some in (1, trees):
        start = time.perf_counter()
        fit(some)
        times.append(time.perf_counter() - start)
    return times[1] - times[0]


def good(y: Any, chances: Any) -> list[str]:
    """Log-loss and AUC as two cells."""
    from sklearn.metrics import log_loss, roc_auc_score

    return [f"{log_loss(y > 0, chances):.4f}", f"{roc_auc_score(y > 0, chances):.4f}"]


def table(rows: Set) -> Table:
    """A row for each contender."""
    import xgboost as xgb

    data, test = malt.open_svmlight(rows.train), malt.open_svmlight(rows.test)
    X, X_test = data.X.toarray(), np.zeros((len(test.y), data.X.shape[1]), np.float32)
    X_test[:, : test.X.shape[1]] = test.X.toarray()[:, : X_test.shape[1]]
    fits = {"HistGradientBoostingClassifier": scikit_learn(X, data.y), "XGBoost hist": xgboost(X, data.y)}
    contenders: dict[str, Callable[[], float]] = {
        **{f"apps.gbdt, {count(ranks, 'rank')}": partial(ours, rows, ranks) for ranks in RANKS},
        **{name: partial(seconds, fit, rows.trees) for name, fit in fits.items()},
    }
    taken = turns({name: lambda _, train=train: train() for name, train in contenders.items()}, ROUNDS)
    final = jobs.report(2, "apps.gbdt", *words(rows), "--test", rows.test)["final"]
    own = [f"{final['test_logloss']:.4f}", f"{final['test_auc']:.4f}"]
    histogram, boosted = (fit(rows.trees) for fit in fits.values())
    quality = dict.fromkeys(contenders, own)
    quality["HistGradientBoostingClassifier"] = good(test.y, histogram.predict_proba(X_test)[:, 1])
    quality["XGBoost hist"] = good(test.y, boosted.predict(xgb.DMatrix(X_test)))
    made = [[rows.title, "s", "from, to", "test log-loss", "test AUC"]]
    for name, found in taken.items():
        made.append([name, f"{statistics.median(found):.2f}", f"{min(found):.2f}, {max(found):.2f}", *quality[name]])
    return made


def measured(options: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    others = Others()
    large = [planted(rows, options.scratch / f"{seed}.svm", seed) for seed, rows in enumerate((ROWS, TESTED))]
    sets = {
        "a9a": Set("a9a, 32,561 rows, 100 trees", EMBEDDED / "train.svm.xz", EMBEDDED / "test.svm.xz", 100),
        "rows": Set(f"{ROWS:,} rows, {TREES} trees", large[0], large[1], TREES),
    }
    tables = {name: table(one) for name, one in sets.items()}
    return {"tables": tables, "figures": {"rounds": ROUNDS, "others": others.share()}}


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = str(THREADS)
    document.measure("bench.pages.boosting", str(__doc__), measured)
