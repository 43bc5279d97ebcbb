"""A sparse autoencoder: one hidden layer that must give its input again, in float64. Pure.

    J(w) = 1/n sum over x of |f(x) - x|^2 / 2 + l2/2 (|U|^2 + |V|^2) + weight * sum over j of KL(rho || r_j)

f(x) = s(V s(U x + b) + c), s the logistic function; r_j is the mean activation of hidden unit j, and rho what it is to
be. What depends on r_j is linear in a derivative that is known once all patches were seen. So one pass over the patches
adds up both parts of the gradient: `sums`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from apps.harness import Array, load_model


class Layers(NamedTuple):
    """The weights, as views of one array."""

    U: Array
    """(pixels, hidden)"""
    b: Array
    V: Array
    """(hidden, pixels)"""
    c: Array


def length(pixels: int, hidden: int) -> int:
    """The number of weights."""
    return 2 * pixels * hidden + hidden + pixels


def layers(w: Array, pixels: int) -> Layers:
    """The layers of `w`: views."""
    hidden = (w.size - pixels) // (2 * pixels + 1)
    size = pixels * hidden
    U, V = w[:size].reshape(pixels, hidden), w[size + hidden : 2 * size + hidden].reshape(hidden, pixels)
    return Layers(U, w[size : size + hidden], V, w[2 * size + hidden :])


def first_weights(pixels: int, hidden: int, rng: np.random.Generator) -> Array:
    """Weights to begin with: uniform within sqrt(6 / (hidden + pixels + 1)), biases 0."""
    w = np.zeros(length(pixels, hidden))
    bound = math.sqrt(6 / (hidden + pixels + 1))
    for weights in layers(w, pixels)[::2]:
        weights[...] = rng.uniform(-bound, bound, weights.shape)
    return w


def load(path: str, pixels: int, hidden: int) -> Array:
    """The weights of an autoencoder of this size, as one array.

    ValueError: the file is no such model. The message names the file. OSError: it cannot be read.
    """
    found, w = load_model(path, "apps.autoencoder"), np.zeros(length(pixels, hidden))
    for name, place in layers(w, pixels)._asdict().items():
        array = found.get(name, np.zeros(0))
        if (array.shape, array.dtype) != (place.shape, place.dtype):
            shape = found["U"].shape if "U" in found else None
            raise ValueError(f"{path}: a model of (pixels, hidden units) {shape}, not of {(pixels, hidden)} as here")
        place[...] = array
    if not np.isfinite(w).all():
        raise ValueError(f"{path}: the model holds NaN or infinity")
    return w


class Sums(NamedTuple):
    """The sums over patches."""

    error: float
    """|f(x) - x|^2 / 2"""
    patches: int
    gradient: Array
    """That of the error, as long as w."""
    sparse: Array
    """The derivative of the activations of each hidden unit, for U and then b."""
    active: Array
    """The activations of each hidden unit."""


def sums(w: Array, patches: Array) -> tuple[Any, ...]:
    """The sums over `patches`, in the order of `Sums`."""
    U, b, V, c = layers(w, patches.shape[1])
    hidden = expit(patches @ U + b)
    output = expit(hidden @ V + c)
    error = output - patches
    gradient, sparse = np.empty(w.size), np.empty(U.size + b.size)
    behind = error * output * (1 - output)
    slope = hidden * (1 - hidden)
    before = (behind @ V.T) * slope
    found = layers(gradient, patches.shape[1])
    np.matmul(patches.T, before, out=found.U)
    np.matmul(hidden.T, behind, out=found.V)
    found.b[:], found.c[:] = before.sum(0), behind.sum(0)
    np.matmul(patches.T, slope, out=sparse[: U.size].reshape(U.shape))
    sparse[U.size :] = slope.sum(0)
    return float(np.vdot(error, error)) / 2, len(patches), gradient, sparse, hidden.sum(0)


def objective(w: Array, pixels: int, found: Sums, rho: float, weight: float, l2: float) -> tuple[float, Array]:
    """J(w) and its gradient, of the sums over all patches. `rho` 0: hidden units need not be sparse."""
    U, _, V, _ = layers(w, pixels)
    gradient = found.gradient / found.patches
    of_layers = layers(gradient, pixels)
    value = found.error / found.patches + l2 / 2 * float(np.vdot(U, U) + np.vdot(V, V))
    of_layers.U[...] += l2 * U
    of_layers.V[...] += l2 * V
    if rho:
        mean = found.active / found.patches
        with np.errstate(divide="ignore", invalid="ignore"):
            value += weight * float(np.sum(rho * np.log(rho / mean) + (1 - rho) * np.log((1 - rho) / (1 - mean))))
            by_unit = weight * ((1 - rho) / (1 - mean) - rho / mean) / found.patches
        of_layers.U[...] += found.sparse[: U.size].reshape(U.shape) * by_unit
        of_layers.b[...] += found.sparse[U.size :] * by_unit
    return value, gradient
