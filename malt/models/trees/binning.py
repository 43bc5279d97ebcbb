"""Values as bins: the edges between bins, which each rank finds of some features, and the bins of rows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.kernels import Kernels
from malt.kernels.compiler import types
from malt.models.common import gathered
from malt.models.linear import examples
from malt.models.trees.losses import array_of
from malt.session import session
from malt.session.collectives import allgather

SAMPLE_ROWS: Final = 200_000
"""Edges are found of so many rows at most."""
MOST_BINS: Final = 255

_READ_F4, _READ_I4, _READ_I8 = (array_of(kind, readonly=True) for kind in (types.f4, types.i4, types.i8))

kernel = Kernels(slower=300)


class Binning(NamedTuple):
    """The bins of all features, the same on all ranks."""

    edges: NDArray[np.float64]
    """Those of all features, one after the other."""
    ends: NDArray[np.int64]
    """Feature f has the edges ends[f]:ends[f + 1]."""
    has_missing: bool
    """Whether absent entries are missing values; else they are 0."""
    common: NDArray[np.int64]
    """The bin of each feature that most rows have where few have another: of absent entries, or of 0 in an array."""

    @property
    def widths(self) -> NDArray[np.int64]:
        """The number of bins of each feature."""
        return np.diff(self.ends) + 1

    @property
    def width(self) -> int:
        """The number of bins of a histogram: the most of a feature, and that of missing values."""
        return int(self.widths.max()) + self.has_missing

    @property
    def missing(self) -> int:
        """The bin of missing values, or a number that is none."""
        return self.width - 1 if self.has_missing else -1

    def thresholds(self, features: NDArray[np.int32], bins: NDArray[np.int32]) -> NDArray[np.float64]:
        """The largest value of each of these features in its bin and those below it."""
        places = self.ends[features] + bins
        return np.asarray(np.append(self.edges, np.inf)[np.where(places < self.ends[features + 1], places, -1)])

    def bins(self, X: Any) -> NDArray[np.uint8]:
        """The bins of the rows of `X`, as for `bins_of`, of shape (rows, features rounded up to fours). Local."""
        features = len(self.widths)
        bins = np.zeros((X.shape[0], -(-features // 4) * 4), np.uint8)
        if isinstance(X, np.ndarray):
            for feature, (a, b) in enumerate(pairwise(self.ends)):
                bins[:, feature] = np.searchsorted(self.edges[a:b], X[:, feature])
            bins[:, :features][np.isnan(X)] = self.missing
            return bins
        some = examples(X, np.zeros(X.shape[0], np.float32))
        empty = np.full(features, self.missing) if self.has_missing else _zeros(self.edges, self.ends)
        fill_bins(some.values, some.columns, some.starts, self.edges, self.ends, empty.astype(np.uint8), bins)
        return bins


def bins_of(X: Any, most: int, has_missing: bool, seed: int) -> Binning:
    """The bins: `most` of a feature, of equal counts, or one for each value where there are no more. Collective.

    `X`: the same on all ranks: a CSR matrix, float32, or an array, in which NaN is a missing value. `has_missing`:
    absent entries are missing values; else they are 0. The bins are those of scikit-learn's HistGradientBoosting, of a
    sample of the rows where these are many.
    """
    count, features = X.shape
    rows = np.arange(count)
    if count > SAMPLE_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(count, SAMPLE_ROWS, replace=False))
    sample: Any = X[rows] if count > SAMPLE_ROWS else X
    while True:
        ranks = [*gathered([])]
        first, last = (place * features // len(ranks) for place in np.arange(2) + ranks.index(session.rank()))
        columns = [values[~np.isnan(values)] for values in _columns(sample[:, first:last])]
        mine = [_edges(values, 0 if has_missing else len(rows) - len(values), most) for values in columns]
        lengths = allgather([len(edges) for edges in mine])
        edges = allgather(np.concatenate([np.empty(0), *mine]))
        if all(lengths[rank] is not None and edges[rank] is not None for rank in ranks):
            ends = np.cumsum([0, *(length for rank in ranks for length in lengths[rank])]).astype(np.int64)
            every = np.concatenate([edges[rank] for rank in ranks])
            made = Binning(every, ends, has_missing, _zeros(every, ends))
            if has_missing and not isinstance(X, np.ndarray):
                return made._replace(common=np.full(features, made.missing))
            return made


def _zeros(edges: NDArray[np.float64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The bin of 0 of each feature. Local."""
    return np.array([np.searchsorted(edges[a:b], 0.0) for a, b in pairwise(ends)], np.int64)


def _columns(X: Any) -> list[NDArray[Any]]:
    """The entries of each column. Local."""
    if isinstance(X, np.ndarray):
        return list(X.T)
    columns = X.tocsc()
    return [columns.data[a:b] for a, b in pairwise(columns.indptr)]


def _edges(values: NDArray[Any], zeros: int, most: int) -> NDArray[Any]:
    """The edges between bins of these values, and of so many zeros. Local."""
    distinct = np.unique(np.append(values, np.zeros(int(zeros > 0), values.dtype)))
    if len(distinct) <= most:
        wide = distinct.astype(np.float64)
        return (wide[:-1] + wide[1:]) / 2
    everything = np.concatenate([values, np.zeros(zeros, values.dtype)]).astype(np.float64)
    shares: Any = np.linspace(0, 100, most + 1)[1:-1]
    return np.unique(np.percentile(everything, shares, method="averaged_inverted_cdf"))


@kernel(_READ_F4, _READ_I4, _READ_I8, array_of(types.f8), _READ_I8, array_of(types.u1), array_of(types.u1, 2))
def fill_bins(values: Any, columns: Any, starts: Any, edges: Any, ends: Any, empty: Any, bins: Any) -> None:
    """bins[i, f] = the number of edges of feature f below the value of row i; empty[f] where the row has none.

    The edges of feature f are edges[ends[f]:ends[f + 1]].
    """
    for i in range(starts.size - 1):
        bins[i, : empty.size] = empty
        for j in range(starts[i], starts[i + 1]):
            f = columns[j]
            if f >= empty.size:  # it is not in the training rows
                continue
            low, high, value = ends[f], ends[f + 1], np.float64(values[j])
            while low < high:
                middle = (low + high) >> 1
                if edges[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            bins[i, f] = low - ends[f]
