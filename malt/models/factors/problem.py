"""Matrix factorization by stochastic gradient descent: what is learned, from which ratings, in which steps.

A rating, in units of the ratings' spread around their mean, is predicted as b_u + b_i + p_u . q_i. The row of a user
or an item has `rank` + 1 columns: p or q, and b in the last. The objective, over the ratings, is

    sum of e^2 / 2 + l2_u / 2 (|p_u|^2 + b_u^2) + l2_i / 2 (|q_i|^2 + b_i^2),    l2_x = l2 (1 + PRIOR_RATINGS / n_x)

where n_x is the number of ratings of a user or an item. The first part, l2 for each rating, is that of ALS and SGD
(Zhou et al. 2008). The second, l2 PRIOR_RATINGS for each row, keeps items with one or two ratings from learning noise.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.models.linear import readonly

PRIOR_RATINGS: Final = 30.0
"""Every row is regularized as if it had so many more ratings."""
START_SPREAD: Final = 0.03
"""The standard deviation of the first p and q. A larger one harms rarely rated items, a smaller the first epochs."""
MAX_RANK: Final = 1024

Rows = NDArray[np.float32]
Numbers = NDArray[np.int32]


class Shard(NamedTuple):
    """The ratings of some users, read-only. The user in place u has the ratings starts[u]:starts[u + 1]."""

    starts: NDArray[np.int64]
    items: Numbers
    ratings: Rows
    """The ratings, in units of the spread around the mean."""


def shard(users: Numbers, items: Numbers, ratings: Rows, count: int, generator: np.random.Generator) -> Shard:
    """The ratings of users 0 to count - 1, with those of each user shuffled: copies. Local.

    ValueError: the columns differ in length, or a user is not from 0 to count - 1 (the kernels check nothing).
    """
    if not len(users) == len(items) == len(ratings):
        raise ValueError(f"{len(users)} users, {len(items)} items and {len(ratings)} ratings")
    if len(users) and not 0 <= users.min() <= users.max() < count:
        raise ValueError(f"a user is not from 0 to {count - 1}")
    order = generator.permutation(len(users))
    order = order[np.argsort(users[order], kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(users, minlength=count))))
    return Shard(readonly(starts, np.int64), readonly(items[order], np.int32), readonly(ratings[order], np.float32))


def first_rows(count: int, rank: int, generator: np.random.Generator) -> Rows:
    """The first rows, (count, rank + 1), float32: small random numbers, and 0 for the bias."""
    rows = np.zeros((count, rank + 1), np.float32)
    rows[:, :rank] = START_SPREAD * generator.standard_normal((count, rank), dtype=np.float32)
    return rows


def penalties(counts: NDArray[np.integer[Any]], l2: float) -> Rows:
    """l2 (1 + PRIOR_RATINGS / n) for each row, where n is its number of ratings."""
    found: Rows = (l2 * (1 + PRIOR_RATINGS / np.maximum(counts, 1))).astype(np.float32)
    return found


def step_size(step: float, epoch: int, epochs: int) -> float:
    """The step size of an epoch, from 0. It falls linearly to 0 after the last, so that the noise ends."""
    return step * (1 - epoch / epochs)


def keeps(l2: Rows, step: float) -> Rows:
    """The factor of a row at one example: 1 / (1 + step l2). It is the implicit form, which never overshoots."""
    return np.float32(1) / (1 + np.float32(step) * l2)
