"""The compiled kernels of linear models, and the rows that they read.

The kernels release the GIL, allocate nothing and check nothing. Numba caches them on disk, and looks at the time
of one file: all are in this one.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.kernels.compiler import types
from malt.kernels.compiling import Kernels
from malt.models.linear import interpreted

HINGE, SQUARED_HINGE, LOGISTIC, SQUARED = 0, 1, 2, 3
LOSSES: Final = {"hinge": HINGE, "squared-hinge": SQUARED_HINGE, "logistic": LOGISTIC, "squared": SQUARED}
SOFTMAX: Final = -1
"""In place of a loss of each class."""

Params = NDArray[np.float32]
Order = NDArray[np.int32]

(_F4, _F8), (_F4_2, _F8_2) = ([types.Array(kind, many, "C") for kind in (types.f4, types.f8)] for many in (1, 2))
_READ_F4, _READ_I4, _READ_I8, _READ_F8 = (
    types.Array(kind, 1, "C", readonly=True) for kind in (types.f4, types.i4, types.i8, types.f8)
)
_READ_F8_2 = types.Array(types.f8, 2, "C", readonly=True)
_MOST_NEWTON, _NEWTON_ERROR = 50, 1e-12
"""The most steps of Newton's method, and the change of a margin at which it ends."""

kernel = Kernels(fast=True, slower=300)
compile_kernels = kernel.compile


class Examples(NamedTuple):
    """The rows of a CSR matrix and their labels, read-only. Row i has the non-zeros starts[i]:starts[i + 1]."""

    values: NDArray[np.float32]
    columns: NDArray[np.int32]
    starts: NDArray[np.int64]
    labels: NDArray[np.float32]


ROWS: Final[Any] = types.NamedTuple((_READ_F4, _READ_I4, _READ_I8, _READ_F4), Examples)
"""The type of Examples."""


# Losses of the margin z = y (x . w + b), and their derivatives with respect to z


@kernel()
def loss_of(loss: int, z: float) -> float:
    """hinge: max(0, 1 - z)    squared hinge: max(0, 1 - z)^2   logistic: log(1 + exp(-z))   squared: (1 - z)^2 / 2"""
    if loss == HINGE:
        return max(0.0, 1.0 - z)
    if loss == SQUARED_HINGE:
        return max(0.0, 1.0 - z) ** 2
    if loss == SQUARED:
        return 0.5 * (1.0 - z) ** 2
    return math.log1p(math.exp(-z)) if z > 0 else math.log1p(math.exp(z)) - z


@kernel()
def dloss_of(loss: int, z: float) -> float:
    """hinge: -1 if z < 1, else 0    squared hinge: -2 max(0, 1 - z)   logistic: -1 / (1 + exp(z))   squared: z - 1"""
    if loss == HINGE:
        return -1.0 if z < 1.0 else 0.0
    if loss == SQUARED_HINGE:
        return -2.0 * max(0.0, 1.0 - z)
    if loss == SQUARED:
        return z - 1.0
    return -1.0 / (1.0 + math.exp(z)) if z < 0 else -math.exp(-z) / (1.0 + math.exp(-z))


@kernel()
def _softmax_slopes(scores: Any, label: Any) -> Any:
    """scores <- the derivatives of the softmax loss, log(sum over c of exp(s_c)) - s_label. Returns the loss."""
    top, own, total = scores.max(), scores[label], 0.0
    for c in range(scores.size):
        scores[c] = math.exp(scores[c] - top)
        total += scores[c]
    for c in range(scores.size):
        scores[c] = scores[c] / total - (c == label)
    return math.log(total) + top - own


# Training


@kernel(interpreted=interpreted.dot)
def _dot(values: Any, columns: Any, start: Any, stop: Any, weights: Any) -> Any:
    """x . w, in four sums at once, which take a fifth less time than the single loop that LLVM vectorizes by itself.

    With unsigned indices numba does not test for negative ones.
    """
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


@kernel(interpreted=interpreted.add)
def _add(values: Any, columns: Any, start: Any, stop: Any, step: Any, weights: Any) -> None:
    """w <- w + step x"""
    for j in range(start, stop):
        weights[np.uint32(columns[j])] += step * values[j]


@kernel(ROWS, _READ_I4, _F4, types.i8, types.f8, types.f8, types.f8, types.f8)
def train(
    data: Examples, order: Order, params: Params, loss: int, l2: float, eta0: float, t: float, intercept_rate: float
) -> bool:
    """w <- (w - eta_t g) / (1 + eta_t l2) for each row of `order`. Returns whether all of params is finite.

    This is the implicit form of the step, in which shrinking never overshoots. L2 is lazy: w = scale u, so that an
    example touches only its non-zeros (Bottou 2012, section 5.1). Since 1 + eta_t l2 = eta_t / eta_(t+1), the scale
    after n steps is eta_(t+n) / eta_t, and every step in u has the size of the first, eta_t. The scale stays above
    1 / (1 + l2 eta0 n), so u is scaled back only at the end.
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
            _add(values, columns, start, stop, np.float32(-eta_first * slope), params)
            params[n_features] -= np.float32(intercept_rate * eta_first * scale * slope)
    return rescale(params, 1 / (1 + rate * order.size))


@kernel(ROWS, _READ_I4, _F4_2, _F8, types.f8, types.f8, types.f8, types.f8)
def train_classes(
    data: Examples, order: Order, params: Any, scores: Any, l2: float, eta0: float, t: float, intercept_rate: float
) -> bool:
    """Train all classes with the softmax loss, by the implicit step of `train`. Returns whether `params` is finite.

    `params` has a row for each class, and `scores`, which is memory, an element.
    """
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.shape[1] - 1
    eta_first, rate = eta0 / (1 + l2 * eta0 * t), l2 * eta0 / (1 + l2 * eta0 * t)
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        scale = 1 / (1 + rate * k)
        for c in range(scores.size):
            scores[c] = np.float32(scale) * _dot(values, columns, start, stop, params[c]) + params[c, n_features]
        _softmax_slopes(scores, np.int64(labels[row]))
        for c in range(scores.size):
            step = np.float32(-eta_first * scores[c])
            _add(values, columns, start, stop, step, params[c])
            params[c, n_features] += np.float32(intercept_rate * scale) * step
    finite = 0
    for c in range(scores.size):
        finite += rescale(params[c], 1 / (1 + rate * order.size))
    return bool(finite == scores.size)


@kernel(interpreted=interpreted.rescale)
def rescale(params: Any, scale: float) -> bool:
    """u <- scale u, which makes it w again. Returns whether all of params is finite."""
    factor = np.float32(scale)
    check = params[-1] * np.float32(0)
    for j in range(params.size - 1):
        params[j] *= factor
        check += params[j] * np.float32(0)
    return bool(check == 0)


@kernel(_F4, _READ_F4, types.f8, interpreted=interpreted.blend)
def blend(average: Any, params: Any, weight: float) -> None:
    """average <- (1 - weight) average + weight params"""
    part = np.float32(weight)
    for j in range(average.size):
        average[j] += part * (params[j] - average[j])


@kernel(ROWS, _READ_I4, _READ_F4, _F4, types.i8, types.f8)
def add_subgradient(data: Examples, order: Order, params: Any, out: Any, loss: int, intercept: float) -> None:
    """out += the mean subgradient of the losses of the rows in `order`."""
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        y = labels[row]
        slope = y * dloss_of(loss, y * (_dot(values, columns, start, stop, params) + params[n_features])) / order.size
        if slope != 0:
            _add(values, columns, start, stop, np.float32(slope), out)
            out[n_features] += np.float32(intercept * slope)


# Gradients over whole passes, in float64


@kernel(ROWS, _READ_F8, _F8, types.i8, _READ_F8, interpreted=interpreted.add_gradient)
def add_gradient(data: Examples, params: Any, out: Any, loss: int, weights: Any) -> tuple[float, int]:
    """out += the gradient of the sum of the losses. Returns that sum, and the number of correct rows.

    Each row is read once: it is in the cache when its margin is known. `weights`: of the rows, by which their losses
    are multiplied; empty: 1 each.
    """
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    losses, right = 0.0, 0
    for row in range(labels.size):
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        y = np.float64(labels[row])
        z = y * (_dot(values, columns, start, stop, params) + params[n_features])
        weight = weights[row] if weights.size else 1.0
        losses += weight * loss_of(loss, z)
        right += z > 0
        slope = weight * y * dloss_of(loss, z)
        if slope != 0:
            _add(values, columns, start, stop, slope, out)
            out[n_features] += slope
    return losses, right


@kernel(ROWS, _READ_F8_2, _F8_2, _F8, types.i8, _READ_F8)
def add_gradient_of_classes(
    data: Examples, params: Any, out: Any, scores: Any, loss: int, weights: Any
) -> tuple[float, int]:
    """out += the gradient, as `add_gradient`, of a model with a column for each class. `scores`: memory for a row.

    The labels are the numbers of the classes. `loss`: summed over the classes, of which one is +1 and the others -1; or
    SOFTMAX: log(sum over c of exp(s_c)) - s_y, where s_c is the score of class c.
    """
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features, classes = params.shape[0] - 1, params.shape[1]
    losses, right = 0.0, 0
    for row in range(labels.size):
        start, stop, label = np.uint64(starts[row]), np.uint64(starts[row + 1]), np.int64(labels[row])
        for c in range(classes):
            scores[c] = params[n_features, c]
        for j in range(start, stop):
            column = np.uint32(columns[j])
            for c in range(classes):
                scores[c] += values[j] * params[column, c]
        right += np.argmax(scores) == label
        weight = weights[row] if weights.size else 1.0
        if loss == SOFTMAX:
            losses += weight * _softmax_slopes(scores, label)
        else:
            for c in range(classes):
                y = 1.0 if c == label else -1.0
                losses += weight * loss_of(loss, y * scores[c])
                scores[c] = y * dloss_of(loss, y * scores[c])
        for c in range(classes):
            scores[c] *= weight
        for j in range(start, stop):
            column = np.uint32(columns[j])
            for c in range(classes):
                out[column, c] += values[j] * scores[c]
        for c in range(classes):
            out[n_features, c] += scores[c]
    return losses, right


# Dual coordinate ascent: see ascent.py


@kernel()
def best_alpha(loss: int, alpha: float, z: float, q: float) -> float:
    """The a that maximises dual_loss(a) - z (a - alpha) - q (a - alpha)^2 / 2, for the margin z and q = |x|^2 / (l2 n).

    hinge: a, within 0 to 1   squared hinge: a - a^2 / 4, at least 0
    logistic: -a log(a) - (1 - a) log(1 - a). By Newton's method for the margin after the step (Yu, Huang and Lin 2011)
    """
    if loss == HINGE:
        return min(1.0, max(0.0, alpha + (1.0 - z) / q))
    if loss == SQUARED_HINGE:
        return max(0.0, alpha + (1.0 - z - alpha / 2) / (q + 0.5))
    low, high = z - q * alpha, z + q * (1.0 - alpha)
    u = min(high, max(low, 0.0))
    for _ in range(_MOST_NEWTON):
        a = 1.0 / (1.0 + np.exp(u))
        excess = u - z - q * (a - alpha)
        low, high = (low, u) if excess > 0 else (u, high)
        step = excess / (1.0 + q * a * (1.0 - a))
        u = u - step if low <= u - step <= high else (low + high) / 2
        if abs(step) <= _NEWTON_ERROR * (1.0 + abs(u)):
            break
    return float(1.0 / (1.0 + np.exp(u)))


@kernel(ROWS, _READ_I4, _F8, _F8, types.i8, types.f8, types.f8)
def ascend(data: Examples, order: Order, alphas: Any, params: Any, loss: int, share: float, bias: float) -> None:
    """For each row of `order`: alpha <- its best value, params <- params + share y (its change) (x, bias)."""
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    n_features = params.size - 1
    for k in range(order.size):
        row = np.uint32(order[k])
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        y = labels[row]
        z = y * (_dot(values, columns, start, stop, params) + params[n_features])
        square = bias
        for j in range(start, stop):
            square += np.float64(values[j]) * values[j]
        best = best_alpha(loss, alphas[row], z, share * square)
        change = share * y * (best - alphas[row])
        if change != 0:
            alphas[row] = best
            _add(values, columns, start, stop, change, params)
            params[n_features] += change * bias


@kernel(ROWS, _F8, _F8, types.f8)
def weigh(data: Examples, alphas: Any, out: Any, share: float) -> None:
    """out <- the sum over the rows of share alpha y (x, 1)"""
    out[:] = 0
    for row in range(alphas.size):
        weight = share * alphas[row] * data.labels[row]
        if weight != 0:
            start, stop = np.uint64(data.starts[row]), np.uint64(data.starts[row + 1])
            _add(data.values, data.columns, start, stop, weight, out)
            out[out.size - 1] += weight


# Measures of models and rows


@kernel(ROWS, _READ_I4, types.Array(types.u1, 1, "C"))
def mark(data: Examples, order: Order, marks: Any) -> None:
    """marks <- 1 at the columns of the rows in `order`."""
    for k in range(order.size):
        row = np.uint32(order[k])
        for j in range(np.uint64(data.starts[row]), np.uint64(data.starts[row + 1])):
            marks[np.uint32(data.columns[j])] = 1


@kernel(ROWS, _READ_F4, types.i8, types.i8, types.i8, interpreted=interpreted.totals)
def totals(data: Examples, params: Params, loss: int, first: int, last: int) -> tuple[float, int]:
    """The sum of the losses and the number of correct rows, of rows first:last."""
    values, columns, starts, labels = data.values, data.columns, data.starts, data.labels
    losses, right = 0.0, 0
    for row in range(first, last):
        start, stop = np.uint64(starts[row]), np.uint64(starts[row + 1])
        z = labels[row] * (_dot(values, columns, start, stop, params) + params[params.size - 1])
        losses += loss_of(loss, z)
        right += z > 0
    return losses, right
