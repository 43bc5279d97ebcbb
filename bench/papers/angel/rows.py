"""Sparse rows of very many features, from a seed, as svmlight text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from bench.papers.mllib import task


def write(path: Path, count: int, n_features: int) -> int:
    """Write rows like those of text to `path`; return how many features occur in them. Local.

    The number of a feature says nothing of how frequent it is.
    """
    data, numbers = task.rows(count, n_features, task.TEXT), np.random.default_rng(0).permutation(n_features)
    X = csr_array((data.values, numbers[data.columns], data.starts), shape=(count, n_features), copy=True)
    X.sum_duplicates()
    with path.open("w", encoding="ascii") as file:
        for label, first, last in zip(data.labels, X.indptr[:-1], X.indptr[1:], strict=True):
            pairs = zip(X.indices[first:last] + 1, X.data[first:last], strict=True)
            file.write(f"{label:+g} {' '.join(f'{column}:{value:.6g}' for column, value in pairs)}\n")
    return len(np.unique(X.indices))
