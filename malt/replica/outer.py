"""The outer optimizer: what is made of the mean of the changes of all ranks, each exchange. Pure.

DiLoCo (Douillard et al., arXiv 2311.08105): the mean of the changes since the last exchange, negated, is a gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from vol.update import Array

Step = Callable[..., None]
"""step(w, *state, gradient), as those of malt.optim: it changes w and the state, which begins as zeros, in place."""


class Outer:
    """The step `step` and its state, for parameters as `like`. Without a step, changes are added as they are. Local."""

    def __init__(self, step: Step | None, like: Array) -> None:
        self._step = step
        self.state = [] if step is None else [np.zeros_like(like) for _ in range(n_states(step))]
        """The arrays of the state, in the order of the step's arguments."""

    def apply(self, params: Array, change: Array) -> None:
        """Change `params` by `change`, in place, as the step has it."""
        if self._step is None:
            params += change
        else:
            self._step(params, *self.state, np.negative(change))


def n_states(step: Any) -> int:
    """The number of arrays that a step keeps. TypeError: `step` is none."""
    try:
        count = len(inspect.signature(step).parameters) - 2
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        raise TypeError(
            f"outer must be a step(w, *state, gradient), as malt.optim.nesterov(0.7, 0.9) makes it, got {step!r}"
        )
    return count


def counts_steps(step: Any) -> bool:
    """Whether a step counts its calls, as adam does, and so must be called for one array alone."""
    code = getattr(step, "__code__", None)
    return code is not None and "steps" in code.co_freevars


def described(step: Step | None) -> str | None:
    """The name of a step and its numbers, for the comparison of arguments."""
    if step is None:
        return None
    cells = [cell.cell_contents for cell in getattr(step, "__closure__", None) or ()]
    numbers = [value for value in cells if isinstance(value, (int, float))]
    return f"{getattr(step, '__qualname__', type(step).__name__)} {numbers}"
