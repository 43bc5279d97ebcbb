"""Stochastic gradient descent, one example at a time, of two classes or of several; a running mean of its models.

After L. Bottou, "Stochastic Gradient Descent Tricks" (2012) and his programs, leon.bottou.org/projects/sgd.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import compiled
from malt.models.linear.compiled import (
    SOFTMAX,
    Examples,
    Order,
    Params,
    add_gradient,
    add_gradient_of_classes,
    loss_of,
)
from malt.models.linear.problem import Problem, totals
from malt.models.linear.rows import ONES, readonly
from malt.models.linear.steps import first_step

Array = NDArray[np.float32]

GRADIENT_SHARE: Final = 0.1
"""The share of m examples whose steps make the step along a mean of m subgradients: see `gradient_step`."""
TAIL: Final = 8.0
"""How fast `blend` forgets: of n models the newest weighs (TAIL + 1) / (TAIL + n)."""


def step_size(eta0: float, l2: float, t: float) -> float:
    """eta_t = eta0 / (1 + l2 eta0 t): eta0 at first, 1 / (l2 t) in the end (Bottou 2012, section 5.2)."""
    return eta0 / (1 + l2 * eta0 * t)


def train(problem: Problem, data: Examples, order: Order, params: Params, eta0: float, t: float) -> float:
    """Train `params`, in place, on the examples of the rows in `order`, one at a time. Returns t + len(order).

    FloatingPointError: the weights are no longer finite. The message names the step size.
    """
    if not compiled.train(data, order, params, problem.code, problem.l2, eta0, float(t), problem.intercept_rate):
        raise _not_finite(problem, len(order), eta0, t)
    return t + len(order)


def train_classes(
    problem: Problem, data: Examples, order: Order, params: NDArray[np.float32], scores: NDArray[np.float64],
    eta0: float, t: float,
) -> float:  # fmt: skip
    """Train `params`, in place, with the softmax loss, on the rows in `order`, one at a time. Returns t + len(order).

    The labels are the numbers of the classes. `params`: of shape (classes, n_features + 1), C-contiguous. `scores`:
    memory for a float64 of each class. FloatingPointError: the weights are no longer finite.
    """
    if not compiled.train_classes(data, order, params, scores, problem.l2, eta0, float(t), problem.intercept_rate):
        raise _not_finite(problem, len(order), eta0, t)
    return t + len(order)


def _not_finite(problem: Problem, count: int, eta0: float, t: float) -> FloatingPointError:
    return FloatingPointError(
        f"the weights are no longer finite after {t + count:.0f} examples: "
        f"the step size, {step_size(eta0, problem.l2, t):.3g} (at first {eta0:.3g}), is too large"
    )


def blend(average: Params, params: Params, count: int) -> None:
    """average <- (1 - m) average + m params, with m = (TAIL + 1) / (TAIL + count), for the count-th model from 1 on.

    `average` is then a weighted mean of the models so far, in which early models count less and less ("polynomial-decay
    averaging": Shamir and Zhang 2013, section 4). It is measured and saved. Training goes on with `params`.
    """
    compiled.blend(average, params, (TAIL + 1) / (TAIL + count))


def gradient_step(eta0: float, l2: float, t: float, count: int) -> float:
    """The step size along the mean subgradient of `count` examples, after t examples.

    It is GRADIENT_SHARE of the sum of the steps that the examples would take one at a time. The whole sum would
    overshoot, as all these subgradients are taken at the same weights.
    """
    return GRADIENT_SHARE * count * step_size(eta0, l2, GRADIENT_SHARE * t)


def subgradient(problem: Problem, data: Examples, order: Order, params: Params, out: Params) -> None:
    """out <- the mean over the rows in `order` of the subgradients of the objective at `params`."""
    np.multiply(params, np.float32(problem.l2), out=out)
    out[-1] = 0  # the intercept is not shrunk
    compiled.add_subgradient(data, order, params, out, problem.code, float(problem.intercept))


class OneVsRest:
    """A model of each class, with the labels +1 for its rows and -1 for the others: one of `Classes`."""

    def __init__(self, problem: Problem, data: Examples, shape: tuple[int, ...]) -> None:
        self._problem, self._features = problem, shape[1] - 1
        columns = range(shape[0]) if shape[0] > 1 else [1]
        self._data = [one_against_rest(data, column) for column in columns]
        self.of_zeros = len(columns) * loss_of(problem.code, 0.0)
        """The loss of a row where all weights are 0."""

    def first_steps(self, problem: Problem) -> list[float]:
        """The first step size of each class, as its rows choose it against the rest. ValueError: as first_step."""
        return [first_step(problem, data, self._features) for data in self._data]

    def train(self, problem: Problem, part: Order, params: Array, steps: list[float], t: float) -> None:
        """Train each class on its own, on the rows in `part`. FloatingPointError: as train."""
        for data, row, step in zip(self._data, params, steps, strict=True):
            train(problem, data, part, row, step, t)

    def losses(self, params: Array, weights: NDArray[np.float64] = ONES) -> float:
        """The sum over the rows, times their weights, and the classes: each against the rest."""
        if not weights.size:
            return sum(totals(self._problem, *one)[0] for one in zip(self._data, params, strict=True))
        wide, unused = params.astype(np.float64), np.zeros(params.shape[1])
        rows = zip(self._data, wide, strict=True)
        return sum(add_gradient(data, row, unused, self._problem.code, weights)[0] for data, row in rows)


class Softmax:
    """One model of all classes, whose probabilities are the softmax of their scores: one of `Classes`."""

    def __init__(self, problem: Problem, data: Examples, shape: tuple[int, ...]) -> None:
        self._problem, self._data, self._shape = problem, data, shape
        self._scores = np.zeros(shape[0])
        self.of_zeros = math.log(shape[0])

    def first_steps(self, problem: Problem) -> list[float]:
        """The median of those of each class against the rest: scores of all classes take steps of one size."""
        found = OneVsRest(problem, self._data, self._shape).first_steps(problem)
        return [float(np.quantile(found, 0.5, method="lower"))] * len(found)

    def train(self, problem: Problem, part: Order, params: Array, steps: list[float], t: float) -> None:
        """Train all classes at once, by steps of the first size."""
        train_classes(problem, self._data, part, params, self._scores, steps[0], t)

    def losses(self, params: Array, weights: NDArray[np.float64] = ONES) -> float:
        """The sum over the rows, times their weights, of the softmax losses."""
        wide = np.ascontiguousarray(params.T, np.float64)
        return add_gradient_of_classes(self._data, wide, np.zeros_like(wide), self._scores, SOFTMAX, weights)[0]


def one_against_rest(data: Examples, label: int) -> Examples:
    """The same rows with labels +1 for class number `label`, and -1 for the others."""
    return data._replace(labels=readonly(np.where(data.labels == label, 1, -1), np.float32))


Classes = OneVsRest | Softmax
"""Rows, and the losses of a model whose `params` have a row for each class, or one for two classes. Local.

It is made of a `problem`, of `data`, whose labels are the numbers of the classes, and of the shape of `params`.
"""
KINDS: Final[dict[bool, type[Classes]]] = {False: OneVsRest, True: Softmax}
"""By whether the classes are those of the softmax."""
