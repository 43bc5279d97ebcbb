"""Losses of boosted trees: the gradient and the Hessian of each row, as words of 32 bits in fixed point. Compiled."""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from malt.kernels import Kernels
from malt.kernels.compiler import types
from malt.models.trees import interpreted

LOGISTIC, SQUARED, SOFTMAX = 0, 1, 2
LOSSES: Final = {"logistic": LOGISTIC, "squared": SQUARED, "softmax": SOFTMAX}


def array_of(kind: Any, dimensions: int = 1, readonly: bool = False) -> Any:
    """The type of an array whose rows lie one after the other, for the signature of a kernel."""
    return types.Array(kind, dimensions, "C", readonly=readonly)


_F8, _READ_F4 = array_of(types.f8), array_of(types.f4, readonly=True)


class Scale(NamedTuple):
    """The conversion of numbers to words: the same on all ranks."""

    gradient: float
    """The words of a gradient of 1: a power of two."""
    hessian: float
    bits: int
    """The bits below the count."""


SCALE: Final[Any] = types.NamedTuple((types.f8, types.f8, types.i8), Scale)
"""The type of a Scale."""

kernel = Kernels(slower=30)


def _largest_gradient(loss: Any, scores: Any, y: Any) -> float:
    return interpreted.largest_gradient(scores, y) if loss == SQUARED else 1.0


def _gradients(loss: Any, scores: Any, y: Any, scale: Any, words: Any) -> None:
    chances = None if loss == SQUARED else 1.0 / (1.0 + np.exp(-scores)) if loss == LOGISTIC else scores
    interpreted.gradients(chances, scores, y, scale, words)


def _total_loss(loss: Any, scores: Any, y: Any) -> float:
    return float((np.square(scores - y) if loss == SQUARED else np.logaddexp(0.0, -y * scores)).sum())


@kernel(types.i8, _F8, _READ_F4, interpreted=_largest_gradient)
def largest_gradient(loss: Any, scores: Any, y: Any) -> float:
    """The largest |gradient|: 1 where it is a difference of probabilities."""
    if loss != SQUARED:
        return 1.0
    largest = 0.0
    for i in range(y.size):
        largest = max(largest, abs(scores[i] - y[i]))
    return largest


@kernel(types.i8, _F8, _READ_F4, SCALE, array_of(types.i4, 2), interpreted=_gradients)
def gradients(loss: Any, scores: Any, y: Any, scale: Any, words: Any) -> None:
    """The words of each row.

    logistic: g = p - (y + 1) / 2, h = p (1 - p), p = 1 / (1 + exp(-score))    squared: g = score - y, h = 1
    softmax: as logistic, of the probability p of the class, which is given instead of the score
    """
    for i in range(y.size):
        if loss != SQUARED:
            p = 1.0 / (1.0 + math.exp(-scores[i])) if loss == LOGISTIC else scores[i]
            words[i, 0] = np.int32(np.rint((p - 0.5 * (y[i] + 1.0)) * scale.gradient))
            words[i, 1] = np.int32(np.rint(p * (1.0 - p) * scale.hessian))
        else:
            words[i, 0] = np.int32(np.rint((scores[i] - y[i]) * scale.gradient))
            words[i, 1] = np.int32(scale.hessian)


@kernel(array_of(types.f8, 2), interpreted=interpreted.softmax)
def softmax(scores: Any) -> Any:
    """exp(scores[k, i]) / sum over k of exp(scores[k, i]): the probability of class k in row i."""
    chances = np.empty_like(scores)
    for i in range(scores.shape[1]):
        most, total = scores[0, i], 0.0
        for k in range(1, scores.shape[0]):
            most = max(most, scores[k, i])
        for k in range(scores.shape[0]):
            chances[k, i] = math.exp(scores[k, i] - most)
            total += chances[k, i]
        for k in range(scores.shape[0]):
            chances[k, i] /= total
    return chances


@kernel(types.i8, _F8, _READ_F4, interpreted=_total_loss)
def total_loss(loss: Any, scores: Any, y: Any) -> float:
    """The sum of log(1 + exp(-y score)), or of (score - y)^2."""
    total = 0.0
    for i in range(y.size):
        z = y[i] * scores[i]
        if loss == SQUARED:
            total += (scores[i] - y[i]) ** 2
        elif z > 0:
            total += math.log1p(math.exp(-z))
        else:
            total += math.log1p(math.exp(z)) - z
    return total
