"""L-BFGS with a line search for the strong Wolfe conditions. The history has the direction (malt/optim/history.py).

On sharded vectors all that travels is scalars. An iteration has two exchanges where its first trial step is taken: of 2
scalars once the function has returned, and of 2 m + 1 for the direction. The other products follow from those.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from operator import sub
from typing import Any

from malt.optim import line_search
from malt.optim.history import Pair, Products, direction, measured
from malt.optim.line_search import Trial
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
from malt.optim.vectors import checked, dots


def lbfgs(
    function: Function, w: Any, *, m: int = 10, tolerance: float = 1e-6, max_iterations: int = 1000,
    callback: Callback = None,
) -> Result:  # fmt: skip
    """Minimize function(w) by L-BFGS, in place; return the result. Collective if `w` is sharded, else Local.

        result = malt.optim.lbfgs(lambda w: ((w @ w) / 2, w.copy()), w)

    `function(w)`: the loss, a number that is the same on all ranks, and its gradient, of the kind of `w`. `w`: a
    sharded vector, or an array of floats that is the same on all ranks. `m`: the pairs of the history; they are sharded
    as `w` is. `tolerance`: it has converged when the norm of the gradient is this fraction of the first one.
    `callback(result)` is called after each iteration, with the result so far; if it returns True, the iteration stops.

    A function of a sharded `w` that pulls from it enters a malt.barrier() first: other ranks may still be changing it.

    Where no step lowers a finite loss, it stops: `reason` says why, and w is the best point so far. ValueError,
    TypeError: an argument is wrong; w is unchanged. The errors of function() and callback().
    """
    limits = checked_limits(m, tolerance, max_iterations)
    objective, pairs, line = Objective(function, checked(w)), deque[Pair](maxlen=limits.m), None
    (square,), products = dots([(objective.gradient, objective.gradient)]), Products([], [])
    first = result = limits.first(objective.value, math.sqrt(square))
    while not (reason := limits.reason(result, first.gradient_norm)):
        if line is not None:
            products = line.learned(pairs)
        line = _Line(objective, square, products, pairs)
        found, reason = line.search(
            1.0 if pairs else min(LONGEST, 1.0 / result.gradient_norm)
        )  # the first has length 1
        square = line.square
        norm = math.sqrt(square)
        result = reported(Result(found.value, norm, result.iterations + 1, objective.evaluations, reason), callback)
    return result._replace(reason=reason)


class _Line:
    """The function along the direction from w. `square`, `products`: those of its gradient there, with `pairs`."""

    def __init__(self, objective: Objective, square: float, products: Products, pairs: Sequence[Pair]) -> None:
        self._objective, self._square, self._before = objective, square, products
        self._point, self._gradient = objective.w.copy(), objective.gradient
        self._way, slope = direction(self._gradient, square, products, pairs)
        self._start = self._last = Trial(0.0, objective.value, slope)
        self.square = square
        """The product of the gradient at w with itself."""
        self._is_finite = True

    def search(self, step: float) -> tuple[Trial, str]:
        """Move w to a lower value; return the trial there, and "". Collective. `step`: the first one to try.

        Where there is none, w is at the lowest one, and the text says why.
        """
        found, is_enough = line_search.search(self._trial, self._start, step)
        if is_enough:
            return found, ""
        reason = NO_STEP if self._is_finite else NOT_FINITE
        return self._trial(found.step), reason

    def learned(self, pairs: deque[Pair]) -> Products:
        """Add the step of the search to `pairs`; return the products of the gradient at w with them. Collective."""
        gradient, last, before = self._objective.gradient, self._last, self._before
        change = gradient - self._gradient
        (after,), (y_y,) = measured([gradient], pairs, [(change, change)])
        s_g, y_g = last.step * last.slope, (self.square - self._square + y_y) / 2
        of_y = Products([*map(sub, after.s, before.s)], [*map(sub, after.y, before.y)])
        of_y = of_y.extended(s_g - last.step * self._start.slope, y_y)
        pairs.append(Pair(last.step * self._way, change, of_y))
        return after.extended(s_g, y_g).of_last(len(pairs))

    def _trial(self, step: float) -> Trial:
        value, gradient = self._objective.at(self._point + step * self._way), self._objective.gradient
        slope, self.square = dots([(gradient, self._way), (gradient, gradient)])
        self._last = Trial(step, value, slope)
        self._is_finite = self._is_finite and self._last.is_finite
        return self._last
