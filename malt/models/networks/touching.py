"""The compiled kernels of a first layer of sparse rows. They change the weights of a batch's features alone.

Row j of the weights is that of feature j. The last row is the bias, a feature of value 1 that all rows have. The
kernels release the GIL, allocate nothing and check nothing. They are all in this file, because numba's cache notices
only changes in the file of the kernel itself.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from malt.kernels import Kernels, types
from malt.models.linear import Examples
from malt.models.networks import interpreted

EPSILON: Final = np.float32(1e-10)

_F4_2, _READ_F4_2 = (types.Array(types.f4, 2, "C", readonly) for readonly in (False, True))
_I4, _U1 = (types.Array(kind, 1, "C") for kind in (types.i4, types.u1))
_READ_F4, _READ_I4, _READ_I8 = (types.Array(kind, 1, "C", True) for kind in (types.f4, types.i4, types.i8))
_ROWS: Final[Any] = types.NamedTuple((_READ_F4, _READ_I4, _READ_I8, _READ_F4), Examples)
kernel = Kernels(fast=True, slower=100)
compile_kernels = kernel.compile


@kernel(_ROWS, _READ_I4, _READ_F4_2, _I4, _I4, _F4_2)
def backward(data: Any, order: Any, deltas: Any, places: Any, rows: Any, gradient: Any) -> int:
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


@kernel(_ROWS, _READ_I4, _F4_2, _F4_2, _U1, _I4, types.i8)
def begin(data: Any, order: Any, changes: Any, weights: Any, marks: Any, rows: Any, count: int) -> int:
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
