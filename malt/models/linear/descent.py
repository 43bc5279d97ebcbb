"""Stochastic gradient descent, one example at a time, and a running mean of its models.

After L. Bottou, "Stochastic Gradient Descent Tricks" (2012) and his programs, leon.bottou.org/projects/sgd.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import compiled
from malt.models.linear.compiled import Examples, Order, Params
from malt.models.linear.problem import Problem

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
    """As `train`, with the softmax loss in the place of that of `problem`. The labels are the numbers of the classes.

    `params`: of shape (classes, n_features + 1), C-contiguous. `scores`: memory for a float64 of each class.
    """
    if not compiled.train_classes(data, order, params, scores, problem.l2, eta0, float(t), problem.intercept_rate):
        raise _not_finite(problem, len(order), eta0, t)
    return t + len(order)


def _not_finite(problem: Problem, count: int, eta0: float, t: float) -> FloatingPointError:
    return FloatingPointError(
        f"the weights are not finite any more after {t + count:.0f} examples: "
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
