"""The minimum of the objective of linear classifiers by L-BFGS, over the rows of all ranks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.kernels import compile_first
from malt.models import linear
from malt.models.rows import Rows
from malt.optim import Result, lbfgs
from malt.session.collectives import allreduce

Floats = NDArray[np.float64]

CURVATURES: Final = {"squared-hinge": 2.0, "logistic": 0.25}
"""The losses that have a gradient everywhere, and their largest second derivatives."""


class Batch:
    """The objective of all classes at once. `X`: CSR, float32. `codes`: the number of the class of each row.

    Rows with weights stand for as many rows each.

    `is_softmax`: whether several classes have the softmax loss, and not that of `problem`, each against the rest.

    Weights are float64, of shape (features + 1,), or (features + 1, classes) where there are several. The last row is
    that of the intercept. Features of different scales have different curvatures, so L-BFGS minimizes over the weights
    times the root of a bound of the curvature.
    """

    def __init__(
        self, problem: linear.Problem, is_softmax: bool, classes: int, rows: Rows, X: Any, codes: Any
    ) -> None:  # fmt: skip
        self._problem, self._rows, self._X, self._codes = problem, rows, X, np.asarray(codes, np.float32)
        if classes == 2:
            self._codes = 2 * self._codes - 1
        self._shape: tuple[int, ...] = (X.shape[1] + 1, classes) if classes > 2 else (X.shape[1] + 1,)
        self._weights, loss = linear.Replicated(self._shape), linear.SOFTMAX if is_softmax else problem.code
        self._objective = linear.Objective(
            self._weights, loss, problem.l2, intercept=problem.intercept, classes=classes
        )  # fmt: skip
        self._count = rows.total
        """The rows of all ranks."""
        self._take()

    def _take(self) -> None:
        order, weights = self._rows.mine(), self._rows.weights
        data = linear.examples(self._X, self._codes, order)
        self._block = linear.Block(data, None) if weights is None else linear.Block(data, None, weights.relative[order])

    def minimize(self, tol: float, max_iter: int) -> tuple[Floats, Result]:
        """The weights at the minimum, and where it ended; the same on all ranks. Collective.

        `tol`: it has converged when the norm of the gradient is so much of that at zeros.
        """
        compile_first(linear.compile_kernels)
        scale = self._scale()
        point = np.zeros(self._shape)

        def function(u: Floats) -> tuple[float, Floats]:
            """The objective and its gradient, with weights in units of `scale`."""
            value, gradient = self._found(u / scale)
            return value, gradient / scale

        result = lbfgs(function, point, tolerance=tol, max_iterations=max_iter)
        return point / scale, result

    def _scale(self) -> Floats:
        """The root of a bound of the curvature along each weight. Collective."""
        data, _, weights = self._block
        squares = np.square(data.values, dtype=np.float64)
        if weights.size:
            squares *= np.repeat(weights, np.diff(data.starts))
        squares = np.bincount(data.columns, squares, self._shape[0])
        squares[-1] = len(data.labels)
        allreduce(squares, "sum")
        scale = np.sqrt(CURVATURES[self._problem.loss] * squares / squares[-1] + self._problem.l2)
        return np.asarray(scale.reshape(-1, *[1] * (len(self._shape) - 1)))

    def _found(self, w: Floats) -> tuple[float, Floats]:
        """The objective at `w`, and its gradient. Collective. Where a rank fails in it, the others take its rows."""
        while (found := self._objective.found(w, self._block, self._count)).rows != self._count:
            if self._rows.are_all(found.rows):
                self._count = found.rows
            self._take()
        self._objective.penalize(w, found.gradient)
        return found.value, found.gradient
