"""How stochastic gradient descent trains several classes: each against the rest, or all by the softmax."""

from __future__ import annotations

import math
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import descent
from malt.models.linear.compiled import SOFTMAX, Examples, Order, add_gradient_of_classes, loss_of
from malt.models.linear.problem import Problem, totals
from malt.models.linear.rows import readonly
from malt.models.linear.steps import first_step

Array = NDArray[np.float32]


class Classes(Protocol):
    """Rows, and the losses of a model whose `params` have a row for each class, or one for two classes. Local.

    It is made of a `problem`, of `data`, whose labels are the numbers of the classes, and of the shape of `params`.
    """

    of_zeros: float
    """The loss of a row where all weights are 0."""

    def __init__(self, problem: Problem, data: Examples, shape: tuple[int, ...]) -> None: ...

    def first_steps(self, problem: Problem) -> list[float]:
        """The first step size of each row of `params`, as these rows choose it. ValueError: as first_step."""

    def train(self, problem: Problem, part: Order, params: Array, steps: list[float], t: float) -> None:
        """Train `params` on the rows in `part`, as descent.train. FloatingPointError: as there."""

    def losses(self, params: Array) -> float:
        """The sum over the rows, and the classes, of the losses."""


class OneVsRest:
    """A model of each class, with the labels +1 for its rows and -1 for the others: see `Classes`."""

    def __init__(self, problem: Problem, data: Examples, shape: tuple[int, ...]) -> None:
        self._problem, self._features = problem, shape[1] - 1
        columns = range(shape[0]) if shape[0] > 1 else [1]
        self._data = [one_against_rest(data, column) for column in columns]
        self.of_zeros = len(columns) * loss_of(problem.code, 0.0)

    def first_steps(self, problem: Problem) -> list[float]:
        return [first_step(problem, data, self._features) for data in self._data]

    def train(self, problem: Problem, part: Order, params: Array, steps: list[float], t: float) -> None:
        for data, row, step in zip(self._data, params, steps, strict=True):
            descent.train(problem, data, part, row, step, t)

    def losses(self, params: Array) -> float:
        return sum(totals(self._problem, *one)[0] for one in zip(self._data, params, strict=True))


class Softmax:
    """One model of all classes, whose probabilities are the softmax of their scores: see `Classes`."""

    def __init__(self, problem: Problem, data: Examples, shape: tuple[int, ...]) -> None:
        self._problem, self._data, self._shape = problem, data, shape
        self._scores = np.zeros(shape[0])
        self.of_zeros = math.log(shape[0])

    def first_steps(self, problem: Problem) -> list[float]:
        """The median of those of each class against the rest: scores of all classes take steps of one size."""
        found = OneVsRest(problem, self._data, self._shape).first_steps(problem)
        return [float(np.quantile(found, 0.5, method="lower"))] * len(found)

    def train(self, problem: Problem, part: Order, params: Array, steps: list[float], t: float) -> None:
        descent.train_classes(problem, self._data, part, params, self._scores, steps[0], t)

    def losses(self, params: Array) -> float:
        weights = np.ascontiguousarray(params.T, np.float64)
        unused = np.zeros_like(weights)
        return add_gradient_of_classes(self._data, weights, unused, self._scores, SOFTMAX)[0]


def one_against_rest(data: Examples, label: int) -> Examples:
    """The same rows with labels +1 for class number `label`, and -1 for the others."""
    return data._replace(labels=readonly(np.where(data.labels == label, 1, -1), np.float32))


KINDS: Final[dict[bool, type[Classes]]] = {False: OneVsRest, True: Softmax}
"""By whether the classes are those of the softmax."""
