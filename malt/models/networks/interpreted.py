"""Replaces the kernels of networks, and their inner loops, by NumPy where they are interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np


def forward(data: Any, order: Any, weights: Any, z: Any) -> None:
    """z[i] <- z[i] + x W, where x is row order[i]."""
    for i, row in enumerate(order):
        here = slice(data.starts[row], data.starts[row + 1])
        z[i] += data.values[here] @ weights[data.columns[here]]


def backward(data: Any, order: Any, deltas: Any, gradient: Any) -> None:
    """gradient <- gradient + the sum of x deltas[i], where x is row order[i]."""
    for i, row in enumerate(order):
        here = slice(data.starts[row], data.starts[row + 1])
        np.add.at(gradient, data.columns[here], np.outer(data.values[here], deltas[i]))


def adagrad(weights: Any, squares: Any, changes: Any, rows: Any, gradient: Any, step: Any, l2: Any) -> None:
    """n <- n + g^2, w <- w - step g / (sqrt(n) + eps) in the given rows, with g = gradient + l2 w but for the bias."""
    shrink = np.where(rows != len(weights) - 1, l2, np.float32(0))[:, np.newaxis]
    g = gradient + shrink * weights[rows]
    squares[rows] += g * g
    change = -step * g / (np.sqrt(squares[rows]) + np.float32(1e-10))
    weights[rows] += change
    changes[rows] += change


def move(changes: Any, weights: Any, row: Any) -> None:
    """w <- w + d, d <- 0 in a row."""
    weights[row] += changes[row]
    changes[row] = 0
