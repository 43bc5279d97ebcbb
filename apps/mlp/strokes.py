"""Pictures most of whose pixels are 0, such as handwriting: a network that reads the others alone."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from apps.mlp import problem
from apps.mlp.pictures import Pictures
from apps.mlp.rows import Rows
from malt.kernels.networks import sparse


class Problem(problem.Problem):
    """The pictures as sparse rows."""

    network, optimizers = sparse.SparseNetwork, sparse.OPTIMIZERS

    def __init__(self, options: Namespace, train: Pictures, test: Pictures, sizes: Sequence[int]) -> None:
        super().__init__(options, _rows(train), _rows(test), sizes)

    def compile(self) -> None:
        sparse.compile_kernels()


def _rows(some: Pictures) -> Rows:
    X = csr_array(some.pixels)
    scaled = np.multiply(X.data, np.float32(1 / some.white), dtype=np.float32)
    return Rows(csr_array((scaled, X.indices, X.indptr), shape=X.shape), some.labels)
