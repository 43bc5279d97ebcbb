"""Objectives of linear classifiers whose rows have weights: NumPy and scipy, beside the kernels for rows without."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit, log_softmax

from malt.models.linear.batch import CURVATURES, Batch
from malt.session.collectives import allreduce

Floats = NDArray[np.float64]
SOFTMAX = "softmax"


def losses_of(loss: str, scores: Floats, codes: NDArray[Any]) -> tuple[Floats, Floats]:
    """The loss of each row, of shape (rows,), and its derivatives with respect to the scores. Local.

    `scores`: of shape (rows, classes), or (rows, 1) for two classes. `codes`: the numbers of the classes. `loss`: a
    name in malt.models.linear, summed over the classes, of which one is +1 and the others are -1; or SOFTMAX.
    """
    rows, codes = np.arange(len(codes)), codes.astype(np.intp)
    if loss == SOFTMAX:
        logs = log_softmax(scores, axis=1)
        slopes = np.exp(logs)
        slopes[rows, codes] -= 1
        return -logs[rows, codes], slopes
    signs = np.where(codes[:, None] == (np.arange(scores.shape[1]) if scores.shape[1] > 1 else [1]), 1.0, -1.0)
    margins = signs * scores
    if loss == "logistic":
        return np.logaddexp(0, -margins).sum(axis=1), -signs * expit(-margins)
    short = np.maximum(0, 1 - margins)
    if loss == "hinge":
        return short.sum(axis=1), -signs * (margins < 1)
    return np.square(short).sum(axis=1), -2 * signs * short


def loss_sum(loss: str, X: Any, codes: NDArray[Any], params: NDArray[Any], weights: Floats) -> float:
    """The sum of the losses of rows, times their weights. `params`: a row for each class, or one for two. Local."""
    wide = params.astype(np.float64)
    return float(losses_of(loss, X @ wide[:, :-1].T + wide[:, -1], codes)[0] @ weights)


class WeightedBatch(Batch):
    """`Batch` of rows with weights, which stand for as many rows each."""

    def __init__(self, problem: Any, is_softmax: bool, classes: int, rows: Any, X: Any, codes: Any) -> None:
        self._name = SOFTMAX if is_softmax else problem.loss
        self._numbers = np.asarray(codes)
        super().__init__(problem, is_softmax, classes, rows, X, codes)

    def _take(self) -> None:
        order = self._rows.mine()
        self._here, self._codes_here = csr_matrix(self._X[order], dtype=np.float64), self._numbers[order]
        assert self._rows.weights is not None
        self._weights_here = self._rows.weights.relative[order]

    def _scale(self) -> Floats:
        squares = np.append(self._here.multiply(self._here).T @ self._weights_here, len(self._weights_here))
        allreduce(squares, "sum")
        scale = np.sqrt(CURVATURES[self._problem.loss] * squares / squares[-1] + self._problem.l2)
        return np.asarray(scale.reshape(-1, *[1] * (len(self._shape) - 1)))

    def _found(self, w: Floats) -> tuple[float, Floats]:
        while True:
            sums = np.zeros(w.size + 2)
            sums[-2:] = self._summed(w.reshape(len(w), -1), sums[:-2].reshape(len(w), -1)), len(self._weights_here)
            allreduce(sums, "sum")
            if self._rows.are_all(int(sums[-1])):
                break
            self._take()
        out = sums[:-2].reshape(w.shape) / sums[-1]
        out[:-1] += self._problem.l2 * w[:-1]
        out[-1] *= self._problem.intercept
        return float(sums[-2] / sums[-1] + self._problem.l2 / 2 * np.vdot(w[:-1], w[:-1])), out

    def _summed(self, w: Floats, out: Floats) -> float:
        """The sum of the losses of this rank's rows, times their weights, whose gradient goes to `out`. Local."""
        losses, slopes = losses_of(self._name, self._here @ w[:-1] + w[-1], self._codes_here)
        slopes *= self._weights_here[:, None]
        out[:-1], out[-1] = self._here.T @ slopes, slopes.sum(axis=0)
        return float(losses @ self._weights_here)
