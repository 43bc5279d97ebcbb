"""Dual coordinate ascent: one alpha a row, of which one after the other takes its best value.

    D(alpha) = mean over i of dual_loss(alpha_i) - l2/2 |w(alpha)|^2
    w(alpha) = sum over i of alpha_i y_i x_i / (l2 n)

No D(alpha) is above the objective of any model, and the largest is the smallest objective. So the duality gap, the
objective less D(alpha), bounds how far a model is from the optimum. After Shalev-Shwartz and Zhang, "Stochastic Dual
Coordinate Ascent Methods" (2013), and Hsieh et al., "A Dual Coordinate Descent Method for Large-scale Linear SVM"
(2008).

Ranks ascend on rows of their own, and add up their changes (CoCoA+: Ma et al., "Adding vs. Averaging in Distributed
Primal-Dual Optimization", 2015). Each counts its own changes `ranks` times meanwhile. That is the safe scaling: the sum
of all changes never lowers D.

The intercept is not in the penalty, so D is finite only where the sum of alpha_i y_i is 0, and no alpha could change
alone. The intercept is therefore a center plus bias sum of alpha_i y_i / (l2 n), as if it were shrunk towards the
center. `balance` moves the center to the intercept (the method of multipliers), and scales the alphas of one label down
until the sum is 0. The optimum is that of the objective without a penalty on the intercept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import compiled
from malt.models.linear.compiled import HINGE, LOGISTIC, SQUARED, Examples, Order, Params
from malt.models.linear.problem import Problem

Floats = NDArray[np.float64]

_LEAST_SHARE: Final = 0.1
"""By how much an alpha of 1 moves the intercept at least. With less it would not come to where it belongs."""


def has_dual(problem: Problem) -> bool:
    """Return whether there is an `Ascent` of this problem."""
    return problem.code != SQUARED and problem.l2 > 0


def _entropy(shares: Floats) -> Floats:
    """-x ln(x), and 0 where x is not above 0. scipy.special has it, too, and takes a tenth of a second to import."""
    some = np.where(shares > 0, shares, 1.0)
    found: Floats = -some * np.log(some)
    return found


class Ascent:
    """The alphas of all rows, and the weights that they make. Local: ranks that start and `add` alike stay alike.

    `data`: all rows. `square`: their mean |x|^2, which the intercept's feature has too. `state`: one of `state`.
    """

    def __init__(
        self, problem: Problem, data: Examples, n_features: int, square: float, state: Mapping[str, Any] | None = None
    ) -> None:
        self._problem, self._data = problem, data
        self._rows = len(data.labels)
        self._share = 1 / (problem.l2 * self._rows)
        self._bias = max(square, _LEAST_SHARE / self._share) if problem.intercept else 0.0
        """The square of the intercept's feature; 0 in a model without an intercept."""
        self._is_positive = data.labels > 0
        self.alphas = np.zeros(self._rows)
        self.weights = np.zeros(n_features + 1)
        """w(alphas), then the intercept."""
        self._positive = np.zeros(n_features + 1 if problem.intercept else 0)
        """The part of w that rows of label +1 make, if there is an intercept."""
        self._sums = np.zeros(2)
        """The sums of the alphas of label +1 and -1."""
        if state:
            for name, array in self.state().items():
                array[...] = state[name]

    def state(self) -> dict[str, Floats]:
        """Return the arrays that an ascent can resume from: views."""
        return {"alphas": self.alphas, "weights": self.weights, "positive": self._positive, "sums": self._sums}

    def ascend(self, order: Order, ranks: int) -> Floats:
        """By how much all is to change after a step on each row in `order`, in one array. `add` does it."""
        before, ahead = self.alphas[order], self.weights.copy()
        compiled.ascend(
            self._data, order, self.alphas, ahead, self._problem.code, ranks * self._share, self._bias
        )  # fmt: skip
        steps = np.zeros(self._rows)
        steps[order] = self.alphas[order] - before
        self.alphas[order] = before
        positive = np.empty_like(self._positive)
        if positive.size:
            compiled.weigh(self._data, steps * self._is_positive, positive, self._share)
        sums = np.array([steps[self._is_positive].sum(), steps[~self._is_positive].sum()])
        return np.concatenate([steps, (ahead - self.weights) / ranks, positive, sums])

    def add(self, changes: Floats) -> None:
        """Change all by the sum of what `ascend` has returned on each rank."""
        start = 0
        for array in self.state().values():
            array += changes[start : start + array.size]
            start += array.size

    def balance(self) -> None:
        """Move the center to the intercept, and make the sum of alpha_i y_i 0; nothing without an intercept."""
        if not self._positive.size:
            return
        most = max(0.0, min(self._sums))
        kept = np.divide(most, self._sums, out=np.zeros(2), where=self._sums > 0)
        negative = self.weights[:-1] - self._positive[:-1]
        self.weights[:-1] = kept[0] * self._positive[:-1] + kept[1] * negative
        self._positive *= kept[0]
        self.alphas *= np.where(self._is_positive, kept[0], kept[1])
        self._sums[:] = most

    def model(self) -> Params:
        """The weights and the intercept as float32: a copy."""
        return self.weights.astype(np.float32)

    def total(self, start: int, stop: int) -> float:
        """The sum of dual_loss(alpha) of the rows start:stop. Totals of blocks add up."""
        alphas = self.alphas[start:stop]
        if self._problem.code == HINGE:
            return float(alphas.sum())
        if self._problem.code == LOGISTIC:
            return float((_entropy(alphas) + _entropy(1 - alphas)).sum())
        return float((alphas - np.square(alphas) / 4).sum())

    def penalty(self) -> float:
        """l2/2 |w(alphas)|^2"""
        with np.errstate(over="ignore"):
            return 0.5 * self._problem.l2 * float(self.weights[:-1] @ self.weights[:-1])
