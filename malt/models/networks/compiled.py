"""The compiled kernels of networks: a first layer that reads sparse rows, and optimizers in one pass over memory.

Those of a layer that changes the weights of a batch's features alone are the last. Row j of the weights is that of
feature j. The last row is the bias, a feature of value 1 that all rows have.

The kernels release the GIL, allocate nothing and check nothing. Numba caches them on disk, and looks at the time
of one file: all are in this one. Without numba those that only save time are not called: see sparse.py.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from malt.kernels.compiler import types
from malt.kernels.compiling import Kernels
from malt.models.linear.compiled import ROWS
from malt.models.networks import interpreted

_F4, _F4_2, _READ_F4_2 = types.Array(types.f4, 1, "C"), *(types.Array(types.f4, 2, "C", read) for read in (False, True))
_READ_I4, _READ_I8 = (types.Array(kind, 1, "C", True) for kind in (types.i4, types.i8))
_FOUR: Final[Any] = types.UniTuple(types.f4, 4)
_I4, _U1 = (types.Array(kind, 1, "C") for kind in (types.i4, types.u1))
EPSILON: Final = np.float32(1e-10)
kernel, exact = Kernels(fast=True, slower=100), Kernels(slower=30)


def compile_kernels() -> None:
    """Compile all kernels, or load them from numba's cache."""
    kernel.compile()
    exact.compile()


@kernel(ROWS, _READ_I4, _READ_F4_2, _F4_2, interpreted=interpreted.forward)
def forward(data: Any, order: Any, weights: Any, z: Any) -> None:
    """z[i] <- z[i] + x W, where x is row order[i]. `z`: (rows, neurons).

    Two non-zeros are read at a time, so that z is stored half as often.
    """
    neurons = weights.shape[1]
    for i in range(order.size):
        first, last = data.starts[order[i]], data.starts[order[i] + 1]
        if (last - first) % 2:
            value, row = data.values[first], weights[data.columns[first]]
            for h in range(neurons):
                z[i, h] += value * row[h]
            first += 1
        for j in range(first, last, 2):
            value, row = data.values[j], weights[data.columns[j]]
            other, below = data.values[j + 1], weights[data.columns[j + 1]]
            for h in range(neurons):
                z[i, h] += value * row[h] + other * below[h]


@kernel(ROWS, _READ_I4, _READ_F4_2, _F4_2, interpreted=interpreted.backward)
def backward(data: Any, order: Any, deltas: Any, gradient: Any) -> None:
    """gradient <- gradient + the sum of x deltas[i], where x is row order[i]. `gradient`: (features + 1, neurons)."""
    neurons = deltas.shape[1]
    for i in range(order.size):
        for j in range(data.starts[order[i]], data.starts[order[i] + 1]):
            value, row = data.values[j], gradient[data.columns[j]]
            for h in range(neurons):
                row[h] += value * deltas[i, h]


@kernel(_F4_2)
def lower(logits: Any) -> None:
    """z <- z - the largest of its row."""
    for i in range(logits.shape[0]):
        largest = logits[i, 0]
        for k in range(1, logits.shape[1]):
            largest = max(largest, logits[i, k])
        for k in range(logits.shape[1]):
            logits[i, k] -= largest


@kernel(_F4_2, _READ_I8)
def errors(powers: Any, labels: Any) -> None:
    """p <- (p / the sum of its row - 1 at the row's label) / rows.

    Of p = exp(z) that is the derivative of the mean cross-entropy with respect to z.
    """
    share = np.float32(1 / len(labels))
    for i in range(len(labels)):
        total = np.float32(0)
        for k in range(powers.shape[1]):
            total += powers[i, k]
        factor = share / total
        for k in range(powers.shape[1]):
            powers[i, k] *= factor
        powers[i, labels[i]] -= share


@exact(_F4, _F4, _F4, types.f4, types.f4)
def momentum(weights: Any, velocity: Any, gradient: Any, rate: Any, step: Any) -> None:
    """v <- rate v - step g, w <- w + v, rounded as NumPy rounds."""
    for i in range(weights.size):
        velocity[i] = velocity[i] * rate - gradient[i] * step
        weights[i] += velocity[i]


@exact(_F4, _F4, _F4, _F4, _FOUR)
def adam(weights: Any, mean: Any, square: Any, gradient: Any, factors: Any) -> None:
    """m <- m + a (g - m), s <- s + b (g^2 - s), w <- w - step m / (sqrt(s) + eps), rounded as NumPy rounds.

    `factors`: a, b, step, eps.
    """
    mean_share, square_share, step, epsilon = factors
    for i in range(weights.size):
        g = gradient[i]
        mean[i] += (g - mean[i]) * mean_share
        square[i] += (g * g - square[i]) * square_share
        weights[i] -= mean[i] / (np.sqrt(square[i]) + epsilon) * step


# A layer that changes the weights of a batch's features alone


@kernel(ROWS, _READ_I4, _READ_F4_2, _I4, _I4, _F4_2)
def backward_touched(data: Any, order: Any, deltas: Any, places: Any, rows: Any, gradient: Any) -> int:
    """Find the gradient of the weights that the rows in `order` touch. Return how many there are.

    Row rows[k] of the weights has the gradient gradient[k], the sum of [x, 1] deltas[i] over the rows. The bias is the
    last of them. `places` has a number for each row of the weights: -1, and -1 again when the kernel returns.
    """
    count, neurons, bias = 0, deltas.shape[1], len(places) - 1
    for i in range(order.size):
        for j in range(data.starts[order[i]], data.starts[order[i] + 1]):
            value, row = data.values[j], data.columns[j]
            k = places[row]
            if k < 0:
                k = count
                places[row], rows[k] = k, row
                for h in range(neurons):
                    gradient[k, h] = 0
                count += 1
            for h in range(neurons):
                gradient[k, h] += value * deltas[i, h]
    for k in range(count):
        places[rows[k]] = -1
    rows[count] = bias
    for h in range(neurons):
        gradient[count, h] = 0
    for i in range(order.size):
        for h in range(neurons):
            gradient[count, h] += deltas[i, h]
    return count + 1


@kernel(_F4_2, _F4_2, _F4_2, _READ_I4, _READ_F4_2, types.f4, types.f4, interpreted=interpreted.adagrad)
def adagrad(weights: Any, squares: Any, changes: Any, rows: Any, gradient: Any, step: Any, l2: Any) -> None:
    """n <- n + g^2, w <- w - step g / (sqrt(n) + EPSILON) in the given rows, with g = gradient + l2 w but for the bias.

    What is added to w is added to `changes` too.
    """
    bias = len(weights) - 1
    for k in range(rows.size):
        w, n, d = weights[rows[k]], squares[rows[k]], changes[rows[k]]
        shrink = l2 if rows[k] != bias else np.float32(0)
        for h in range(weights.shape[1]):
            g = gradient[k, h] + shrink * w[h]
            n[h] += g * g
            change = -step * g / (math.sqrt(n[h]) + EPSILON)
            w[h] += change
            d[h] += change


@kernel(interpreted=interpreted.move)
def _move(changes: Any, weights: Any, row: Any) -> None:
    """w <- w + d, d <- 0 in a row."""
    for h in range(weights.shape[1]):
        if changes[row, h] != 0:
            weights[row, h] += changes[row, h]
            changes[row, h] = 0


@kernel(ROWS, _READ_I4, _F4_2, _F4_2, _U1, _I4, types.i8)
def mark_touched(data: Any, order: Any, changes: Any, weights: Any, marks: Any, rows: Any, count: int) -> int:
    """Mark the rows of weights that the rows in `order` touch, and move what others have changed of these into them.

    Rows without a mark are added to rows[:count]. Return the new count.
    """
    bias = len(weights) - 1
    for i in range(-1, order.size):
        first, last = (0, 1) if i < 0 else (data.starts[order[i]], data.starts[order[i] + 1])
        for j in range(first, last):
            row = bias if i < 0 else data.columns[j]
            if not marks[row]:
                _move(changes, weights, row)
                marks[row], rows[count] = 1, row
                count += 1
    return count


@kernel(_F4_2, _F4_2, _U1)
def settle(changes: Any, weights: Any, marks: Any) -> None:
    """Move what others have changed into all rows of weights that are not marked."""
    for row in range(marks.size):
        if not marks[row]:
            _move(changes, weights, row)
