"""The problem of apps.svm, for all optimizers: the rows, the objective, the model and its file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

import malt
from apps import harness
from apps.harness import Array, Need
from apps.linear import reading
from malt.models import linear

USUAL: Final = 1000
"""The examples of a rank between two exchanges where ranks exchange together, and at the start."""


class Problem(harness.Problem):
    """The training rows, the test rows, and the objective."""

    same: Sequence[str] = ("loss", "l2", "intercept", "seed")

    def __init__(self, options: Namespace, train: malt.Dataset, test: malt.Dataset | None) -> None:
        self.options, self.train, self.test = options, train, test
        self.rows = len(train.y)
        self.n_features = max(train.X.shape[1], 0 if test is None else test.X.shape[1])
        self.linear = linear.Problem(options.loss, options.l2, options.intercept)

    def need(self, nbytes: int) -> Need:
        """The need names the line with the largest index."""
        what = reading.widest(self.options, self.train, self.test)
        return Need(nbytes, what, "correct the line, or take fewer ranks or epochs")

    def facts(self) -> dict[str, Any]:
        return {**reading.facts(self.train, self.n_features), "labels": list(self.train.labels)}

    def compile(self) -> None:
        linear.compile_kernels()

    def described(self) -> str:
        """The beginning of the introduction."""
        options, size = self.options, reading.described(self.train, {"test": self.test})
        return f"{size}\n{options.loss}, l2 {options.l2:g}, {'with' if options.intercept else 'no'} intercept"


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

    def saved(self) -> Mapping[str, Any]:
        """The weights of the features, in the order of the file, and the intercept."""
        options, train, model = self._options, self._problem.train, self.model()["model"]
        return {
            "loss": options.loss, "l2": options.l2, "weights": model[:-1], "intercept": model[-1],
            "labels": np.array(train.labels), "zero_based": train.zero_based,
        }  # fmt: skip
