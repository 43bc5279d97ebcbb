"""Rows from a seed, what is to be learned of them, and the objective to reach."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

import malt
from apps.linear import reading
from malt.models import linear
from malt.models.linear import Examples, Params, Problem

L2 = 1e-4
ABOVE = 0.01
"""Of a task, as in the paper."""
NONZEROS = 30
"""Columns that are drawn for a row, with replacement."""
TEXT, RARE = 10.0, math.inf
"""Of `rows`: columns as popular as words of text; columns that are all alike, of which two rows have few in common."""
_FLIPPED = 0.05
"""The share of the labels that are wrong."""
_EPOCHS = 200
_GAP = 1e-3
"""The duality gap at which the optimum counts as found: a tenth of ABOVE."""


class Task(NamedTuple):
    """A linear SVM: the rows, and the objective that ends the training."""

    data: Examples
    n_features: int
    problem: Problem
    optimum: float
    square: float
    """The mean |x|^2 of the rows."""
    above: float = ABOVE
    """How far above the optimum the objective lies that ends the training."""

    @property
    def target(self) -> float:
        return self.optimum + self.above

    @property
    def at_first(self) -> float:
        """The objective of zeros."""
        return self.objective(np.zeros(self.n_features + 1, np.float32))

    def objective(self, params: Params) -> float:
        return linear.objective(self.problem, self.data, params)


def rows(count: int, n_features: int, head: float, seed: int = 0, nonzeros: int = NONZEROS) -> Examples:
    """Sparse rows of length 1, of two classes that a plane separates but for some labels. Local.

    Column number j, counted from 0, is as popular as 1 / (j + head): a small head makes rows like those of text, of
    which most share some columns. Infinity: all columns are alike.
    """
    draw = np.random.default_rng(seed)
    plane = draw.standard_normal(n_features, np.float32)
    places = draw.random((count, nonzeros))
    places = n_features * places if math.isinf(head) else head * np.expm1(places * math.log1p(n_features / head))
    columns = np.minimum(places, n_features - 1).astype(np.int32)
    labels = np.where(plane[columns].sum(axis=1) > 0, 1, -1).astype(np.float32)
    labels[draw.random(count) < _FLIPPED] *= -1
    values = np.full(columns.size, nonzeros**-0.5, np.float32)
    starts = np.arange(count + 1, dtype=np.int32) * nonzeros
    X = csr_array((values, columns.ravel(), starts), shape=(count, n_features))
    return linear.examples(X, labels)


def write(path: Path, count: int, n_features: int) -> int:
    """Write rows like those of text to `path`; return how many features occur in them. Local.

    The number of a feature says nothing of how frequent it is.
    """
    data, numbers = rows(count, n_features, TEXT), np.random.default_rng(0).permutation(n_features)
    X = csr_array((data.values, numbers[data.columns], data.starts), shape=(count, n_features), copy=True)
    X.sum_duplicates()
    with path.open("w", encoding="ascii") as file:
        for label, first, last in zip(data.labels, X.indptr[:-1], X.indptr[1:], strict=True):
            pairs = zip(X.indices[first:last] + 1, X.data[first:last], strict=True)
            file.write(f"{label:+g} {' '.join(f'{column}:{value:.6g}' for column, value in pairs)}\n")
    return len(np.unique(X.indices))


def census() -> tuple[Examples, int]:
    """The rows of a9a, and how many features they have: a tenth of them in each row. Local."""
    data = malt.open_svmlight(reading.EMBEDDED / "train.svm.xz")
    return linear.examples(data.X, data.y), data.X.shape[1]


def task(data: Examples, n_features: int, above: float = ABOVE) -> Task:
    """The task of these rows: to come so near to the optimum. Dual coordinate ascent finds it. Local."""
    linear.compile_kernels()
    problem = Problem("hinge", L2, False)
    square = float(np.square(data.values, dtype=np.float64).sum()) / len(data.labels)
    ascent = linear.Ascent(problem, data, n_features, square)
    draw = np.random.default_rng(0)
    for _ in range(_EPOCHS):
        ascent.add(ascent.ascend(draw.permutation(len(data.labels)).astype(np.int32), 1))
        best = linear.objective(problem, data, ascent.model())
        dual = ascent.total(0, len(data.labels)) / len(data.labels) - ascent.penalty()
        if best - dual < _GAP:
            return Task(data, n_features, problem, best, square, above)
    raise RuntimeError(f"the gap is still {best - dual:.2g} after {_EPOCHS} epochs")
