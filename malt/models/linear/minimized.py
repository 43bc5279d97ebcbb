"""The function that is minimized, over the rows of all ranks, in float64.

    mean over i of loss(y_i (x_i . w + b)) + l2/2 |w|^2 + l1 |w|_1        (the intercept b is not penalized)

With more than two classes, the loss of a row is the sum of those of its classes, or the softmax's.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from malt.models.common import Array
from malt.models.linear.compiled import SOFTMAX, add_gradient, add_gradient_of_classes, loss_of
from malt.models.linear.rows import Block
from malt.models.linear.weights import Weights


class Found(NamedTuple):
    """The values that some weights have on the rows of all ranks together."""

    value: float
    right: int
    rows: int
    gradient: Any
    """That of the mean loss: of the kind of the weights, valid until the next call. None where it was not asked for."""


class Objective:
    """The objective of weights of one kind. `loss`: the number of a loss in the kernels."""

    def __init__(
        self, weights: Weights, loss: int, l2: float, l1: float = 0.0, intercept: bool = True, classes: int = 1
    ) -> None:  # fmt: skip
        self._weights, self._loss, self._l1, self._l2, self._intercept = weights, loss, l1, l2, intercept
        self._scores = np.zeros(classes)

    def found(self, x: Any, block: Block, rows: float, l1: bool = True, measures: bool = False) -> Found:
        """The objective of `x`, with or without the `l1` penalty, over the blocks of all ranks. Collective.

        `rows`: the number by which sums are divided. `measures`: ranks do not add up their gradients.
        """
        weights = self._weights
        params, out = weights.seen(x, block), weights.memory(block)
        losses, right = self._add(block, params, out)
        if not self._intercept:
            out[-1] = 0
        out /= rows
        numbers, penalty = (losses / rows, right, len(block.data.labels)), self._penalty(weights.local(x), l1)
        if measures:
            gradient, totals = None, weights.totals(numbers, penalty)
        else:
            gradient, totals = weights.added(out, block, numbers, penalty)
        return Found(float(totals[0]), int(totals[1]), int(totals[2]), gradient)

    def _add(self, block: Block, params: Array, out: Array) -> tuple[float, int]:
        if params.ndim == 1:
            return add_gradient(block.data, params, out, self._loss, block.weights)
        return add_gradient_of_classes(block.data, params, out, self._scores, self._loss, block.weights)

    def _penalty(self, part: Array, l1: bool) -> float:
        shrunk = part[self._weights.penalized]
        size = float(np.abs(shrunk).sum()) if l1 and self._l1 else 0.0
        return float(self._l2 / 2 * np.vdot(shrunk, shrunk) + self._l1 * size)

    @property
    def of_zeros(self) -> float:
        """The objective of weights of zeros. Local."""
        classes = len(self._scores)
        return math.log(classes) if self._loss == SOFTMAX else classes * loss_of(self._loss, 0.0)

    def penalize(self, x: Any, gradient: Any) -> None:
        """gradient += l2 x, without the intercept. Local."""
        rows = self._weights.penalized
        self._weights.local(gradient)[rows] += self._l2 * self._weights.local(x)[rows]
