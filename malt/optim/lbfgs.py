"""L-BFGS with a line search for the strong Wolfe conditions. The history has the direction (malt/optim/history.py).

On sharded vectors all that travels is scalars. An iteration whose first trial step is taken exchanges 2 m + 3 of them:
s.g of the newest pair and s.y follow from slopes that are known.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from malt.optim import linesearch
from malt.optim.history import Pair, direction
from malt.optim.linesearch import Trial
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
from malt.optim.vectors import checked, dot


def lbfgs(
    function: Function, w: Any, *, m: int = 10, tolerance: float = 1e-6, max_iterations: int = 1000,
    callback: Callback = None,
) -> Result:  # fmt: skip
    """Change `w` in place until function(w) is least; return where that is. Collective if `w` is sharded, else Local.

        result = malt.optim.lbfgs(lambda w: ((w @ w) / 2, w.copy()), w)

    `function(w)`: the loss, a number that is the same on all ranks, and its gradient, of the kind of `w`. `w`: a
    sharded vector, or an array of floats that is the same on all ranks. `m`: the pairs of the history; they are sharded
    as `w` is. `tolerance`: it has converged when the norm of the gradient is so much of the first one.
    `callback(result)`: is called after each iteration, with the result so far. It ends there if that returns True.

    A function of a sharded `w` that pulls from it enters a malt.barrier() first: other ranks may still be changing it.

    Where no step lowers a finite loss, it stops: `reason` says why, and w is the best point so far. ValueError,
    TypeError: an argument is wrong; w is unchanged. The errors of function() and callback().
    """
    limits = checked_limits(m, tolerance, max_iterations)
    objective = Objective(function, checked(w))
    first = result = limits.first(objective.value, objective.norm())
    pairs, newest_slope = deque[Pair](maxlen=limits.m), 0.0
    while not (reason := limits.reason(result, first.gradient_norm)):
        gradient, point, is_finite = objective.gradient, w.copy(), True
        way = direction(gradient, pairs, newest_slope)

        def trial(step: float, way: Any = way, point: Any = point) -> Trial:
            nonlocal is_finite
            found = Trial(step, objective.at(point + step * way), dot(objective.gradient, way))
            is_finite = is_finite and found.is_finite
            return found

        start = Trial(0.0, result.value, dot(gradient, way))
        step = 1.0 if pairs else min(LONGEST, 1.0 / result.gradient_norm)  # the first step has length 1
        found, is_enough = linesearch.search(trial, start, step)
        if not is_enough:
            reason = NO_STEP if is_finite else NOT_FINITE
            found = trial(found.step)
        newest_slope = found.step * found.slope
        pairs.append(Pair(found.step * way, objective.gradient - gradient, newest_slope - found.step * start.slope))
        result = Result(found.value, objective.norm(), result.iterations + 1, objective.evaluations, reason)
        result = reported(result, callback)
    return result._replace(reason=reason)
