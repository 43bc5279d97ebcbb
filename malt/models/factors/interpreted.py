"""Replaces the kernels of matrix factorization by NumPy where they are interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import strsv

from malt.models.factors.problem import Numbers, Rows, Shard

_AT_ONCE: Final = 64
"""Ratings of a user that are trained on at once, at most."""


def train(
    data: Shard, order: Numbers, users: Rows, items: Rows, keep_users: Rows, keep_items: Rows, step: Any, biases: bool,
    touched: NDArray[np.bool_],
) -> bool:  # fmt: skip
    """As the kernel of this name, to the rounding: the errors of a user's ratings by forward substitution.

    With f = (q, 1), p = (p, b_u) and m = step e, p after n ratings is p_n = keep^n p_0 + sum over j < n of w_nj m_j f_j
    with w_nj = keep^(n - 1 - j). So m_n = step (r_n - b_i - keep^n p_0 . f_n - sum over j < n of w_nj m_j f_j . f_n).
    """
    places = np.arange(_AT_ONCE + 1)
    lags = np.maximum(np.subtract.outer(places, places[1:]), 0)
    lower = np.tri(_AT_ONCE + 1, _AT_ONCE, k=-1, dtype=np.float32)
    for user in order:
        own, powers = users[user], keep_users[user] ** places.astype(np.float32)
        for part in _parts(data, user):
            rows, n = data.items[part], part.stop - part.start
            before = items[rows]
            f = before.copy()
            f[:, -1] = biases
            weights = lower[: n + 1, :n] * powers[lags[: n + 1, :n]]
            moves = step * (data.ratings[part] - before[:, -1] - powers[:n] * (f @ own))
            moves = strsv((weights[:n] * ((step * f) @ f.T)).T, moves, trans=1, diag=1)
            p = powers[: n + 1, np.newaxis] * own + (weights * moves) @ f
            own[:] = p[n]
            p[:, -1] = biases
            items[rows] = keep_items[rows, np.newaxis] * before + moves[:, np.newaxis] * p[:n]
            touched[rows] = True
    return bool(np.isfinite(users[order]).all())


def _parts(data: Shard, user: int) -> Iterator[slice]:
    """The ratings of a user, some at once: of different items, or each alone."""
    begin, end = data.starts[user : user + 2].tolist()
    for start in range(begin, end, _AT_ONCE):
        stop = min(start + _AT_ONCE, end)
        if len(set(data.items[start:stop].tolist())) == stop - start:
            yield slice(start, stop)
        else:
            yield from (slice(place, place + 1) for place in range(start, stop))


def squares(users: Rows, items: Rows, whose: Numbers, which: Numbers, ratings: Rows, low: Any, high: Any) -> float:
    """As the kernel of this name."""
    predicted = np.empty_like(ratings)
    predict(users, items, whose, which, predicted)
    errors = (ratings - np.clip(predicted, low, high)).astype(np.float64)
    return float(errors @ errors)


def predict(users: Rows, items: Rows, whose: Numbers, which: Numbers, out: Rows) -> None:
    """As the kernel of this name."""
    out[:] = 0
    for table, rows in ((users, whose), (items, which)):
        out[rows >= 0] += table[rows[rows >= 0], -1]
    both = (whose >= 0) & (which >= 0)
    out[both] += np.einsum("nf,nf->n", users[whose[both], :-1], items[which[both], :-1])
