"""The objective, and how good a model is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from malt.models.linear import compiled
from malt.models.linear.compiled import LOSSES, Examples, Params

INTERCEPT_RATE: Final = 0.01
"""The intercept's share of the step, as in Bottou's programs, for rows of length about 1. It occurs in every row."""


@dataclass(frozen=True)
class Problem:
    """The objective to minimise. ValueError: the loss is unknown, or l2 is negative or not finite."""

    loss: str = "hinge"
    l2: float = 1e-4
    intercept: bool = True
    rate: float = INTERCEPT_RATE
    """The intercept's share of a step of stochastic gradient descent, in a model with one."""

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss {self.loss!r} is not valid: use {', '.join(LOSSES)}")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise ValueError(f"l2 must be a finite number of at least 0, got {self.l2}")

    @property
    def code(self) -> int:
        """The number of the loss in the kernels."""
        return LOSSES[self.loss]

    @property
    def intercept_rate(self) -> float:
        """The intercept's share of the step; 0 in a model without one."""
        return self.rate if self.intercept else 0.0


def totals(
    problem: Problem, data: Examples, params: Params, start: int = 0, stop: int | None = None
) -> tuple[float, int]:
    """The sum of the losses and the number of correct rows, of rows start:stop. Totals of blocks or ranks add up."""
    stop = len(data.labels) if stop is None else min(stop, len(data.labels))
    return compiled.totals(data, params, problem.code, start, stop)


def objective(problem: Problem, data: Examples, params: Params) -> float:
    """The mean loss plus the penalty; NaN if there are no rows."""
    rows = len(data.labels)
    return totals(problem, data, params)[0] / rows + penalty(problem, params) if rows else math.nan


def penalty(problem: Problem, params: Params) -> float:
    """l2/2 |w|^2, in float64. NumPy sums it piece by piece, so that a wide model is not copied whole."""
    weights = params[:-1]
    return 0.5 * problem.l2 * float(np.einsum("j,j->", weights, weights, dtype=np.float64))


def accuracy(problem: Problem, data: Examples, params: Params) -> float:
    """The share of rows with y (x . w + b) > 0; NaN if there are no rows."""
    return totals(problem, data, params)[1] / len(data.labels) if len(data.labels) else math.nan
