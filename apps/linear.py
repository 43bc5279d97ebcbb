"""Linear models by stochastic gradient descent, one example at a time: losses, step sizes, compiled kernels.

    objective(w, b) = mean over i of loss(y_i (x_i . w + b)) + l2/2 |w|^2          (the intercept b is not shrunk)

`params`, what trains and travels, is float32, C-contiguous and writable: the n_features weights, then the intercept,
which stays 0 and untouched where there is none. `t` counts the examples *this* rank has trained on, in all epochs.

After L. Bottou, "Stochastic Gradient Descent Tricks" (2012) and its programs, leon.bottou.org/projects/sgd. The
kernels release the GIL, allocate nothing, and numba keeps them on disk: see `compile_kernels`. All is *Local.*
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

import numpy as np
from numba import njit, types
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

HINGE, SQUARED_HINGE, LOGISTIC = 0, 1, 2
LOSSES: Final = {"hinge": HINGE, "squared-hinge": SQUARED_HINGE, "logistic": LOGISTIC}

BLOCK_ROWS: Final = 64
"""Rows visited in a run, in the order of memory: one by one, at random, rcv1 takes 2 to 4 times as long, no better."""
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
INTERCEPT_RATE: Final = 0.01
"""The intercept's share of the step, Bottou's: its feature, 1, is in every row. Meant for rows of length about 1."""
GRADIENT_SHARE: Final = 0.1
"""The step along a mean of m subgradients is that of this share of m examples: see `gradient_step`."""
TAIL: Final = 8.0
"""How fast `blend` forgets: of n models the newest weighs (TAIL + 1) / (TAIL + n)."""

_BLOCK: Final = 1 << 20
"""Weights that are squared at once."""

Params = NDArray[np.float32]
Order = NDArray[np.int32]

_FAST: Final = {"reassoc", "contract", "nsz", "arcp"}
"""Fast arithmetic that still knows NaN and infinity: divergence is found by looking for them."""
_F4: Final = types.Array(types.f4, 1, "C")
_READ_F4, _READ_I4, _READ_I8 = (types.Array(kind, 1, "C", readonly=True) for kind in (types.f4, types.i4, types.i8))
_KERNELS: Final[list[tuple[Any, tuple[Any, ...]]]] = []

Function = TypeVar("Function", bound=Callable[..., Any])


def _kernel(*signature: Any) -> Callable[[Function], Function]:
    """Compiled on first use, or for the signature, if any, by `compile_kernels`."""

    def compiled(function: Function) -> Function:
        dispatcher = njit(nogil=True, cache=True, error_model="numpy", fastmath=_FAST)(function)
        if signature:
            _KERNELS.append((dispatcher, signature))
        return cast(Function, dispatcher)

    return compiled


@cache
def compile_kernels() -> None:
    """Compile every kernel, or load it from numba's cache, which takes a fraction of a second.

    Call it before the clock starts, on one rank of each host first, and on the others after a barrier. From then on
    an argument of a wrong type is a TypeError, not another compilation.
    """
    for dispatcher, signature in _KERNELS:
        dispatcher.compile(signature)
        dispatcher.disable_compile()


@dataclass(frozen=True)
class Problem:
    """What is minimised. ValueError: an unknown loss, or an l2 that is negative or not finite."""

    loss: str = "hinge"
    l2: float = 1e-4
    intercept: bool = True

    def __post_init__(self) -> None:
        if self.loss not in LOSSES:
            raise ValueError(f"loss {self.loss!r} is not valid: use {', '.join(LOSSES)}")
        if not (math.isfinite(self.l2) and self.l2 >= 0):
            raise ValueError(f"l2 must be a finite number from 0 up, got {self.l2}")

    @property
    def code(self) -> int:
        """The loss, as the kernels know it."""
        return LOSSES[self.loss]

    @property
    def intercept_rate(self) -> float:
        """The intercept's share of the step; 0 where there is none."""
        return INTERCEPT_RATE if self.intercept else 0.0


class Examples(NamedTuple):
    """Rows of a CSR matrix and their labels, read-only: row i has the non-zeros starts[i]:starts[i + 1]."""

    values: NDArray[np.float32]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.float32]


_ROWS: Final[Any] = cast(Any, types).NamedTuple((_READ_F4, _READ_I4, _READ_I8, _READ_F4), Examples)


def examples(X: csr_matrix, y: NDArray[np.float32], rows: NDArray[np.integer[Any]] | None = None) -> Examples:
    """Views of a CSR matrix, float32 with int32 indices, and its labels, -1 or +1; or a copy of some rows, in the
    order given: a rank that copies its rows as they were dealt has them shuffled, and reads them fast ever after.

    ValueError: a column outside the matrix, or labels that do not go with the rows (the kernels check nothing).
    """
    if rows is not None:
        X, y = X[rows], y[rows]
    if X.shape[0] != len(y):
        raise ValueError(f"{len(y)} labels for {X.shape[0]} rows")
    if X.nnz and not 0 <= X.indices.min() <= X.indices.max() < X.shape[1]:
        raise ValueError(f"a column is outside the matrix, which has {X.shape[1]}")
    values, columns = _readonly(X.data, np.float32), _readonly(X.indices, np.int32)
    return Examples(values, columns, _readonly(X.indptr, np.int64), _readonly(y, np.float32))


def _readonly(array: NDArray[Any], kind: type[np.generic]) -> NDArray[Any]:
    view = np.ascontiguousarray(array, dtype=kind).view(np.ndarray)
    view.flags.writeable = False
    return view


def visiting_order(count: int, generator: np.random.Generator) -> Order:
    """The rows 0 to count - 1 in blocks of BLOCK_ROWS, the blocks shuffled: the order of one epoch over rows that are
    already shuffled in memory."""
    blocks = generator.permutation(-(-count // BLOCK_ROWS))
    order = (blocks[:, np.newaxis] * BLOCK_ROWS + np.arange(BLOCK_ROWS)).reshape(-1)
    return order[order < count].astype(np.int32)


# Losses of the margin z = y (x . w + b), and their derivatives by z


@_kernel()
def loss_of(loss: int, z: float) -> float:
    """hinge: max(0, 1 - z)    squared hinge: max(0, 1 - z)^2   logistic: log(1 + exp(-z))"""
    if loss == HINGE:
        return max(0.0, 1.0 - z)
    if loss == SQUARED_HINGE:
        return max(0.0, 1.0 - z) ** 2
    return math.log1p(math.exp(-z)) if z > 0 else math.log1p(math.exp(z)) - z


@_kernel()
def dloss_of(loss: int, z: float) -> float:
    """hinge: -1 if z < 1, else 0    squared hinge: -2 max(0, 1 - z)   logistic: -1 / (1 + exp(z))"""
    if loss == HINGE:
        return -1.0 if z < 1.0 else 0.0
    if loss == SQUARED_HINGE:
        return -2.0 * max(0.0, 1.0 - z)
    return -1.0 / (1.0 + math.exp(z)) if z < 0 else -math.exp(-z) / (1.0 + math.exp(-z))


def step_size(eta0: float, l2: float, t: float) -> float:
    """eta_t = eta0 / (1 + l2 eta0 t): eta0 at first, 1 / (l2 t) in the end (Bottou 2012, section 5.2)."""
    return eta0 / (1 + l2 * eta0 * t)


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
    return sample._replace(columns=_readonly(places, np.int32)), present.size


def _trial(problem: Problem, sample: Examples, n_features: int, ranks: int, eta0: float) -> float:
    """The objective on the sample of the mean of `ranks` models, each trained on one part of it; infinite for NaN."""
    mean = np.zeros(n_features + 1, dtype=np.float32)
    for part in np.arange(len(sample.labels), dtype=np.int32).reshape(ranks, -1):
        params = np.zeros_like(mean)
        if not _train(sample, part, params, problem.code, problem.l2, eta0, 0.0, problem.intercept_rate):
            return math.inf
        mean += params / np.float32(ranks)
    cost = objective(problem, sample, mean)
    return cost if math.isfinite(cost) else math.inf


def train(problem: Problem, data: Examples, order: Order, params: Params, eta0: float, t: float) -> float:
    """Train `params` in place on the examples named in `order`, one at a time, from step t on; returns the next t.

    FloatingPointError, naming the step size: the weights are no longer finite.
    """
    if not _train(data, order, params, problem.code, problem.l2, eta0, float(t), problem.intercept_rate):
        raise FloatingPointError(
            f"the weights are not finite any more after {t + len(order):.0f} examples: "
            f"the step size, {step_size(eta0, problem.l2, t):.3g} (at first {eta0:.3g}), is too large"
        )
    return t + len(order)


def blend(average: Params, params: Params, count: int) -> None:
    """average <- (1 - m) average + m params, with m = (TAIL + 1) / (TAIL + count), for the count-th model from 1 on.

    A weighted mean of the models so far which forgets the early ones, good at any moment ("polynomial-decay
    averaging": Shamir and Zhang 2013, section 4). It is for measuring and keeping, not for training on.
    """
    _blend(average, params, (TAIL + 1) / (TAIL + count))


def gradient_step(eta0: float, l2: float, t: float, count: int) -> float:
    """The step along the mean subgradient of `count` examples, t having gone before: GRADIENT_SHARE of the steps that
    they would have made one at a time. (All of them would overshoot: each would go where the first is going.)"""
    return GRADIENT_SHARE * count * step_size(eta0, l2, GRADIENT_SHARE * t)


def subgradient(problem: Problem, data: Examples, order: Order, params: Params, out: Params) -> None:
    """out <- the mean, over the examples named in `order`, of the subgradients of the objective at `params`."""
    _subgradient(data, order, params, out, problem.code, problem.l2, float(problem.intercept))


@_kernel()
def _dot(values: Any, columns: Any, start: Any, stop: Any, weights: Any) -> Any:
    """x . w, as four sums at once: a fifth less time than the one loop that LLVM makes wide by itself. Unsigned numbers
    spare numba the test for negative indices."""
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    sum0 = sum1 = sum2 = sum3 = np.float32(0)
    j, last = start, start + ((stop - start) & ~three)
    while j < last:
        sum0 += values[j] * weights[np.uint32(columns[j])]
        sum1 += values[j + one] * weights[np.uint32(columns[j + one])]
        sum2 += values[j + two] * weights[np.uint32(columns[j + two])]
        sum3 += values[j + three] * weights[np.uint32(columns[j + three])]
        j += one + three
    for k in range(last, stop):
        sum0 += values[k] * weights[np.uint32(columns[k])]
    return (sum0 + sum1) + (sum2 + sum3)


@_kernel(_ROWS, _READ_I4, _F4, types.i8, types.f8, types.f8, types.f8, types.f8)
def _train(
    data: Examples, order: Order, params: Params, loss: int, l2: float, eta0: float, t: float, intercept_rate: float
) -> bool:
    """Lazy L2: w = scale u, so that an example touches only its non-zeros (Bottou 2012, section 5.1).

    w <- (w - eta_t g) / (1 + eta_t l2), the implicit form, in which shrinking never overshoots. Since 1 + eta_t l2 =
    eta_t / eta_(t+1), the scale after n steps is eta_(t+n) / eta_t, and a step in u is the first eta_t for all of them.
    The scale, at least 1 / (1 + l2 eta0 n), need not be folded back before the end. Whether all of params is finite.
    """
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    eta_first = eta0 / (1 + l2 * eta0 * t)
    rate = l2 * eta_first
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        scale = 1 / (1 + rate * k)
        y = labels[row]
        z = y * (np.float32(scale) * _dot(values, columns, start, stop, params) + params[n_features])
        slope = dloss_of(loss, z) * y
        if slope != 0:
            step = np.float32(-eta_first * slope)
            for j in range(start, stop):
                params[np.uint32(columns[j])] += step * values[j]
            params[n_features] -= np.float32(intercept_rate * eta_first * scale * slope)
    return _rescale(params, 1 / (1 + rate * order.size))


@_kernel()
def _rescale(params: Any, scale: float) -> bool:
    """u <- scale u: from here on it is w. Whether all of params is finite."""
    factor = np.float32(scale)
    check = params[-1] * np.float32(0)
    for j in range(params.size - 1):
        params[j] *= factor
        check += params[j] * np.float32(0)
    return bool(check == 0)


@_kernel(_F4, _READ_F4, types.f8)
def _blend(average: Any, params: Any, weight: float) -> None:
    part = np.float32(weight)
    for j in range(average.size):
        average[j] += part * (params[j] - average[j])


@_kernel(_ROWS, _READ_I4, _READ_F4, _F4, types.i8, types.f8, types.f8)
def _subgradient(
    data: Examples, order: Order, params: Params, out: Params, loss: int, l2: float, intercept: float
) -> None:
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    for j in range(n_features):
        out[j] = np.float32(l2) * params[j]
    out[n_features] = 0
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        y = labels[row]
        slope = y * dloss_of(loss, y * (_dot(values, columns, start, stop, params) + params[n_features])) / order.size
        if slope != 0:
            for j in range(start, stop):
                out[np.uint32(columns[j])] += np.float32(slope) * values[j]
            out[n_features] += np.float32(intercept * slope)


class Touched:
    """Which weights the examples trained on since the last `take` have touched."""

    def __init__(self, data: Examples, n_features: int, intercept: bool) -> None:
        self._data = data
        self._marks = np.zeros(n_features + 1, np.uint8)
        self._intercept = intercept

    def follow(self, data: Examples) -> None:
        """From here on `order` names examples of `data`."""
        self._data = data

    def note(self, order: Order) -> None:
        """Count the examples named in `order`."""
        _mark(self._data, order, self._marks)
        self._marks[-1] |= self._intercept and order.size > 0

    def take(self) -> Order:
        """The weights touched, ascending, the intercept's last; forgets them."""
        touched = np.flatnonzero(self._marks)
        self._marks[:] = 0
        return touched.astype(np.int32)


@_kernel(_ROWS, _READ_I4, types.Array(types.u1, 1, "C"))
def _mark(data: Examples, order: Order, marks: Any) -> None:
    for k in range(order.size):
        row = np.uint32(order[k])
        for j in range(np.uint64(data.starts[row]), np.uint64(data.starts[row + 1])):
            marks[np.uint32(data.columns[j])] = 1


def totals(
    problem: Problem, data: Examples, params: Params, start: int = 0, stop: int | None = None
) -> tuple[float, int]:
    """(sum of the losses, rows on the right side) of rows start:stop: add up those of blocks, or of ranks."""
    stop = len(data.labels) if stop is None else min(stop, len(data.labels))
    return _totals(data, params, problem.code, start, stop)


def objective(problem: Problem, data: Examples, params: Params) -> float:
    """The mean loss plus the penalty, `penalty`. NaN where there are no rows."""
    rows = len(data.labels)
    return totals(problem, data, params)[0] / rows + penalty(problem, params) if rows else math.nan


def penalty(problem: Problem, params: Params) -> float:
    """l2/2 |w|^2, by blocks: a wide model is not copied whole."""
    blocks = (params[start : min(start + _BLOCK, params.size - 1)] for start in range(0, params.size - 1, _BLOCK))
    squares = (float(weights @ weights) for weights in (block.astype(np.float64) for block in blocks))
    return 0.5 * problem.l2 * sum(squares)


def accuracy(problem: Problem, data: Examples, params: Params) -> float:
    """The share of rows with y (x . w + b) > 0. NaN where there are no rows."""
    return totals(problem, data, params)[1] / len(data.labels) if len(data.labels) else math.nan


@_kernel(_ROWS, _READ_F4, types.i8, types.i8, types.i8)
def _totals(data: Examples, params: Params, loss: int, first: int, last: int) -> tuple[float, int]:
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    losses, right = 0.0, 0
    for row in range(first, last):
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        z = labels[row] * (_dot(values, columns, start, stop, params) + params[params.size - 1])
        losses += loss_of(loss, z)
        right += z > 0
    return losses, right
