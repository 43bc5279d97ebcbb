"""Pictures most of whose pixels are 0, such as handwriting: a network that skips zeros where there are many."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from apps.harness import Array
from apps.mlp import problem
from apps.mlp.pictures import Pictures
from malt.models import linear
from malt.models.networks import sparse
from malt.models.networks.sparse import MixedNetwork, MixedRows

DENSE_FROM: Final = 0.2
"""The share of pictures in which a pixel is not 0 from which on BLAS takes less time than to skip the others."""


class Strokes:
    """Pictures, divided by columns: the pixels of few zeros, and the others as sparse rows. Local."""

    def __init__(self, some: Pictures, columns: NDArray[np.intp]) -> None:
        self._some, self._columns, self.labels = some, columns, some.labels
        pixels, scale = some.pixels, np.float32(1 / some.white)
        others = pixels.copy()
        others[:, columns] = 0
        X = csr_array(others)
        X = csr_array((np.multiply(X.data, scale, dtype=np.float32), X.indices, X.indptr), shape=X.shape)
        dense = np.ascontiguousarray(pixels[:, columns])
        self._rows = MixedRows(dense, scale, linear.examples(X, some.labels.astype(np.float32)))

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, rows: Any) -> Strokes:
        """The pictures in `rows`, in that order: a copy."""
        return Strokes(self._some.chosen(rows), self._columns)

    def show(self, network: MixedNetwork, order: Array) -> None:
        """Let the network read the pictures in `order`."""
        network.read(self._rows, np.asarray(order, np.int32))


class Problem(problem.Problem):
    """The pictures, with the columns that are dense."""

    optimizers = sparse.OPTIMIZERS

    def __init__(self, options: Namespace, train: Pictures, test: Pictures, sizes: Sequence[int]) -> None:
        columns = np.flatnonzero(np.count_nonzero(train.pixels, axis=0) >= DENSE_FROM * len(train))
        super().__init__(options, Strokes(train, columns), Strokes(test, columns), sizes)
        self.network = partial(MixedNetwork, columns=columns)

    def compile(self) -> None:
        sparse.compile_kernels()
        _compute_on_one_thread()


def _compute_on_one_thread() -> None:
    """Let BLAS use one thread, where threadpoolctl is there, as it is with scikit-learn.

    Products of one batch are small. On cores that others use, too, a second thread makes them many times slower: each
    product waits for both.
    """
    with contextlib.suppress(ImportError):
        from threadpoolctl import threadpool_limits

        threadpool_limits(1, "blas")
