"""Replaces the kernels of linear models, and their inner loops, by NumPy where they are interpreted."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array


def dot(values: Any, columns: Any, start: int, stop: int, weights: Any) -> Any:
    """x . w"""
    return values[start:stop] @ weights[columns[start:stop]]


def add(values: Any, columns: Any, start: int, stop: int, step: Any, weights: Any) -> None:
    """w <- w + step x. A column may be there twice."""
    np.add.at(weights, columns[start:stop], step * values[start:stop])


def rescale(params: Any, scale: float) -> bool:
    """u <- scale u, but for the intercept. Returns whether all of params is finite."""
    params[:-1] *= np.float32(scale)
    return bool(np.isfinite(params).all())


def blend(average: Any, params: Any, weight: float) -> None:
    """average <- (1 - weight) average + weight params"""
    average += np.float32(weight) * (params - average)


def add_gradient(data: Any, params: Any, out: Any, loss: int, weights: Any) -> tuple[float, int]:
    """As the kernel of this name."""
    from malt.models.linear.compiled import dloss_of, loss_of  # which imports this module

    rows, z = _margins(data, params, 0, len(data.labels))
    weights = weights if weights.size else np.ones(len(z))
    slopes = weights * data.labels * np.array([dloss_of(loss, one) for one in z])
    out[:-1] += rows.T @ slopes
    out[-1] += slopes.sum()
    return float(weights @ np.array([loss_of(loss, one) for one in z])), int((z > 0).sum())


def totals(data: Any, params: Any, loss: int, first: int, last: int) -> tuple[float, int]:
    """As the kernel of this name."""
    from malt.models.linear.compiled import loss_of

    z = _margins(data, params, first, last)[1]
    return sum(loss_of(loss, one) for one in z), int((z > 0).sum())


def _margins(data: Any, params: Any, first: int, last: int) -> tuple[csr_array, Any]:
    """Rows first:last, and their margins."""
    starts, shape = data.starts[first : last + 1], (last - first, params.size - 1)
    here = slice(starts[0], starts[-1])
    rows = csr_array((data.values[here], data.columns[here], starts - starts[0]), shape)
    return rows, data.labels[first:last] * (rows @ params[:-1] + params[-1]).astype(np.float64)
