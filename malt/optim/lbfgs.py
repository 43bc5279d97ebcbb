"""L-BFGS: Liu and Nocedal, On the limited memory BFGS method, Mathematical Programming 45, 1989.

The direction is -H g, by the two-loop recursion (Nocedal and Wright, algorithm 7.4), with s = w' - w, y = g' - g of the
last m steps and H = (s.y / y.y) I to begin with. On sharded vectors all that travels is scalars. An iteration whose
first trial step is taken exchanges 2 m + 3 of them: s.g of the newest pair and s.y follow from slopes that are known.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from malt.optim import linesearch
from malt.optim.linesearch import Trial
from malt.optim.vectors import assign, checked, dot
from vol import arguments

Function = Callable[[Any], tuple[float, Any]]
_NOT_FINITE: Final = "the loss, or its gradient, is not finite"
_NO_STEP: Final = "no step along the direction lowers the loss"


class Result(NamedTuple):
    """Where a minimization has come to."""

    value: float
    """The loss at w."""
    gradient_norm: float
    """The Euclidean norm of its gradient there."""
    iterations: int
    """How often w has moved."""
    evaluations: int
    """How often the function was called."""
    reason: str
    """Why it ended: "converged", or in words why it could not go on; "" while it goes on."""


class _Pair(NamedTuple):
    s: Any
    y: Any
    curvature: float
    """s.y"""


class _Objective:
    """The function at w, how often it was called, and what the last call found."""

    def __init__(self, function: Function, w: Any) -> None:
        self._function, self.w = function, w
        self.evaluations = 0
        self.was_finite = True
        """Whether all trials were since this was set."""
        self.evaluate()

    def evaluate(self) -> None:
        """Call the function. It may return the same gradient each time, so that is copied."""
        value, gradient = self._function(self.w)
        self.value, self.gradient = float(value), gradient.copy()
        self.evaluations += 1

    def along(self, direction: Any, step: float, point: Any) -> Trial:
        """Move w from `point` by `step` along `direction`, and call the function there."""
        assign(self.w, point + step * direction)
        self.evaluate()
        trial = Trial(step, self.value, dot(self.gradient, direction))
        self.was_finite = self.was_finite and trial.is_finite
        return trial


def lbfgs(
    function: Function, w: Any, *, m: int = 10, tolerance: float = 1e-6, max_iterations: int = 1000,
    callback: Callable[[Result], object] | None = None,
) -> Result:  # fmt: skip
    """Change `w` in place until function(w) is least; return where that is. Collective if `w` is sharded, else Local.

        result = malt.optim.lbfgs(lambda w: ((w @ w) / 2, w.copy()), w)

    `function(w)`: the loss, a number that is the same on all ranks, and its gradient, of the kind of `w`. `w`: a
    sharded vector, or an array of floats that is the same on all ranks. `m`: the pairs of the history; they are sharded
    as `w` is. `tolerance`: it has converged when the norm of the gradient is so much of the first one.
    `callback(result)`: is called after each iteration, with the result so far.

    A function of a sharded `w` that pulls from it enters a malt.barrier() first: other ranks may still be changing it.

    Where no step lowers a finite loss, it stops: `reason` says why, and w is the best point so far. ValueError,
    TypeError: an argument is wrong; w is unchanged. The errors of function() and callback().
    """
    checked(w)
    m, most = arguments.whole("m", m, 1, "pairs"), arguments.whole("max_iterations", max_iterations, 0)
    tolerance = arguments.real("tolerance", tolerance)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be a number from 0 up, got {tolerance!r}")
    objective = _Objective(function, w)
    gradient = objective.gradient
    result = Result(objective.value, math.sqrt(dot(gradient, gradient)), 0, 1, "")
    if not math.isfinite(result.value + result.gradient_norm):
        return result._replace(reason=_NOT_FINITE)
    enough, pairs, newest_slope = tolerance * result.gradient_norm, deque[_Pair](maxlen=m), 0.0
    while not (reason := _reason(result, enough, most)):
        direction, point = _direction(gradient, pairs, newest_slope), w.copy()
        start = Trial(0.0, result.value, dot(gradient, direction))
        first = 1.0 if pairs else min(1.0, 1.0 / result.gradient_norm)
        objective.was_finite = True
        found, is_enough = linesearch.search(partial(objective.along, direction, point=point), start, first)
        if not is_enough:
            reason = _NO_STEP if objective.was_finite else _NOT_FINITE
            found = objective.along(direction, found.step, point)
        newest_slope, curvature = found.step * found.slope, found.step * (found.slope - start.slope)
        pairs.append(_Pair(found.step * direction, objective.gradient - gradient, curvature))
        gradient = objective.gradient
        norm = math.sqrt(dot(gradient, gradient))
        result = Result(found.value, norm, result.iterations + 1, objective.evaluations, "")
        if callback is not None:
            callback(result)
        if reason:
            break
    return result._replace(evaluations=objective.evaluations, reason=reason)


def _reason(result: Result, enough: float, most: int) -> str:
    if result.gradient_norm <= enough:
        return "converged"
    return f"{most} iterations were made" if result.iterations >= most else ""


def _direction(gradient: Any, pairs: deque[_Pair], newest_slope: float) -> Any:
    """-H g by the two-loop recursion. `newest_slope`: s.g of the newest pair."""
    q = gradient.copy()
    parts = []
    for place, pair in enumerate(reversed(pairs)):
        part = (dot(pair.s, q) if place else newest_slope) / pair.curvature
        q -= part * pair.y
        parts.append(part)
    if pairs:
        q *= pairs[-1].curvature / dot(pairs[-1].y, pairs[-1].y)
    for pair, part in zip(pairs, reversed(parts), strict=True):
        q += (part - dot(pair.y, q) / pair.curvature) * pair.s
    return -q
