"""Steps of stochastic optimizers, each a function that changes parts, or arrays, in place. Pure.

    step = malt.optim.adam(rate=0.01)
    w.zip(step, mean, variance, gradient)  # sharded vectors: the state of a rank is where its part is
    step(w, mean, variance, gradient)  # arrays

The state begins as zeros. Each call is a step: a function is made once, and used for one w.

`warmup` is for the argument outer= of malt.Replica and malt.torch.Optimizer alone: so many exchanges add the mean of
changes to the model as it is, before the first one that makes a step of it. A model that has just begun changes by many
times what it changes by later: momentum would repeat that until the model is lost, and steps that are divided by the
root of squares would all be as long. FTRL is no outer step: its w begins at 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm.words import shown
from vol import arguments

Array = NDArray[Any]
Step = Callable[..., None]
WARMUP = 5
"""Where models begin at random, one exchange is sometimes too few, and more than ten cost exchanges of the step."""


def momentum(rate: float = 0.01, decay: float = 0.9, warmup: int = WARMUP) -> Step:
    """Return step(w, velocity, gradient): v <- decay v - rate g, w <- w + v. Polyak, 1964.

    `warmup`: the number of exchanges before its first step, if it is used as outer=.

    ValueError, TypeError: a number is wrong.
    """
    rate, decay = _rate(rate), _fraction("decay", decay)

    def step(w: Array, velocity: Array, gradient: Array) -> None:
        """One step, in place: all change but `gradient`."""
        velocity *= decay
        velocity -= rate * gradient
        w += velocity

    return _after(warmup, step)


def nesterov(rate: float = 0.01, decay: float = 0.9, warmup: int = WARMUP) -> Step:
    """Return step(w, velocity, gradient): v <- decay v - rate g, w <- w + decay v - rate g. Sutskever et al., 2013.

    `warmup`: the number of exchanges before its first step, if it is used as outer=.

    ValueError, TypeError: a number is wrong.
    """
    rate, decay = _rate(rate), _fraction("decay", decay)

    def step(w: Array, velocity: Array, gradient: Array) -> None:
        """One step, in place: all change but `gradient`."""
        velocity *= decay
        velocity -= rate * gradient
        w += decay * velocity - rate * gradient

    return _after(warmup, step)


def adagrad(rate: float = 0.01, epsilon: float = 1e-10, warmup: int = WARMUP) -> Step:
    """Return step(w, squares, gradient): n <- n + g^2, w <- w - rate g / (sqrt(n) + epsilon). Duchi et al., JMLR 2011.

    `warmup`: the number of exchanges before its first step, if it is used as outer=.

    ValueError, TypeError: a number is wrong.
    """
    rate, epsilon = _rate(rate), _positive("epsilon", epsilon)

    def step(w: Array, squares: Array, gradient: Array) -> None:
        """One step, in place: all change but `gradient`."""
        squares += gradient * gradient
        w -= rate * gradient / (np.sqrt(squares) + epsilon)

    return _after(warmup, step)


def adam(
    rate: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8, steps: int = 0,
    warmup: int = WARMUP,
) -> Step:  # fmt: skip
    """Return step(w, mean, variance, gradient), for step number t. Kingma and Ba, ICLR 2015, algorithm 1.

        m <- beta1 m + (1 - beta1) g         v <- beta2 v + (1 - beta2) g^2
        w <- w - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon)

    `steps`: the number of steps that were made before with this state, for a run that is resumed. t counts from there.
    `warmup`: the number of exchanges before its first step, if it is used as outer=.

    ValueError, TypeError: a number is wrong.
    """
    rate, epsilon = _rate(rate), _positive("epsilon", epsilon)
    beta1, beta2 = _fraction("beta1", beta1), _fraction("beta2", beta2)
    steps = arguments.whole("steps", steps, 0)

    def step(w: Array, mean: Array, variance: Array, gradient: Array) -> None:
        """One step, in place: all change but `gradient`."""
        made = step.__dict__["steps"] = step.__dict__["steps"] + 1
        mean *= beta1
        mean += (1 - beta1) * gradient
        variance *= beta2
        variance += (1 - beta2) * gradient * gradient
        w -= rate / (1 - beta1**made) * mean / (np.sqrt(variance / (1 - beta2**made)) + epsilon)

    step.__dict__["steps"] = steps
    return _after(warmup, step)


def ftrl(alpha: float = 0.1, beta: float = 1.0, l1: float = 0.0, l2: float = 0.0) -> Step:
    """Return step(w, z, squares, gradient): FTRL-proximal. McMahan et al., KDD 2013, algorithm 1.

        sigma = (sqrt(n + g^2) - sqrt(n)) / alpha     z <- z + g - sigma w     n <- n + g^2
        w <- 0 where |z| <= l1, else -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)

    ValueError, TypeError: a number is wrong.
    """
    alpha, beta = _rate(alpha, "alpha"), _positive("beta", beta)
    l1, l2 = (_checked(name, value, value >= 0) for name, value in (("l1", l1), ("l2", l2)))

    def step(w: Array, z: Array, squares: Array, gradient: Array) -> None:
        """One step, in place: all change but `gradient`."""
        before = np.sqrt(squares)
        squares += gradient * gradient
        after = np.sqrt(squares)
        z += gradient - (after - before) / alpha * w
        w[...] = np.where(np.abs(z) <= l1, 0, (np.sign(z) * l1 - z) / ((beta + after) / alpha + l2))

    step.__dict__["warmup"] = None  # it is no outer step
    return step


def _after(warmup: int, step: Step) -> Step:
    """`step`, which says how long its warm-up is as an outer step."""
    step.__dict__["warmup"] = arguments.whole("warmup", warmup, 0)
    return step


def _checked(name: str, value: Any, is_right: bool) -> float:
    number = arguments.real(name, value)
    if not (is_right and np.isfinite(number)):
        raise ValueError(f"{name} is out of its range, got {shown(value)}")
    return number


def _positive(name: str, value: Any) -> float:
    return _checked(name, value, arguments.real(name, value) > 0)


def _rate(value: Any, name: str = "rate") -> float:
    return _positive(name, value)


def _fraction(name: str, value: Any) -> float:
    return _checked(name, value, 0 <= arguments.real(name, value) < 1)
