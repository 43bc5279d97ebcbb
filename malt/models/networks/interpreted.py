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


def place(some: Any, rows: Any, others: Any, gradient: Any) -> None:
    """gradient[rows] <- some, gradient[others] <- 0."""
    gradient[rows], gradient[others] = some, 0


def descend(below: Any, inputs: Any) -> None:
    """below <- 0 where the neuron was not active."""
    below[~(inputs[:, : below.shape[1]] > 0)] = 0


def lower(logits: Any) -> None:
    """z <- z - the largest of its row."""
    logits -= logits.max(axis=1, keepdims=True)


def errors(powers: Any, labels: Any) -> None:
    """p <- (p / the sum of its row - 1 at the row's label) / rows."""
    share = np.float32(1 / len(labels))
    powers *= share / powers.sum(axis=1, keepdims=True)
    powers[np.arange(len(labels)), labels] -= share


def momentum(weights: Any, velocity: Any, gradient: Any, rate: Any, step: Any) -> None:
    """v <- rate v - step g, w <- w + v"""
    velocity[:] = velocity * rate - gradient * step
    weights += velocity


def adam(weights: Any, mean: Any, square: Any, gradient: Any, factors: Any) -> None:
    """m <- m + a (g - m), s <- s + b (g^2 - s), w <- w - step m / (sqrt(s) + eps)"""
    mean_share, square_share, step, epsilon = factors
    mean += (gradient - mean) * mean_share
    square += (gradient * gradient - square) * square_share
    weights -= mean / (np.sqrt(square) + epsilon) * step


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
