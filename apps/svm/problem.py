"""The problem of apps.svm, for all optimizers: the rows, the objective, the model and its file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Need, Report
from apps.linear.reading import widest
from malt import files
from malt.models import linear


class Problem(harness.Problem):
    """The training rows, the test rows, and the objective."""

    same: tuple[str, ...] = ("loss", "l2", "intercept", "seed")
    """The options that a checkpoint must have been written with."""

    def __init__(self, options: Namespace, train: malt.Dataset, test: malt.Dataset | None) -> None:
        self.options, self.train, self.test = options, train, test
        self.rows = len(train.y)
        self.n_features = max(train.X.shape[1], 0 if test is None else test.X.shape[1])
        self.linear = linear.Problem(options.loss, options.l2, options.intercept)

    def need(self, nbytes: int) -> Need:
        """The need names the line with the largest index."""
        what = widest(self.options, self.train, self.test)
        return Need(nbytes, what, "correct the line, or take fewer ranks or epochs")

    def match(self) -> dict[str, Any]:
        train = self.train
        same = {name: getattr(self.options, name) for name in self.same}
        data = {"rows": self.rows, "non-zeros": train.X.nnz, "features": self.n_features}
        return {**same, **data, "labels": list(train.labels), "CRC-32 of labels": harness.fingerprint(train.y)}

    def compile(self) -> None:
        linear.compile_kernels()

    def described(self) -> str:
        """The beginning of the introduction."""
        options, train, test = self.options, self.train, self.test
        return (
            f"{self.rows:,} rows, {train.X.shape[1]:,} features, {train.X.nnz:,} non-zeros"
            + (f"; {len(test.y):,} test rows\n" if test else "\n")
            + f"{options.loss}, l2 {options.l2:g}, {'with' if options.intercept else 'no'} intercept"
        )


class Trainer(harness.Trainer):
    """All rows, and a model of them."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._options = problem, problem.options
        train, test = problem.train, problem.test
        self._everything = linear.examples(train.X, train.y)
        self._test = None if test is None else linear.examples(test.X, test.y)

    def objective(self, model: Mapping[str, Array]) -> float:
        return linear.objective(self._problem.linear, self._everything, model["model"])

    def test_accuracy(self, model: Mapping[str, Array]) -> float | None:
        """The share of the test rows that the model gets right; None without test rows."""
        return None if self._test is None else linear.accuracy(self._problem.linear, self._test, model["model"])

    def save(self, path: str) -> None:
        """Write the model as .npz: weights of the features, in the order of the file, and the intercept."""
        train, model = self._problem.train, self.model()["model"]
        files.save_npz(
            path, format=1, program="apps.svm", loss=self._options.loss, l2=self._options.l2, weights=model[:-1],
            intercept=model[-1], labels=np.array(train.labels), zero_based=train.zero_based,
        )  # fmt: skip

    def is_worse_than_zeros(self, report: Report) -> bool:
        """Return whether the final model has a larger objective than one of zeros."""
        zeros = {"model": np.zeros_like(self.model()["model"])}
        return bool(report.final["objective"] > self.objective(zeros))
