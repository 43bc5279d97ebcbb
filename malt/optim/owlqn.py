"""OWL-QN: L-BFGS for a loss and an l1 penalty. Andrew and Gao, Scalable training of L1-regularized log-linear models,
ICML 2007.

Within an orthant the penalty is linear. The direction is -H v, where v is the pseudo-gradient, the least of the
subgradients; elements of it that do not lead down are set to 0. A step stays in the orthant of w, and of -v where w is
0: elements that would leave it are set to 0. Steps are halved until one lowers the value enough.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np

from dstorm.words import shown
from malt.optim.history import Pair, Products, direction, measured
from malt.optim.line_search import DECREASE, ROUNDING
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
from malt.optim.vectors import alike, checked, combined, dots
from vol import arguments

_MOST_TRIALS: Final = 50


def owlqn(
    function: Function, w: Any, *, l1: Any, m: int = 10, tolerance: float = 1e-6, max_iterations: int = 1000,
    callback: Callback = None,
) -> Result:  # fmt: skip
    """Minimize function(w) + l1 |w|_1 by OWL-QN, changing `w` in place. Collective if `w` is sharded, else Local.

    `l1`: a number of at least 0, or a vector of the kind and shape of `w`, the penalty of each element. The other
    arguments, what is returned and the errors: as malt.optim.lbfgs; `gradient_norm` is that of the pseudo-gradient.
    """
    limits = checked_limits(m, tolerance, max_iterations)
    penalty = _penalty(l1, checked(w))
    objective, pairs, last = Objective(function, w), deque[Pair](maxlen=limits.m), None
    here = _point(objective, penalty)
    products = Products([], [])
    first = result = limits.first(here.value, math.sqrt(here.square))
    while not (reason := limits.reason(result, first.gradient_norm)):
        if last is not None:
            products = _learned(pairs, last, here)
        last, way = here, combined(_downward, direction(here.pseudo, here.square, products, pairs)[0], here.pseudo)
        step = 1.0 if pairs else min(LONGEST, 1.0 / result.gradient_norm)  # the first step has length 1
        here, reason = _search(objective, penalty, last, way, step)
        norm = math.sqrt(here.square)
        result = reported(Result(here.value, norm, result.iterations + 1, objective.evaluations, reason), callback)
    return result._replace(reason=reason)


class _Point(NamedTuple):
    """A point, and what was found there."""

    w: Any
    gradient: Any
    pseudo: Any
    """The pseudo-gradient."""
    value: float
    """The loss with its penalty."""
    square: float
    """The product of the pseudo-gradient with itself."""
    slope: float
    """The product of the step to the point with the pseudo-gradient where it began; 0 at the first one."""


def _point(objective: Objective, penalty: Any, last: _Point | None = None) -> _Point:
    """The point where w is, a step from `last`. Collective if it is sharded."""
    w, gradient = objective.w.copy(), objective.gradient
    pseudo = combined(_pseudo_gradient, w, gradient, penalty)
    steps = [] if last is None else [(last.pseudo, w - last.w)]
    size, square, *slopes = dots([(combined(np.abs, w), penalty), (pseudo, pseudo), *steps])
    return _Point(w, gradient, pseudo, objective.value + size, square, slopes[0] if slopes else 0.0)


def _search(objective: Objective, penalty: Any, last: _Point, way: Any, step: float) -> tuple[_Point, str]:
    """Move w from `last` to a lower value; return that point, and "". Collective if w is sharded.

    Where there is none, w is there again, and the text says why.
    """
    for _ in range(_MOST_TRIALS):
        objective.at(combined(_within_orthant, last.w + step * way, last.w, last.pseudo))
        point = _point(objective, penalty, last)
        if point.value <= last.value + DECREASE * point.slope + ROUNDING * abs(last.value):
            return point, ""
        step /= 2
    objective.at(last.w)
    return _point(objective, penalty, last), NO_STEP if math.isfinite(point.value) else NOT_FINITE


def _learned(pairs: deque[Pair], last: _Point, here: _Point) -> Products:
    """Add the step from `last` to `here` if its curvature is above 0; return the products of the pseudo-gradient there.

    Collective if w is sharded.
    """
    moved, change = here.w - last.w, here.gradient - last.gradient
    others = [(moved, change), (change, change), (here.pseudo, moved), (here.pseudo, change)]
    (of_pseudo, of_change), numbers = measured([here.pseudo, change], pairs, others)
    curvature, square, s_pseudo, y_pseudo = numbers
    if curvature <= 0:
        return of_pseudo
    pairs.append(Pair(moved, change, of_change.extended(curvature, square)))
    return of_pseudo.extended(s_pseudo, y_pseudo).of_last(len(pairs))


def _penalty(l1: Any, w: Any) -> Any:
    """The penalty of each element of `w`. Collective if it is sharded. ValueError: one is below 0 or not finite."""
    if np.isscalar(l1):
        number = arguments.real("l1", l1)
        is_right, penalty = 0 <= number < math.inf, combined(lambda x: np.full_like(x, number), w)
    else:
        penalty = alike(l1, w, "l1 must be a number, or")
        wrong = combined(lambda one: (~((one >= 0) & (one < math.inf))).astype(one.dtype), penalty)
        is_right = dots([(wrong, wrong)]) == [0]
    if not is_right:
        raise ValueError(f"l1 must be at least 0 and finite, got {shown(l1)}")
    return penalty


def _pseudo_gradient(w: Any, gradient: Any, penalty: Any) -> Any:
    """Return the part of the gradient that the penalty does not outweigh, where w is 0."""
    at_zero = np.sign(gradient) * np.maximum(np.abs(gradient) - penalty, 0)
    return np.where(w == 0, at_zero, gradient + penalty * np.sign(w)).astype(w.dtype)


def _downward(way: Any, pseudo: Any) -> Any:
    return np.where(way * pseudo < 0, way, 0).astype(way.dtype)


def _within_orthant(moved: Any, point: Any, pseudo: Any) -> Any:
    orthant = np.where(point == 0, -np.sign(pseudo), np.sign(point))
    return np.where(moved * orthant > 0, moved, 0).astype(moved.dtype)
