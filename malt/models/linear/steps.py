"""The choice of the first step size, by trials on a sample of the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy as np

from malt.models.linear import compiled
from malt.models.linear.compiled import Examples
from malt.models.linear.problem import Problem, objective
from malt.models.linear.rows import narrowed

STEP_SAMPLE: Final = 1000
"""The number of examples that a rank trains on in a trial."""
STEP_POWERS: Final = range(-10, 7)
"""The exponents k of the candidates: eta0 max(mean |x|^2, l2) is one of 2^k."""
QUARTERS: Final = 64
"""The most quarterings of a step: from the largest float32 down to one that suits a feature of 1."""
AS_GOOD: Final = 1.1
"""A cost up to this multiple of the lowest counts as equally good."""
MAX_TRIAL_RANKS: Final = 8
"""The most ranks of a trial. The step size of more ranks is that of so many."""


def first_step(problem: Problem, data: Examples, n_features: int, ranks: int = 1) -> float:
    """The first step size, eta0, chosen on the first STEP_SAMPLE examples of each rank; 1 if all features are 0.

    It follows Bottou's determineEta0. A trial measures the mean of `ranks` models, each trained on its part of the
    sample. The mean has less noise, so more ranks allow larger steps. All of `_steps` are tried, as the cost can have
    several minima (a9a has). The smallest of the steps that are about as good as the best is chosen: noise shows only
    after more examples than a trial has.

    ValueError: with every step size the float32 weights overflow or do not learn.
    """
    ranks = min(ranks, MAX_TRIAL_RANKS)
    count = min(STEP_SAMPLE, len(data.labels) // ranks) * ranks
    sample = data._replace(starts=data.starts[: count + 1], labels=data.labels[:count])
    sample, n_features = _narrowed(sample, n_features)
    square = float(np.square(data.values[: data.starts[count]], dtype=np.float64).sum()) / max(count, 1)
    if square == 0:
        return 1.0
    steps = _steps(problem, square)
    costs = [_trial(problem, sample, n_features, ranks, eta0) for eta0 in steps]
    zero, best = objective(problem, sample, np.zeros(n_features + 1, np.float32)), min(costs, default=math.inf)
    if best >= zero:  # the intercept's feature, 1, may be much larger than the others, and then needs smaller steps
        for eta0 in _smaller(problem, square):
            if _trial(problem, sample, n_features, ranks, eta0) < zero:
                return eta0
    if best == math.inf:
        raise ValueError(f"the rows, of mean length {math.sqrt(square):.3g}, are badly scaled: no step size lets "
                         "weights of float32 learn from them: scale the features")  # fmt: skip
    return next(eta0 for eta0, cost in zip(steps, costs, strict=True) if cost <= AS_GOOD * best)


def _steps(problem: Problem, square: float) -> list[float]:
    """2^k / max(mean |x|^2, l2), without those that float32 cannot hold. Steps far beyond 1 / l2 would diverge."""
    return _held(2.0**power / max(square, problem.l2) for power in STEP_POWERS)


def _smaller(problem: Problem, square: float) -> list[float]:
    """The smallest of `_steps`, or the largest float32 if that is less, quartered once, twice and so on."""
    largest = min(2.0**STEP_POWERS.start / max(square, problem.l2), float(np.finfo(np.float32).max))
    return _held(largest * 4.0**-power for power in range(1, QUARTERS + 1))


def _held(steps: Iterable[float]) -> list[float]:
    with np.errstate(over="ignore", under="ignore"):
        return [eta0 for eta0 in steps if 0 < np.float32(eta0) < np.inf]


def _narrowed(sample: Examples, n_features: int) -> tuple[Examples, int]:
    """The same rows over only the features that occur in them, and their number, if these are few.

    Otherwise each trial would take time and memory for all weights.
    """
    columns = sample.columns[: sample.starts[-1]]
    if columns.size >= n_features:
        return sample, n_features
    narrow, present = narrowed(sample)
    return narrow, present.size


def _trial(problem: Problem, sample: Examples, n_features: int, ranks: int, eta0: float) -> float:
    """The objective, on the sample, of the mean of `ranks` models, each trained on its part; infinity for NaN."""
    mean = np.zeros(n_features + 1, dtype=np.float32)
    for part in np.arange(len(sample.labels), dtype=np.int32).reshape(ranks, -1):
        params = np.zeros_like(mean)
        if not compiled.train(sample, part, params, problem.code, problem.l2, eta0, 0.0, problem.intercept_rate):
            return math.inf
        mean += params / np.float32(ranks)
    cost = objective(problem, sample, mean)
    return cost if math.isfinite(cost) else math.inf
