"""A line search for a step that meets the strong Wolfe conditions. Pure.

Nocedal and Wright, Numerical Optimization, 2nd edition, algorithms 3.5 and 3.6, with the cubic interpolation of (3.59).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

DECREASE: Final = 1e-4
"""c1: the least decrease of the value, as a part of what the first slope promises."""
CURVATURE: Final = 0.9
"""c2: the largest slope, as a part of the first one."""
_LONGER: Final = 2.0
"""The factor from one trial to the next while steps are too short."""
_SHORTER: Final = 0.1
"""The same where a value is not finite."""
ROUNDING: Final = 1e-15
"""Near a minimum values differ by their rounding errors alone: that is no increase."""
_MARGIN: Final = 0.1
"""A trial keeps so much of the bracket's length away from its ends."""
MOST_TRIALS: Final = 30


class Trial(NamedTuple):
    """A step, the value there, and the slope along the direction."""

    step: float
    value: float
    slope: float

    @property
    def is_finite(self) -> bool:
        """True if value and slope are."""
        return math.isfinite(self.value) and math.isfinite(self.slope)


def search(evaluate: Callable[[float], Trial], start: Trial, step: float) -> tuple[Trial, bool]:
    """The first trial that meets the strong Wolfe conditions, and True; else the lowest trial, and False.

    The lowest one with enough decrease: `start` itself where no trial has it. `evaluate(step)`: makes a trial. `start`:
    that of step 0. `step`: the first one to try. A step where value or slope is not finite counts as too long.
    """
    low, high = start, None  # low: the best trial with enough decrease; high: the other end of the bracket
    for _ in range(MOST_TRIALS if start.slope < 0 else 0):
        trial = evaluate(step)
        if not trial.is_finite or _is_too_high(trial, start) or (low is not start and trial.value >= low.value):
            high = trial
        elif abs(trial.slope) <= -CURVATURE * start.slope:
            return trial, True
        else:
            if trial.slope * ((high.step if high is not None else math.inf) - low.step) >= 0:
                high = low
            low = trial
        if high is None:
            step = _LONGER * trial.step
        elif not high.is_finite:
            step = low.step + _SHORTER * (high.step - low.step)
        else:
            step = _between(low, high)
        if step in (low.step, trial.step):  # no number lies between
            break
    return low, False


def _is_too_high(trial: Trial, start: Trial) -> bool:
    most = start.value + DECREASE * trial.step * start.slope
    return trial.value > most + ROUNDING * abs(start.value)


def _between(low: Trial, high: Trial) -> float:
    """The minimum of the cubic through both ends of a bracket, not too near to either."""
    length = high.step - low.step
    first = low.slope + high.slope - 3 * (low.value - high.value) / (low.step - high.step)
    root = first * first - low.slope * high.slope
    part = 0.5
    if root >= 0:
        second = math.copysign(math.sqrt(root), length)
        divisor = high.slope - low.slope + 2 * second
        if divisor:
            part = 1 - (high.slope + second - first) / divisor
    part = part if math.isfinite(part) else 0.5
    return low.step + min(max(part, _MARGIN), 1 - _MARGIN) * length
