"""OWL-QN: L-BFGS for a loss and an l1 penalty. Andrew and Gao, Scalable training of L1-regularized log-linear models,
ICML 2007.

Within an orthant the penalty is linear. The direction is -H v, where v is the pseudo-gradient, the least of the
subgradients; elements of it that do not lead down are set to 0. A step stays in the orthant of w, and of -v where w is
0: elements that would leave it are set to 0. Steps are halved until one lowers the value enough.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np

from malt.optim.history import Pair, direction
from malt.optim.linesearch import DECREASE, ROUNDING
from malt.optim.objective import (
    LONGEST,
    NO_STEP,
    NOT_FINITE,
    Callback,
    Function,
    Objective,
    Result,
    checked_limits,
    reported,
)
from malt.optim.vectors import checked, combined, dot
from vol import arguments

_MOST_TRIALS: Final = 50


def owlqn(
    function: Function, w: Any, *, l1: Any, m: int = 10, tolerance: float = 1e-6, max_iterations: int = 1000,
    callback: Callback = None,
) -> Result:  # fmt: skip
    """Change `w` in place until function(w) + l1 |w|_1 is least. Collective if `w` is sharded, else Local.

    `l1`: a number from 0 up, or a vector of the kind and shape of `w`, the penalty of each element. The other
    arguments, what is returned and the errors: as malt.optim.lbfgs; `gradient_norm` is that of the pseudo-gradient.
    """
    limits = checked_limits(m, tolerance, max_iterations)
    penalty = combined(lambda x: np.full_like(x, _number(l1)), checked(w)) if np.isscalar(l1) else checked(l1, "l1")
    objective = Objective(function, w)

    def penalized(value: float) -> float:
        return value + dot(combined(np.abs, w), penalty)

    pseudo = combined(_pseudo_gradient, w, objective.gradient, penalty)
    first = result = limits.first(penalized(objective.value), math.sqrt(dot(pseudo, pseudo)))
    pairs = deque[Pair](maxlen=limits.m)
    while not (reason := limits.reason(result, first.gradient_norm)):
        gradient, point = objective.gradient, w.copy()
        way = combined(_downward, direction(pseudo, pairs), pseudo)
        step = 1.0 if pairs else min(LONGEST, 1.0 / result.gradient_norm)  # the first step has length 1
        for _ in range(_MOST_TRIALS):
            value = penalized(objective.at(combined(_within_orthant, point + step * way, point, pseudo)))
            moved = w - point
            if value <= result.value + DECREASE * dot(pseudo, moved) + ROUNDING * abs(result.value):
                break
            step /= 2
        else:
            reason = NO_STEP if math.isfinite(value) else NOT_FINITE
            value, moved = penalized(objective.at(point)), w - point
        change = objective.gradient - gradient
        if (curvature := dot(moved, change)) > 0:
            pairs.append(Pair(moved, change, curvature))
        pseudo = combined(_pseudo_gradient, w, objective.gradient, penalty)
        norm = math.sqrt(dot(pseudo, pseudo))
        result = reported(Result(value, norm, result.iterations + 1, objective.evaluations, reason), callback)
    return result._replace(reason=reason)


def _number(l1: Any) -> float:
    number = arguments.real("l1", l1)
    if not 0 <= number < math.inf:
        raise ValueError(f"l1 must be a number from 0 up, got {l1!r}")
    return number


def _pseudo_gradient(w: Any, gradient: Any, penalty: Any) -> Any:
    """Where w is 0, the part of the gradient that the penalty does not outweigh."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0)
    return np.where(w == 0, at_zero, gradient + penalty * np.sign(w)).astype(w.dtype)


def _downward(way: Any, pseudo: Any) -> Any:
    return np.where(way * pseudo < 0, way, 0).astype(way.dtype)


def _within_orthant(moved: Any, point: Any, pseudo: Any) -> Any:
    orthant = np.where(point == 0, -np.sign(pseudo), np.sign(point))
    return np.where(moved * orthant > 0, moved, 0).astype(moved.dtype)
