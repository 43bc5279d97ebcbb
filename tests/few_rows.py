"""Rows of linear models that are few enough for slow twins."""

from itertools import pairwise

import numpy as np
from scipy.sparse import csr_matrix, random_array

from malt.models.linear import Examples

FEATURES = 12
ORDER = np.array([5, 0, 3, 3, 1, 7], np.int32)


def labelled_rows(generator, rows=60, features=20):
    """A sparse matrix whose first row is empty, and labels that a plane separates, except for some."""
    X = csr_matrix(random_array((rows, features), density=0.3, rng=generator, dtype=np.float32))
    X = csr_matrix((X.data, X.indices.astype(np.int32), X.indptr), shape=X.shape)
    X.data[: X.indptr[1]] = 0
    X.eliminate_zeros()
    noisy = X @ generator.standard_normal(features) + 0.2 * generator.standard_normal(rows)
    return X, np.where(noisy > 0, 1, -1).astype(np.float32)


def readonly_rows(scale=1.0):
    """Rows of up to 6 non-zeros: one is empty, in one a column comes twice."""
    generator = np.random.default_rng(3)
    columns = [generator.permutation(FEATURES)[: n % 7].astype(np.int32) for n in range(10)]
    columns[5][1] = columns[5][0]
    starts = np.cumsum([0, *map(len, columns)]).astype(np.int64)
    values = (scale * generator.standard_normal(starts[-1])).astype(np.float32)
    arrays = Examples(values, np.concatenate(columns), starts, np.where(np.arange(10) % 3, 1, -1).astype(np.float32))
    assert any(first == last for first, last in pairwise(starts))
    return Examples(*map(readonly, arrays))


def readonly(array):
    array.flags.writeable = False
    return array
