"""A function that is minimized: what its calls found, and when a minimization ends."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from dstorm.words import shown
from malt.optim.vectors import alike, assign
from vol import arguments

Function = Callable[[Any], tuple[float, Any]]
Callback = Callable[["Result"], object] | None
STOPPED: Final = "the callback ended it"
LONGEST: Final = 1e10
"""The first step is not longer, as a multiple of the gradient."""
NOT_FINITE: Final = "the loss, or its gradient, is not finite"
NO_STEP: Final = "no step along the direction lowers the loss"
_RETURNS: Final = "function must return the loss and its gradient"


class Result(NamedTuple):
    """The result of a minimization."""

    value: float
    """The loss at w."""
    gradient_norm: float
    """The Euclidean norm of its gradient there; with an l1 penalty, of the pseudo-gradient."""
    iterations: int
    """How often w has moved."""
    evaluations: int
    """How often the function was called."""
    reason: str
    """Why it ended: "converged", or in words why it could not go on; "" while it goes on."""


def reported(result: Result, callback: Callback) -> Result:
    """`result`, once the callback has had it, with the reason to end if it returns True."""
    answer = None if callback is None else callback(result)
    is_over = isinstance(answer, (bool, np.bool_)) and answer
    return result._replace(reason=result.reason or STOPPED) if is_over else result


class Limits(NamedTuple):
    """The criteria that end a minimization."""

    m: int
    """The pairs of the history."""
    tolerance: float
    """The norm of the gradient at which it has converged, as a part of the first one."""
    max_iterations: int

    def first(self, value: float, norm: float) -> Result:
        """The result before the first iteration."""
        is_finite = math.isfinite(value) and math.isfinite(norm)
        return Result(value, norm, 0, 1, "" if is_finite else NOT_FINITE)

    def reason(self, result: Result, first_norm: float) -> str:
        """Return why it ends with `result`; "": it goes on."""
        if result.reason or result.gradient_norm <= self.tolerance * first_norm:
            return result.reason or "converged"
        return f"{self.max_iterations} iterations were made" if result.iterations >= self.max_iterations else ""


def checked_limits(m: Any, tolerance: Any, max_iterations: Any) -> Limits:
    """The limits, checked. ValueError, TypeError. Pure."""
    number = arguments.real("tolerance", tolerance)
    if not number >= 0:
        raise ValueError(f"tolerance must be a number of at least 0, got {shown(tolerance)}")
    return Limits(
        arguments.whole("m", m, 1, "pairs"), number, arguments.whole("max_iterations", max_iterations, 0, "iterations")
    )


class Objective:
    """The function at w, how often it was called, and what the last call found."""

    def __init__(self, function: Function, w: Any) -> None:
        self._function, self.w = function, w
        self.evaluations = 0
        self.at()

    def at(self, point: Any = None) -> float:
        """Write `point` into w, and return the loss there; None: w stays.

        The function may return the same gradient each time, so that is copied.
        """
        if point is not None:
            assign(self.w, point)
        found = self._function(self.w)
        if not (isinstance(found, (tuple, list)) and len(found) == 2):
            raise TypeError(f"{_RETURNS}, got {shown(found)}")
        self.value = arguments.real("the loss", found[0])
        self.gradient = alike(found[1], self.w, f"{_RETURNS},").copy()
        self.evaluations += 1
        return self.value
