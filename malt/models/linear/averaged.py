"""Stochastic gradient descent of linear classifiers on all ranks, which average their models."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.kernels import compile_first
from malt.models import linear
from malt.models.common import Sharing
from malt.models.linear.descent import Classes
from malt.models.linear.learners import ModelLearner
from malt.models.rows import Rows, agreed
from malt.session.collectives import allreduce

_PATIENCE: Final = 2
"""Epochs in a row that improve the objective too little, before it ends."""


@dataclass
class Model:
    """A model, and what a training goes on from: the same on all ranks."""

    params: NDArray[np.float32]
    """A row for each class, or one for two classes: the weights, then the intercept. C-contiguous."""
    rows: float = 0
    """The rows of all ranks in all calls, or the sum of their weights."""
    trained: float = 0.0
    """The examples that a rank has trained on: the mean over the ranks."""
    blended: int = 0
    """The models that `params` is a mean of."""
    first_steps: list[float] = field(default_factory=list)
    """The first step size of each row of params; empty before it is chosen."""
    intercept_rate: float = linear.INTERCEPT_RATE
    """The intercept's share of a step: INTERCEPT_RATE times the mean |x|^2, at most 1."""

    @staticmethod
    def of_zeros(classes: int, features: int) -> Model:
        """A model before any training."""
        return Model(np.zeros((classes if classes > 2 else 1, features + 1), np.float32))

    def copy(self) -> Model:
        """A copy with parameters of its own."""
        return replace(self, params=self.params.copy())


class Descent:
    """One training. `name`: for messages. `X`: CSR, float32. `codes`: the number of the class of each row. Local."""

    def __init__(
        self, name: str, model: Model, problem: linear.Problem, kind: type[Classes], rows: Rows, X: Any, codes: Any
    ) -> None:  # fmt: skip
        self._name, self._model, self._problem = name, model, replace(problem, rate=model.intercept_rate)
        self._kind, self._rows, self._X, self._codes = kind, rows, X, np.asarray(codes, np.float32)
        self._order = rows.mine()

    def _data(self) -> linear.Examples:
        """This rank's rows: a copy."""
        return linear.examples(self._X, self._codes, self._order)

    def train(self, epochs: int, tol: float, sharing: Sharing) -> int:
        """Train for at most so many epochs; return how many they were. Collective.

        It ends where `tol` is above 0, and the objective has improved by less than that part of it twice in a row.
        """
        compile_first(linear.compile_kernels)
        model, data = self._model, self._data()
        self._choose_steps(data)
        learner = ModelLearner(
            self._problem, data, model.params, model.first_steps, sharing, classes=self._kind, name=self._name
        )  # fmt: skip
        learner.trained, learner.blended = model.trained, model.blended
        best, stale, generator = math.inf, 0, self._rows.generator()
        for number in range(1, epochs + 1):  # noqa: B007
            self._take_rows(learner)
            order = linear.visiting_order(len(self._order), generator)
            if self._rows.weights is not None:
                order = self._rows.weights.drawn(order, self._order, generator)
            for start in range(0, len(order), sharing.every):
                part = order[start : start + sharing.every]
                learner.learn(part)
                learner.exchange(len(part))
            if tol:
                objective = self._objective(learner)
                stale = 0 if objective < best - tol * abs(best) or best == math.inf else stale + 1
                best = min(best, objective)
                if stale == _PATIENCE:
                    break
        if tol and not best < learner.classes.of_zeros:
            raise FloatingPointError(f"{self._name}: the weights diverge: scale the features, or use 'lbfgs'")
        learner.finish(before=model.trained)
        counts = np.array([learner.trained, learner.blended])
        allreduce(counts)
        model.trained, model.blended = float(counts[0]), round(counts[1])
        return number

    def _choose_steps(self, data: linear.Examples) -> None:
        """Choose the first step size of each class: the median of what ranks find on rows of theirs. Collective."""
        if self._model.first_steps:
            return

        def found() -> tuple[bool, dict[str, list[float]]]:
            """Those of this rank's rows, behind their rate of the intercept; none without rows."""
            if not len(self._order):
                return True, {"_steps": []}
            square = float(np.square(data.values, dtype=np.float64).sum()) / len(self._order)
            problem = replace(self._problem, rate=min(1.0, linear.INTERCEPT_RATE * square))
            classes = self._kind(problem, data, self._model.params.shape)
            return True, {"_steps": [problem.rate, *classes.first_steps(problem)]}

        _, reports = agreed(self._name, found)
        steps = [one["_steps"] for one in reports.values() if one["_steps"]]
        rate, *self._model.first_steps = np.quantile(steps, 0.5, axis=0, method="lower").tolist()
        self._model.intercept_rate, self._problem = rate, replace(self._problem, rate=rate)

    def _take_rows(self, learner: ModelLearner) -> None:
        """Take the rows of ranks that have failed. Local."""
        order = self._rows.mine()
        if len(order) != len(self._order):
            self._order = order
            learner.take(self._data())

    def _objective(self, learner: ModelLearner) -> float:
        """The mean objective of the ranks' models, each on its rows; the same on all ranks. Collective."""
        penalties = sum(linear.penalty(self._problem, params) for params in learner.model)
        sums = np.array([self._losses(learner) + len(self._order) * penalties, len(self._order)])
        allreduce(sums, "sum")
        return float(sums[0] / sums[1])

    def _losses(self, learner: ModelLearner) -> float:
        """The sum of the losses of this rank's rows, times their weights, at the mean of models. Local."""
        if self._rows.weights is None:
            return learner.classes.losses(learner.model)
        return learner.classes.losses(learner.model, self._rows.weights.relative[self._order])
