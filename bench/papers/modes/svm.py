"""A linear SVM as apps.svm trains it: each rank one example at a time, with means of models."""

from __future__ import annotations

from typing import Any

import numpy as np

import malt
from bench.benchmarks.svm import task
from bench.papers.mllib import task as made
from bench.papers.modes.way import RANKS, Averages, Learner, Way
from malt.models import Sharing, linear
from malt.models.linear import Examples, ModelLearner, Order, Params, Problem

EVERY = 1000
"""As apps.svm by default; in the paper 1,000 to 5,000."""
SMALL_ABOVE = 0.1
"""How far above the optimum the objective of `small` lies."""


class Svm:
    """Rows of two classes. A `Task`."""

    name = "apps.svm"

    def __init__(
        self, what: str, data: Examples, n_features: int, problem: Problem, target: float, every: int
    ) -> None:  # fmt: skip
        self.what, self.every, self.target = what, every, target
        self.measure = f"objective {target:.4g}"
        self._data, self._problem, self._n_features = data, problem, n_features
        self.rows, self.nbytes = len(data.labels), 4 * (n_features + 1)
        self._ends = [rank * self.rows // RANKS for rank in range(RANKS + 1)]
        self.at_first = self.objective(np.zeros(n_features + 1, np.float32))
        self.eta0 = linear.first_step(problem, data, n_features, min(RANKS, linear.MAX_TRIAL_RANKS))
        """The first step size, found as the program finds it."""

    def objective(self, model: Params) -> float:
        return linear.objective(self._problem, self._data, model)

    def learner(self, way: Way) -> Learner:
        mine = linear.part(self._data, *self._ends[malt.rank() : malt.rank() + 2])
        if way.is_collective:
            zeros = np.zeros(self._n_features + 1, np.float32)
            return _Averaging(self._problem, mine, zeros, [self.eta0], Averages())
        return linear.learner(self._problem, mine, self._n_features, self.eta0, Sharing(way.graph, way.sync, 1))

    def order(self, generator: np.random.Generator) -> Order:
        return linear.visiting_order(self._ends[malt.rank() + 1] - self._ends[malt.rank()], generator)

    def work(self) -> int:
        params: Params = np.zeros(self._n_features + 1, np.float32)
        order = linear.visiting_order(self.rows, np.random.default_rng(0))
        linear.train(self._problem, self._data, order, params, self.eta0, 0.0)
        return self.rows


class _Averaging(ModelLearner):
    """The same training, with a mean of all models at each exchange. `sharing`: `Averages`."""

    def _connect(self, sharing: Any, average: str, name: str | None) -> None:
        self._alone, self.vectors = False, [sharing]

    def _exchange(self, count: int) -> None:
        self.vectors[0].take([self._params])

    def _leave(self) -> None:
        """There is nothing to close."""


def news() -> Svm:
    """The news stories of rcv1-ccat. OSError: they are not there."""
    rows = task.rcv1()
    linear.compile_kernels()
    order = np.random.default_rng(0).permutation(len(rows.data.y))
    examples = linear.examples(rows.data.X, rows.data.y, order)
    what = f"rcv1-ccat, {len(order):,} news stories of {rows.width:,} features"
    return Svm(what, examples, rows.width, rows.problem, rows.target, EVERY)


def small() -> Svm:
    """Rows generated from a seed, as popular as words of text."""
    rows = made.task(made.rows(8_000, 2_000, made.TEXT), 2_000, SMALL_ABOVE)
    what = f"{len(rows.data.labels):,} rows of {rows.n_features:,} features, generated from a seed"
    return Svm(what, rows.data, rows.n_features, rows.problem, rows.target, 100)
