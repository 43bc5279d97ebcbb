"""The compiled kernels of networks: a first layer that reads sparse rows, and optimizers in one pass over memory.

The kernels release the GIL, allocate nothing and check nothing. Numba caches them on disk, and looks at the time
of one file: all are in this one. Without numba those that only save time are not called: see sparse.py.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from malt.kernels.compiler import types
from malt.kernels.compiling import Kernels
from malt.models.linear import Examples
from malt.models.networks import interpreted

_F4, _F4_2, _READ_F4_2 = types.Array(types.f4, 1, "C"), *(types.Array(types.f4, 2, "C", read) for read in (False, True))
_READ_F4, _READ_I4, _READ_I8 = (types.Array(kind, 1, "C", True) for kind in (types.f4, types.i4, types.i8))
_ROWS: Final[Any] = types.NamedTuple((_READ_F4, _READ_I4, _READ_I8, _READ_F4), Examples)
_FOUR: Final[Any] = types.UniTuple(types.f4, 4)
kernel, exact = Kernels(fast=True, slower=30), Kernels(slower=30)


def compile_kernels() -> None:
    """Compile all kernels, or load them from numba's cache."""
    kernel.compile()
    exact.compile()


@kernel(_ROWS, _READ_I4, _READ_F4_2, _F4_2, interpreted=interpreted.forward)
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


@kernel(_ROWS, _READ_I4, _READ_F4_2, _F4_2, interpreted=interpreted.backward)
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
