"""The second eigenvalue of averaging along a graph: the rate at which ranks approach their mean. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vol.graphs.builders import Phases, Table, reverse
from vol.graphs.consensus import Shares

if TYPE_CHECKING:  # it takes longer to load than all of MALT
    from scipy.sparse import csr_array

DENSE_RANKS = 64  # above this, dense eigenvalues are slower than ARPACK: 0.9 s against 0.03 s at 1024 ranks
# k=6: with 2, ARPACK may return the first and the third. ncv=40: random graphs have many eigenvalues close to those.
ARPACK: Any = {"k": 6, "ncv": 40, "tol": 1e-8, "maxiter": 100}


def _uniform(table: Table) -> csr_array[np.float64, tuple[int, int]]:
    """Return the sparse matrix with 1 / len(table[r]) at (r, p) for p in table[r]. Local."""
    return _matrix(table, np.repeat(1.0 / np.maximum(_lengths(table), 1), _lengths(table)))


def _weighted(table: Table, shares: Sequence[Sequence[int]]) -> csr_array[np.float64, tuple[int, int]]:
    """Return the sparse matrix with shares[r][k] / sum(shares[r]) at (r, table[r][k])."""
    return _matrix(table, np.array([share / sum(those) for those in shares for share in those]))


def _lengths(table: Table) -> NDArray[np.int64]:
    return np.fromiter(map(len, table), np.int64, len(table))


def _matrix(table: Table, data: NDArray[np.float64]) -> csr_array[np.float64, tuple[int, int]]:
    from scipy.sparse import csr_array

    indices = np.fromiter(chain.from_iterable(table), np.int64, len(data))
    starts = np.concatenate([[0], _lengths(table).cumsum()])
    return csr_array((data, indices, starts), shape=(len(table), len(table)))


def second_by_fft(phases: Phases) -> float:
    """Return |lambda2| of the product of the averaging matrices of circulant tables. Local.

    Circulant matrices share their eigenvectors. The Fourier transform of a column is the vector of eigenvalues.
    """
    size = len(phases[0])
    eigenvalues = np.ones(size, dtype=np.complex128)
    for table in phases:
        column = np.zeros(size)
        column[[0, *table[0]]] = 1 / (len(table[0]) + 1)
        eigenvalues *= np.fft.fft(column)
    return float(np.abs(eigenvalues[1:]).max())  # eigenvalue 0 is the 1 of the constant vector


def second_by_matrix(phases: Phases, shares: Shares | None = None) -> float:
    """Return |lambda2| of the product of the averaging matrices of any tables. Local.

    `shares`: by phase and rank, its own and those of its in-peers. None: averages are plain means.
    """
    terms = [tuple((r, *peers) for r, peers in enumerate(reverse(table))) for table in phases]
    matrices = list(map(_uniform, terms) if shares is None else map(_weighted, terms, shares))
    product = reduce(lambda earlier, later: later @ earlier, matrices)
    size = len(phases[0])
    if size > DENSE_RANKS:
        from scipy.sparse.linalg import ArpackNoConvergence, eigs

        start = 1.0 + np.arange(size)  # the default start is random
        with suppress(ArpackNoConvergence):
            few = eigs(product, v0=start, return_eigenvectors=False, **ARPACK)
            return float(np.sort(np.abs(few))[-2])
    return float(np.sort(np.abs(np.linalg.eigvals(product.toarray())))[-2])
