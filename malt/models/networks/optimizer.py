"""Optimizers of one layer: momentum, Adam and AdaGrad. They work in place, in arrays allocated once. *Local.*"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.floating[Any]]

TINY: Final = 1e-30
"""Smaller numbers in the state are set to 0. Otherwise they would decay to denormal numbers and stay there, as 0.9
times the least of these rounds to itself. Many processors take some hundred cycles to multiply one."""
SWEEP_EVERY: Final = 64
"""Updates between two sweeps for tiny numbers. 0.9^64 TINY is far above the denormals, which begin at 1e-38."""


class Momentum:
    """v <- 0.9 v - step gradient;  w <- w + v  (Polyak 1964).

    The step size is part of v: a smaller step does not shrink the velocity that is there already.
    """

    RATE: Final = 0.9

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._velocity = np.zeros_like(weights)
        self._rate = weights.dtype.type(self.RATE)
        self._updates = 0

    def update(self, gradient: Weights, step: float) -> None:
        """Take a step along `gradient`, which is overwritten. Local."""
        self._step(gradient, step)
        self._updates += 1
        if self._updates % SWEEP_EVERY == 0:
            _sweep(self._velocity)

    def _step(self, gradient: Weights, step: float) -> None:
        np.multiply(self._velocity, self._rate, out=self._velocity)
        np.multiply(gradient, gradient.dtype.type(step), out=gradient)
        np.subtract(self._velocity, gradient, out=self._velocity)
        np.add(self._weights, self._velocity, out=self._weights)

    def state(self) -> dict[str, Any]:
        """Return a view of the velocity, and the number of updates."""
        return {"velocity": self._velocity, "updates": self._updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` has returned; its arrays are copied. Local."""
        self._velocity[:], self._updates = state["velocity"], int(state["updates"])


class Adam:
    """m <- 0.9 m + 0.1 g;  s <- 0.999 s + 0.001 g^2;  w <- w - step (m / (1 - 0.9^t)) / (sqrt(s / (1 - 0.999^t)) + eps)

    at update t = 1, 2, 3...; eps = 1e-8 (Kingma and Ba 2015, algorithm 1). The two corrections are computed as part of
    the step size and of eps, as in section 2 there.
    """

    MEAN, SQUARE, EPSILON = 0.9, 0.999, 1e-8

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._mean = np.zeros_like(weights)
        self._square = np.zeros_like(weights)
        self._scratch = np.empty_like(weights)
        self._updates = 0

    def update(self, gradient: Weights, step: float) -> None:
        """Take a step along `gradient`, which is overwritten. Local."""
        self._updates += 1
        root = (1 - self.SQUARE**self._updates) ** 0.5
        self._step(gradient, step * root / (1 - self.MEAN**self._updates), self.EPSILON * root)
        if self._updates % SWEEP_EVERY == 0:
            _sweep(self._mean)
            _sweep(self._square)

    def _step(self, gradient: Weights, step: float, epsilon: float) -> None:
        number = gradient.dtype.type
        scratch = np.subtract(gradient, self._mean, out=self._scratch)
        np.multiply(scratch, number(1 - self.MEAN), out=scratch)
        np.add(self._mean, scratch, out=self._mean)
        np.multiply(gradient, gradient, out=gradient)
        np.subtract(gradient, self._square, out=gradient)
        np.multiply(gradient, number(1 - self.SQUARE), out=gradient)
        np.add(self._square, gradient, out=self._square)
        np.sqrt(self._square, out=scratch)
        np.add(scratch, number(epsilon), out=scratch)
        np.divide(self._mean, scratch, out=scratch)
        np.multiply(scratch, number(step), out=scratch)
        np.subtract(self._weights, scratch, out=self._weights)

    def state(self) -> dict[str, Any]:
        """Return views of both means, and the number of updates."""
        return {"mean": self._mean, "square": self._square, "updates": self._updates}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` has returned; its arrays are copied. Local."""
        self._mean[:], self._square[:], self._updates = state["mean"], state["square"], int(state["updates"])


class Adagrad:
    """n <- n + g^2;  w <- w - step g / (sqrt(n) + eps), with eps = 1e-10 (Duchi et al. 2011)."""

    EPSILON = 1e-10

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._squares = np.zeros_like(weights)
        self._scratch = np.empty_like(weights)

    def update(self, gradient: Weights, step: float) -> None:
        """Take a step along `gradient`, which is overwritten. Local."""
        np.multiply(gradient, gradient, out=self._scratch)
        np.add(self._squares, self._scratch, out=self._squares)
        np.sqrt(self._squares, out=self._scratch)
        np.add(self._scratch, gradient.dtype.type(self.EPSILON), out=self._scratch)
        np.divide(gradient, self._scratch, out=gradient)
        np.multiply(gradient, gradient.dtype.type(step), out=gradient)
        np.subtract(self._weights, gradient, out=self._weights)

    def state(self) -> dict[str, Any]:
        """Return a view of the sums of squares."""
        return {"squares": self._squares}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` has returned; its arrays are copied. Local."""
        self._squares[:] = state["squares"]


Optimizer = Momentum | Adam | Adagrad
"""The optimizer of one layer. It holds the layer's weights, not a copy, and a state made of their gradients."""


class Kind(NamedTuple):
    """An optimizer, and its default step size."""

    make: Callable[[Weights], Optimizer]
    step: float
    """A first step size that suits most networks."""


OPTIMIZERS: Final = {"momentum": Kind(Momentum, 0.1), "adam": Kind(Adam, 0.005), "adagrad": Kind(Adagrad, 0.05)}


def step_at(step: float, progress: float, warm_up: float = 0.0) -> float:
    """The step size after the share `progress` of the training.

    It rises linearly from 0 to `step` in the share `warm_up`, below 1, and falls linearly to 0 in the rest.
    """
    return step * (progress / warm_up if progress < warm_up else (1 - progress) / (1 - warm_up))


def _sweep(array: Weights) -> None:
    array[np.abs(array) < TINY] = 0
