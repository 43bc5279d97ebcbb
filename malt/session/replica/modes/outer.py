"""The outer optimizer: what is made of the mean of the changes of all ranks, each exchange. Pure.

DiLoCo (Douillard et al., arXiv 2311.08105): the mean of the changes since the last exchange, negated, is a gradient.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from dstorm.words import shown
from vol.update import Array

Step = Callable[..., None]
"""step(w, *state, gradient), as those of malt.optim: it changes w and the state, which begins as zeros, in place."""


class Outer:
    """The step `step` and its state, for parameters as `like`. Local.

    Without a step, and while its warm-up lasts, changes are added as they are.
    """

    def __init__(self, step: Step | None, like: Array) -> None:
        self._step, self._warmup, self._steps = step, warmup(step), _steps(step)
        self._arrays = [] if step is None else [np.zeros_like(like) for _ in range(n_states(step))]
        self._exchanges = np.zeros(1, np.int64)  # an array: it goes where the state goes, to files and other ranks
        is_counted = self._warmup or self._steps is not None
        self.state = [*self._arrays, self._exchanges] if is_counted else self._arrays
        """The arrays of the state, in the order of the step's arguments; then the exchanges so far, if they count."""

    def apply(self, params: Array, change: Array) -> None:
        """Change `params` by `change`, in place, as the step has it."""
        after = int(self._exchanges[0]) - self._warmup
        if self._step is None or after < 0:
            params += change
        else:
            if self._steps is not None:  # the step counts its calls: those for these parameters
                self._step.__dict__["steps"] = self._steps + after
            self._step(params, *self._arrays, np.negative(change))
            if self._steps is not None:  # as it was given: it may be given to the next Replica, too
                self._step.__dict__["steps"] = self._steps
        self._exchanges += 1


def n_states(step: Any) -> int:
    """The number of arrays that a step keeps. TypeError: `step` is none, or no outer one."""
    if getattr(step, "warmup", 0) is None:
        raise TypeError("outer must not be malt.optim.ftrl, whose w begins at 0: malt.optim.adagrad, say, keeps w")
    try:
        given = inspect.signature(step).parameters.values()
        count = sum(one.default is one.empty for one in given) - 2  # malt.optim.nesterov itself has defaults alone
    except (TypeError, ValueError):
        count = -1
    if count < 0:
        raise TypeError(
            f"outer must be a step(w, *state, gradient), as malt.optim.nesterov(0.7, 0.9) makes it, got {shown(step)}"
        )
    return count


def warmup(step: Any) -> int:
    """The exchanges before the first one that makes this step."""
    return getattr(step, "warmup", 0)


def _steps(step: Any) -> int | None:
    """The steps that a step counts as made before, as adam does. None: it counts none."""
    return getattr(step, "steps", None)


def described(step: Step) -> str:
    """The name of a step and its numbers, for the comparison of arguments."""
    cells = [cell.cell_contents for cell in getattr(step, "__closure__", None) or ()]
    numbers = [value for value in (*cells, _steps(step)) if isinstance(value, (int, float))]
    return f"{getattr(step, '__qualname__', type(step).__name__)} {numbers}, warmup {warmup(step)}"
