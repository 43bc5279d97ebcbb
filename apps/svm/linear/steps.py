"""The first step size, tried out on some of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from apps.svm.linear import kernels
from apps.svm.linear.kernels import Examples
from apps.svm.linear.problem import Problem, objective
from apps.svm.linear.rows import readonly

STEP_SAMPLE: Final = 1000
"""Examples a rank trains on in a trial of a step size."""
STEP_POWERS: Final = range(-10, 7)
"""eta0 max(mean |x|^2, l2) is one of 2^k for these k."""
QUARTERS: Final = 64
"""So often a step is quartered at most, from the largest float32 to one that suits a feature of 1."""
AS_GOOD: Final = 1.1
"""A trial's cost that passes for the best, as a share of it."""
MAX_TRIAL_RANKS: Final = 8
"""More ranks than these are tried as these."""


def first_step(
    problem: Problem, data: Examples, n_features: int, ranks: int = 1, part: slice = slice(None),
    share: Callable[[list[float]], Mapping[int, list[float]]] = lambda costs: {0: costs},
) -> float:  # fmt: skip
    """The eta0 to begin with, tried out on the first STEP_SAMPLE examples for each rank (1 where there are none).
    ValueError: there is none with which weights of float32 stay finite and learn.

    Bottou's determineEta0, for the mean of `ranks` models each trained on its part of the sample: the mean is less
    noisy, so more ranks bear larger steps. All of `_steps` are tried, as costs have hills (a9a). Of those about as good
    as the best, the smallest: noise shows late, after more examples than a trial has.

    Ranks may share the work: each tries `part` of the steps, with a stride, and `share` gives the costs that all found,
    by where they began. What is missing of them, of a rank that has died, all try.
    """
    ranks = min(ranks, MAX_TRIAL_RANKS)
    count = min(STEP_SAMPLE, len(data.labels) // ranks) * ranks
    sample = data._replace(starts=data.starts[: count + 1], labels=data.labels[:count])
    sample, n_features = _narrowed(sample, n_features)
    square = float(np.square(data.values[: data.starts[count]], dtype=np.float64).sum()) / max(count, 1)
    if square == 0:
        return 1.0
    steps = _steps(problem, square)

    def tried(some: Iterable[float]) -> list[float]:
        return [_trial(problem, sample, n_features, ranks, eta0) for eta0 in some]

    found = dict(share(tried(steps[part])))
    stride = part.step or 1
    costs = [0.0] * len(steps)
    for first in range(stride):
        costs[first::stride] = found[first] if first in found else tried(steps[first::stride])
    zero, best = objective(problem, sample, np.zeros(n_features + 1, np.float32)), min(costs, default=math.inf)
    if best >= zero:  # the feature of the intercept, 1, may be much larger than the others, and needs smaller steps
        for eta0 in _smaller(problem, square):
            if _trial(problem, sample, n_features, ranks, eta0) < zero:
                return eta0
    if best == math.inf:
        raise ValueError(f"the rows, of mean length {math.sqrt(square):.3g}, are out of scale: no step size is found "
                         "with which weights of float32 learn from them: scale the features")  # fmt: skip
    return next(eta0 for eta0, cost in zip(steps, costs, strict=True) if cost <= AS_GOOD * best)


def _steps(problem: Problem, square: float) -> list[float]:
    """2^k / max(mean |x|^2, l2), as far as float32 can hold it: steps far beyond 1 / l2 throw the weights about."""
    return _held(2.0**power / max(square, problem.l2) for power in STEP_POWERS)


def _smaller(problem: Problem, square: float) -> list[float]:
    """Quarters of the smallest of them, and of those that float32 can hold, and so on."""
    largest = min(2.0**STEP_POWERS.start / max(square, problem.l2), float(np.finfo(np.float32).max))
    return _held(largest * 4.0**-power for power in range(1, QUARTERS + 1))


def _held(steps: Iterable[float]) -> list[float]:
    with np.errstate(over="ignore", under="ignore"):
        return [eta0 for eta0 in steps if 0 < np.float32(eta0) < np.inf]


def _narrowed(sample: Examples, n_features: int) -> tuple[Examples, int]:
    """The same rows over the features that are in them, where those are few: else each trial takes time and memory for
    all weights."""
    columns = sample.columns[: sample.starts[-1]]
    if columns.size >= n_features:
        return sample, n_features
    present, places = np.unique(columns, return_inverse=True)
    return sample._replace(columns=readonly(places, np.int32)), present.size


def _trial(problem: Problem, sample: Examples, n_features: int, ranks: int, eta0: float) -> float:
    """The objective on the sample of the mean of `ranks` models, each trained on one part of it; infinite for NaN."""
    mean = np.zeros(n_features + 1, dtype=np.float32)
    for part in np.arange(len(sample.labels), dtype=np.int32).reshape(ranks, -1):
        params = np.zeros_like(mean)
        if not kernels.train(sample, part, params, problem.code, problem.l2, eta0, 0.0, problem.intercept_rate):
            return math.inf
        mean += params / np.float32(ranks)
    cost = objective(problem, sample, mean)
    return cost if math.isfinite(cost) else math.inf
